"""Shared settings of all tests."""

from __future__ import annotations

import torch

# Tests are many small operations: threads would wait for each other, above all where several tests run side by side.
torch.set_num_threads(1)
