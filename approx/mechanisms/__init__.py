"""Efficient attention by name: methods that give softmax rows, or rows in their stead."""
