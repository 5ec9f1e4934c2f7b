"""The folder of a run: what is stored, how a run goes on, and how damage is noticed."""
