"""Shared settings of all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

# Tests share helper modules that lie beside them; worker processes inherit the path and find them too.
sys.path.insert(0, str(Path(__file__).parent))

# Tests are many small operations: threads would wait for each other, above all where several tests run side by side.
torch.set_num_threads(1)
