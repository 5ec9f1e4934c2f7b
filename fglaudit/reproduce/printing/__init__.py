"""A reproduced table in the formats that are written."""
