"""Ranks and spectra of exact attention, of estimates, of states and of positions."""
