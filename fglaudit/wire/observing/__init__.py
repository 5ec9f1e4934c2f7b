"""Observed, not believed (rule 11): what the hooks of a defense do, beside what it states."""
