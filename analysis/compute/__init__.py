"""Execution with the same bits (serial, in processes, on Dask), and seeds."""
