"""Where cells are computed: worker processes on this machine, or Ray."""
