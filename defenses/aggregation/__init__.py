"""Aggregation: the server reads sums of messages only."""
