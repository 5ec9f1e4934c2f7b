"""FedGCN: sums of neighbour features before training, then federated averaging."""
