"""What was measured of all tables, and what misses."""
