"""Broken defenses and honest ones, planted to see what the audits say of them."""
