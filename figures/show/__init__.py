"""Tables and maps of advice, targets, theory, plans, models, claims and methods."""
