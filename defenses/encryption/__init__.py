"""Encryption: the server computes on ciphertexts."""
