"""Lower bounds on epsilon that are measured by attacking a mechanism, one method per file."""
