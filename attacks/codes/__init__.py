"""Attacks on propagated rows and on reports of single nodes."""
