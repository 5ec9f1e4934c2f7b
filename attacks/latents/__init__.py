"""Attacks on nFedGNN and CNFGNN: users' ``Latents``, the server's ``LatentGradients``, weights in ``ModelUpdate``."""
