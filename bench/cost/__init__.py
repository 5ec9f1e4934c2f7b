"""Seconds and memory: of training, of long runs, on devices, and how far off the estimates are."""
