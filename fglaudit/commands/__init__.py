"""The commands of ``fglaudit``, one per file; :mod:`fglaudit.cli` puts them together."""
