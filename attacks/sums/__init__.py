"""Attacks on ``NeighborSums`` of FedGCN: sums of neighbours' feature rows, partial (uploads) or total (downloads)."""
