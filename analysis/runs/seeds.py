"""Seeds from the description of a task, independent of when or where it runs."""

import hashlib

import numpy as np

from approx import checks


def seed_sequence(root: int, *what: str | int) -> np.random.SeedSequence:
    """Return the seed of a task: a hash of its description, independent of order and jobs."""
    checks.integer("seed", root, least=0)
    key = hashlib.sha256(repr(what).encode()).digest()[:16]
    return np.random.SeedSequence(root, spawn_key=tuple(np.frombuffer(key, np.uint32).tolist()))
