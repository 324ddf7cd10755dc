"""Tables and maps of advice, targets, theory, plans, models and methods."""
