"""Execution: engines, worker processes, the folder of a run and its display."""
