"""Errors of an estimate: metrics, the row sums that define them, and the spectral norm."""
