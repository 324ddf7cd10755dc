"""The computing half of figures that are experiments of their own: compute(profile) → a table."""
