"""Costs known before any run: budgets, candidates, break-even lengths."""
