"""Decoding of binary entries: bounds on bits, small groups enumerated, belief propagation over the rest."""
