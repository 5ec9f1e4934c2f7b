"""Rows of which nobody asks which node they belong to."""
