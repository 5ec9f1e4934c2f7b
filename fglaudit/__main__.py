"""``python -m fglaudit``, and the command ``fglaudit``."""

from __future__ import annotations

import os

from fglaudit.interruption import end_at_once


def main() -> None:
    """Entry point of the command; a signal ends it without a traceback from its first line on."""
    end_at_once()
    # OpenMP's threads wait for one another by spinning: where another program has a core, most of the time goes there.
    # Asleep they give the core back, and the same numbers come out. It is read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from fglaudit.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
