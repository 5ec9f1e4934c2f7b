"""Suites: from YAML to checked cells."""
