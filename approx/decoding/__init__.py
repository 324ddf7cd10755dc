"""What a causal model keeps of its keys to decode: caches, to which tokens are added one by one."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # a checker would let every name pass
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__)
