"""Long measurements: resumable tables against published figures, and scale. ``python -m bench`` lists them."""

import os

# Before torch is loaded: threads that wait give their core to other programs, as in the command (fglaudit.__main__).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
