"""Homomorphic encryption with SEAL, through TenSEAL's bindings of it (the extra ``he``)."""
