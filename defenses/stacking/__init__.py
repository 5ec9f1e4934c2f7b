"""Stacking: which defenses go together, what bounds they leave to later ones, and what they promise together."""
