"""A mechanism that stands alone, without a protocol: a function of a user's own and its promise."""
