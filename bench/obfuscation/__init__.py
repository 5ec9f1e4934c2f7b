"""Obfuscations that are no protection, against learned inversion."""
