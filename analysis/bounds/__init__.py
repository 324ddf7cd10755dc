"""Proved bounds: lower bounds of classes, certificates, residuals, concentration, theory."""
