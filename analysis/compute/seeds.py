"""Seeds that are made from what a piece of work is, not from when or where it runs."""

import hashlib

import numpy as np


def seed_sequence(root: int, *what: str | int) -> np.random.SeedSequence:
    """Return the seed of a piece of work, a hash of what it is: independent of order and jobs."""
    key = hashlib.sha256(repr(what).encode()).digest()[:16]
    return np.random.SeedSequence(root, spawn_key=tuple(np.frombuffer(key, np.uint32).tolist()))
