"""``python -m fglaudit``, and the command ``fglaudit``."""

from __future__ import annotations

from fglaudit.interruption import end_at_once


def main() -> None:
    """Entry point of the command; a signal ends it without a traceback from its first line on."""
    end_at_once()
    from fglaudit.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
