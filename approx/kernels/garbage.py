"""Python's search for garbage, and how to do without it for a while."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Do without Python's search for cycles, for something that allocates much and keeps it.

    Importing Numba and compiling do, and every search goes through all objects of the process.
    """
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()
