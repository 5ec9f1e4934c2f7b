"""Batched graph networks and their numerical parts: K clients' models in one tensor, no messages."""
