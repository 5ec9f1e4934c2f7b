"""Files: what fglaudit writes, what a user wrote, and how large that may be."""
