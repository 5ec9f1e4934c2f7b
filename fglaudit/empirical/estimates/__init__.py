"""Epsilon and trade-off curves from scores of independent runs: one method per file, each with its confidence."""
