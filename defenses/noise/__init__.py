"""Noise: clipping, rounding and randomisation of messages and feature rows."""
