"""The caches of the heads of one layer for one text, and attention from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from analysis.models.attention_hook import looking_back
from analysis.runs.threads import in_threads
from approx import Method, parse
from approx.checks import Array
from approx.decoding.cache import Cache, storage
from approx.decoding.keys import AllKeys

EXACT = parse("exact()")


class HeadCaches:
    """The caches of the heads of a layer for one text.

    Heads of a group have the same keys. Heads of a group with the same method share one cache if
    it depends on neither queries nor draws. Methods that choose among all keys share one store of
    keys in each group.

    Parameters
    ----------
    methods : sequence of Method, one for each head
    kv_heads : int
        The number of heads of keys; successive heads of queries share one.
    d, c : int
        Widths of keys and values.
    window : int
        The largest number of keys that a query sees; 0 for all.
    seed : callable
        Maps a head to the seed of its method's draws.
    dtype : dtype
        The dtype of keys and values.
    jobs : int
        Threads that share the heads of a prompt.
    sinks : (heads,), optional
        The logit of each head's attention sink, which no cache holds.

    Raises
    ------
    ValueError
        A method has no cache, or none under the window.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        kv_heads: int,
        d: int,
        c: int,
        *,
        window: int,
        seed: Callable[[int], np.random.SeedSequence],
        dtype: np.dtype,
        jobs: int = 1,
        sinks: Array | None = None,
    ) -> None:
        self.sinks = np.full(len(methods), -np.inf) if sinks is None else sinks
        for method in methods if sinks is not None else ():
            if method.space == "attention":
                raise ValueError(f"{method} has no place for the attention sinks of this model")
        self.methods, self.window, self.seed, self.jobs = methods, window, seed, jobs
        self.dtype = np.dtype(dtype)
        self.group = len(methods) // kv_heads
        self.caches: list[Cache] = []
        known: dict[tuple[int, str], Cache] = {}
        stores: dict[int, AllKeys] = {}
        for head, method in enumerate(methods):
            of = head // self.group
            cache = known.get((of, str(method)))
            if cache is None:
                cache = method.cache(d=d, c=c, rng=seed(head), window=window, dtype=dtype)
                if isinstance(cache, AllKeys):
                    cache.share(stores.setdefault(of, cache))
                if method.deterministic and not cache.asks:
                    known[of, str(method)] = cache
            self.caches.append(cache)
        self.owners = {id(cache): head for head, cache in reversed([*enumerate(self.caches)])}

    def prompt(self, q: Array, k: Array, v: Array, exactly: Array) -> Array:
        """Return the outputs of the prompt's tokens, and fill the caches for decoding.

        Logits are q·k for q (heads, n, d), the last n of l positions, and k (kv_heads, l, d).
        `exactly` has the outputs of exact attention (heads, n, c), for heads that keep it.
        """
        n, l = q.shape[1], k.shape[1]
        mask = looking_back(n, l, self.window)

        def one(head: int) -> Array:
            method, cache, of = self.methods[head], self.caches[head], head // self.group
            if cache.asks:  # the cache depends on the queries, one after the other
                cache.extend(k[of, : l - n], v[of, : l - n])
                rows = zip(q[head], k[of, l - n :], v[of, l - n :])
                return np.array([self._answer(cache, *row, self.sinks[head]) for row in rows])
            if method == EXACT:
                return np.asarray(exactly[head])
            given = {"rng": self.seed(head), "sink": self.sinks[head], "V": v[of]}
            return method.approximate(q[head], k[of], mask=mask, **given).attend(v[of])

        for head in self.owners.values():
            if not self.caches[head].asks:
                self.caches[head].extend(k[head // self.group], v[head // self.group])
        return np.array(in_threads(one, range(len(q)), self.jobs))

    @staticmethod
    def _answer(cache: Cache, q: Array, k: Array, v: Array, sink: float) -> Array:
        cache.append(k, v)
        return cache.attend(q, sink)

    def token(self, q: Array, k: Array, v: Array) -> Array:
        """Return the outputs of the next token, (heads, c), from q (heads, d), k and v."""
        for head in self.owners.values():
            self.caches[head].append(k[head // self.group], v[head // self.group])
        return np.array([cache.attend(*each) for cache, *each in zip(self.caches, q, self.sinks)])

    @property
    def reads(self) -> int:
        """The numbers that the queries of the next token read in all heads."""
        return sum(cache.reads for cache in self.caches)

    @property
    def storage(self) -> tuple[int, int]:
        """The numbers that all heads store together, and the bytes of codes."""
        return storage(self.caches)
