"""Linear equations that follow from sums, their errors and weights, and what they determine."""
