"""Attacks on GFL-APPNP: ``Jacobians``, ``HiddenRepresentations``, their propagated sums, and ``ModelUpdate``."""
