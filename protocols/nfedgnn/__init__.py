"""nFedGNN and CNFGNN: split learning with one node per user."""
