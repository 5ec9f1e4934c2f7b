"""Maps of rows and entries that are learned from pairs."""
