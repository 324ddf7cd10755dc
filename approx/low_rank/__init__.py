"""Low-rank estimates, and the oracles that see the whole matrix."""
