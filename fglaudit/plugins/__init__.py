"""Plugins in files of their own: modules made of them, and what a class says of itself without being imported."""
