"""Baselines of the papers: centralized, local-only and plainly averaged models."""
