"""Training: differential privacy of gradients and of whole clients."""
