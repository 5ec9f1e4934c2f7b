"""FED-PUB: models averaged by what they make of a random graph, with masks of each client's own."""
