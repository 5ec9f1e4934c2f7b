"""Attacks on what clients exchange to train generators of missing neighbours."""
