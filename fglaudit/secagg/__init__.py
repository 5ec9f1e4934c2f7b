"""Secure aggregation after Bonawitz et al. (CCS 2017): one file per part of it."""
