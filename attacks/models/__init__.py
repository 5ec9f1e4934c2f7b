"""Attacks on models and on what they predict: membership in training, links."""
