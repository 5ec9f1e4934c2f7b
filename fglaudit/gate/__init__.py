"""``fglaudit gate``: does a run meet a policy? Whatever is not shown counts as broken."""
