"""Speed and memory, medians of several runs: ``python -m tests.benchmarks``. Nothing here asserts a time."""
