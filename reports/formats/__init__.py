"""The files and the console text that are written, one format per file."""
