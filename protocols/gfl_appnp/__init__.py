"""GFL-APPNP: every node is a client; hidden representations and Jacobians are shared."""
