"""Attacks on what clients' models make of a public random graph."""
