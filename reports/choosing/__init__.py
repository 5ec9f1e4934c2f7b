"""What settings cost and bought, and which a run would choose."""
