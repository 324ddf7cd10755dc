"""Low rank block by block off the diagonal, exact near it."""
