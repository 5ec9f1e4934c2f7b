"""``fglaudit reproduce``: the tables of the five papers, ours beside theirs."""
