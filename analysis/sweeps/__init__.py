"""Sweeps: methods × inputs × temperatures × trials → one tidy table, stored and resumable."""
