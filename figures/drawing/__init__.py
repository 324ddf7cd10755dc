"""One style, names beside curves, and what a page may say of curves."""
