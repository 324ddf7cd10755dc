"""What is known before anything runs: operations, budgets, candidates, shared reads."""
