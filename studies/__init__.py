"""Slower studies of the finished work; nothing imports them."""
