"""What encryption costs in bytes, seconds and accuracy."""
