"""What the intervals of findings cover, in simulation."""
