"""Polynomials of q·k: elementwise, or as compact monomial features."""
