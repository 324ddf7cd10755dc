"""The Numba options, the vectorised exp and log, threads, and products on a pattern."""
