"""FedGAT: graph attention whose first layer is computed from masked neighbour features."""
