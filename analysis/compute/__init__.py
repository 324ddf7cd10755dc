"""Where work runs, with the same bits: serial, in processes, on Dask; and its seeds."""
