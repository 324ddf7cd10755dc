"""Low-rank estimates, and those that see the whole matrix."""
