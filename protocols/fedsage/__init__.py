"""FedSage+: neighbour generators trained across clients, and GraphSAGE on the mended graphs."""
