"""Markdown into HTML and PDF, pages of figures, and what a user edited."""
