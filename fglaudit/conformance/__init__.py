"""Does a protocol keep the rules? Asked by ``fglaudit check``, and of every protocol of a user that a run trains."""
