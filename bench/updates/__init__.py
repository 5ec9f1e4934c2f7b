"""What updates of models tell the server."""
