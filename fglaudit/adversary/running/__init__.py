"""How attacks run: their random numbers, a view of their own, and work that several of them share."""
