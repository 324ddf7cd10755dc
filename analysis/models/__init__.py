"""Language models: captured, with replaced heads, and plans for them."""
