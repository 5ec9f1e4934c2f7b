"""What a run will take, before it is run: seconds, memory and disk of a cell."""
