"""Figures, the report and the command line."""
