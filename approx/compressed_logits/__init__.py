"""Logits compressed before exp: fewer numbers, or fewer bits, per key."""
