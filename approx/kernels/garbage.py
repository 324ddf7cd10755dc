"""A context in which Python's garbage collection is off."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Switch Python's garbage collection off, for code that allocates much and keeps it.

    Importing Numba and compiling are such code, and each collection visits all objects.
    """
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()
