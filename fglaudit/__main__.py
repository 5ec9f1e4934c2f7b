"""``python -m fglaudit``."""

from fglaudit.cli import main

if __name__ == "__main__":
    main()
