"""FedGT: attacks, its tables beside ours, and what its authors' code does."""
