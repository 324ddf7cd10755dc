"""Numbers about approximations of exp(q·k): errors, ranks, moments, sweeps."""
