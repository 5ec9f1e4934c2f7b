"""Tables of what the shipped suites find undefended and under light defenses: ``python -m bench what-leaks``."""
