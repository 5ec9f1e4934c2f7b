"""Feature rows of nodes: the question, guesses beside it, and the figures of rebuilt rows."""
