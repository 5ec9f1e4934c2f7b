"""Attacks on ``GlobalNodes`` of FedGT: cluster centroids that clients upload, some read with ``ModelUpdate``."""
