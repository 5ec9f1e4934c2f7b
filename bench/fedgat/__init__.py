"""FedGAT: attacks, defenses, memory, and the paper's theorems."""
