"""GFL-APPNP: attacks, and its authors' own draws."""
