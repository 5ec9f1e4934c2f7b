"""What trained models tell of nodes and edges."""
