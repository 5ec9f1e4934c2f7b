"""Attacks on FedGAT: ``MaskedMatrices`` and ``MaskedVectors`` of neighbourhoods, ``RawFeatures``, ``Embeddings``."""
