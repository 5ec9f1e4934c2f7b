"""Attacks on what clients exchange about boundary nodes in every step: ``HiddenStates`` and ``HiddenGradients``."""
