"""Random sketches of polynomials, and of exp as a random polynomial."""
