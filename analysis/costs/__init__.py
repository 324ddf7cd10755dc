"""Costs known before any run: operations, budgets, candidates."""
