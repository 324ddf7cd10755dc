"""Slow studies of the finished package; nothing imports them."""
