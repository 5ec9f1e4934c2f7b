"""GCNs whose clients exchange rows of boundary nodes in every step: all of them, or a sample."""
