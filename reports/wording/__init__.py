"""What observers, metrics, attacks, defenses and guarantees are called in reports."""
