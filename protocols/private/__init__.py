"""Protocols made for privacy: what crosses between clients is public, or random before it leaves."""
