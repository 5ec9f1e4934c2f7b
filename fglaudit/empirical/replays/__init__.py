"""Hooks of a defense that add noise, run again and again on inputs of the auditor's choice."""
