"""Speed and memory, medians of several runs: ``python -m bench.speed``. Nothing here asserts a time."""
