"""Independent draws of a method, with the seeds that a sweep gives them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.compute.seeds import seed_sequence
from analysis.inputs import Head
from approx import Method


def trials(
    method: Method, inputs: Head, count: int, seed: int
) -> Iterator[tuple[int, np.random.SeedSequence]]:
    """Yield (trial, seed) of every draw; a deterministic method has one trial, called −1."""
    content, label = inputs.digest(), str(method)
    for trial in range(count) if method.uses_rng else (-1,):
        yield trial, seed_sequence(seed, content, label, trial)
