"""What privacy costs in accuracy, and which settings a comparison needs."""
