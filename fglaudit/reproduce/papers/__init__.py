"""From a row of a paper's table to ours, a module per paper and per kind of table."""
