"""Spectra and ranks of exact and of estimates, of states, of attention weights, of positions."""
