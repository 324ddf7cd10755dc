"""The coursework report: one Markdown source, HTML and PDF."""
