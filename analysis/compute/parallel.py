"""One function for many arguments, in processes."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import joblib
from tqdm import tqdm

from analysis.compute import executors
from approx.estimate import memory

T = TypeVar("T")
R = TypeVar("R")


def parallel(
    function: Callable[[T], R],
    arguments: Sequence[T],
    *,
    jobs: int = 1,
    progress: bool = False,
    label: str = "cells",
) -> list[R]:
    """Return function(argument) for each, in order; in processes of one thread each if jobs > 1."""
    memory.keep()
    results: Iterable[R] = executors.pool(max(1, min(jobs, len(arguments))), "generator")(
        joblib.delayed(function)(argument) for argument in arguments
    )
    return list(tqdm(results, total=len(arguments), disable=not progress, desc=label, leave=False))
