"""FedGT: graph transformers with global nodes, averaged among similar clients."""
