"""``fglaudit import``: a graph of a user's own, from the files that people have, to the ``.npz`` that suites name."""
