"""Attempts to refute what a defense states of its noise, one per file; :mod:`.attempts` makes them all."""
