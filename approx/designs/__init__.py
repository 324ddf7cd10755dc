"""Sampling designs: which keys of a row are drawn, and with which weights."""
