"""The caches of the heads of one layer for one text, and attention from them.

A text is read in one of two settings:

- ``rows``: every row of attention is computed by the method, those of the prompt, too.
- ``prompt``: the rows of the prompt are exact, and what the method keeps of its keys and values is
  made from it at its end, as systems do. Rows after it are computed token by token.

After a prompt, the keys of new tokens are treated as by the systems that the methods come from:

- Methods that evict as keys arrive (``sliding_window``, ``sink_window``, ``columns`` by ``h2o`` or
  with a ``block``) go on: with each token or block they evict. H2O begins with the sums of the
  prompt's exact attention; a score of last queries begins with those of the prompt.
- ``columns`` without a block (SnapKV, norms of keys, …) choose once, at the end of the prompt, as a
  press of kvpress does. All later keys stay, exact, so that what is read grows with the text.
- Codes (``quantised``, ``turboquant``, ``rounded_values``, …) go on: the prompt is rounded by
  itself, its last keys stay exact if the method says so, and later keys are rounded as they leave
  the last ones, as in KIVI.
- Selection (Quest, SparQ), hierarchies and states go on: each new key is added to all keys, to its
  block or to the sums.
- A method that reads later tokens in the setting ``rows`` does so here, and stays a reference.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from analysis.costs.budget import LENGTHS, MEMORY, cost, held
from analysis.models.attention_hook import looking_back
from analysis.runs.threads import in_threads
from approx import Method, checks, parse
from approx.checks import Array
from approx.decoding.cache import Cache, storage
from approx.decoding.keys import AllKeys
from approx.method.prices import Shape

EXACT = parse("exact()")
SETTINGS = "rows", "prompt"


def prompt_length(setting: str, prompt_tokens: int | None, tokens: int, default: int) -> int:
    """Return the number of first tokens whose rows are exact: 0 in the setting ``rows``.

    Raises
    ------
    ValueError
        There is no such setting, it has no prompt, or the prompt is longer than the text.

    Examples
    --------
    >>> prompt_length("rows", None, 90, 45), prompt_length("prompt", None, 90, 45)
    (0, 45)
    """
    checks.one_of("setting", setting, SETTINGS)
    if setting == "rows":
        if prompt_tokens is not None:
            raise ValueError("prompt_tokens need setting='prompt'")
        return 0
    chosen = default if prompt_tokens is None else prompt_tokens
    return checks.integer("prompt_tokens", chosen, least=1, most=tokens)


def in_groups(methods: Sequence[Method], shape: Shape) -> list[tuple[Method, Shape]]:
    """Return each method of each group of a layer's heads, with the shape of its price.

    The heads of a group that a method computes share the keys, and have one price.

    Examples
    --------
    >>> from approx.method.prices import price_at
    >>> four, six = (parse(f"sink_window(k={k})") for k in (4, 6))
    >>> layer = in_groups([four, four, four, six], Shape(9, 9, 8, 8, group=2))
    >>> [(method.k, one.group, price_at(method, one).reads) for method, one in layer]
    [(4, 2, 64.0), (4, 1, 64.0), (6, 1, 96.0)]
    """
    found = []
    for first in range(0, len(methods), shape.group):
        mine = methods[first : first + shape.group]
        counts, named = Counter(map(str, mine)), {str(method): method for method in mine}
        for spec, count in counts.items():
            found.append((named[spec], dataclasses.replace(shape, group=count)))
    return found


def after_prompt(method: Method, prompt: int) -> Method:
    """Return the method as it goes on after a prompt; unchanged without one.

    The rows of the prompt are exact in the result only where a later row depends on them.

    Examples
    --------
    >>> str(after_prompt(parse("columns(k=8, by='snapkv')"), 45))
    "columns(k=8, by='snapkv', prompt=45)"
    """
    if not prompt:
        return method
    fields = {field.name for field in dataclasses.fields(method)}  # type: ignore[arg-type]
    given: dict[str, Any] = {"prompt": prompt} if "prompt" in fields else {}
    given |= {name: after_prompt(part, prompt) for name, part in method.parts.items()}
    return dataclasses.replace(method, **given) if given else method  # type: ignore[type-var]


def footprint(groups: Iterable[tuple[Method, Shape]], prompt: int = 0) -> dict[str, float]:
    """Return the bytes that groups of heads read and hold together, at 16 bits a number.

    Returns
    -------
    dict
        ``bytes_read`` and ``bytes`` after the tokens of the shape; and, by the names in `MEMORY`,
        the bytes held after more tokens, with a prompt of the same share. NaN: not known.
    """
    found: dict[str, float] = dict.fromkeys(("bytes_read", "bytes", *MEMORY), 0.0)
    for (method, shape), count in Counter(groups).items():
        now = after_prompt(method, prompt)
        for name in ("bytes_read", "bytes"):
            found[name] += count * cost(now, shape, name)
        for name, tokens in zip(MEMORY, LENGTHS):
            later = after_prompt(method, tokens * prompt // shape.l)
            found[name] += count * held(later, shape, tokens)
    return found


class HeadCaches:
    """The caches of the heads of a layer for one text.

    Heads of a group have the same keys and draws. Heads of a group with the same method share one
    cache if it does not depend on queries. Methods that choose among all keys share one store of
    keys in each group. Other numbers that are the same in several of its caches count once.

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
        Maps a group of heads to the seed of its methods' draws: heads that share keys share codes
        and frequencies, too.
    dtype : dtype
        The dtype of keys and values.
    jobs : int
        Threads that share the heads of a prompt.
    sinks : (heads,), optional
        The logit of each head's attention sink, which no cache holds.
    prompt : int
        The number of first tokens whose rows are exact; 0 in the setting ``rows``.

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
        prompt: int = 0,
    ) -> None:
        methods, self.exact_rows = [after_prompt(method, prompt) for method in methods], prompt
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
                cache = method.cache(d=d, c=c, rng=seed(of), window=window, dtype=dtype)
                if isinstance(cache, AllKeys):
                    cache.share(stores.setdefault(of, cache))
                if not cache.asks:
                    known[of, str(method)] = cache
            self.caches.append(cache)
        self.owners = {id(cache): head for head, cache in reversed([*enumerate(self.caches)])}

    def prompt(self, q: Array, k: Array, v: Array, exactly: Array) -> Array:
        """Return the outputs of the prompt's tokens, and fill the caches for decoding.

        Logits are q·k for q (heads, n, d), the last n of l positions, and k (kv_heads, l, d).
        `exactly` has the outputs of exact attention (heads, n, c), for heads that keep it.
        """
        if self.exact_rows:
            return self._after_prompt(q, k, v, exactly)
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
            given = {"rng": self.seed(of), "sink": self.sinks[head], "V": v[of]}
            return method.approximate(q[head], k[of], mask=mask, **given).attend(v[of])

        for head in self.owners.values():
            if not self.caches[head].asks:
                self.caches[head].extend(k[head // self.group], v[head // self.group])
        return np.array(in_threads(one, range(len(q)), self.jobs))

    def _after_prompt(self, q: Array, k: Array, v: Array, exactly: Array) -> Array:
        """Return exact outputs of the prompt, and those of later tokens from the caches."""
        end = self.exact_rows

        def fill(head: int) -> None:
            of = head // self.group
            self.caches[head].fill(q[head, :end], k[of, :end], v[of, :end])

        asking = [head for head in self.owners.values() if self.caches[head].asks]
        for head in self.owners.values():
            if head not in asking:  # such caches may share a store of keys
                fill(head)
        in_threads(fill, asking, self.jobs)
        rows = [self.token(q[:, i], k[:, i], v[:, i]) for i in range(end, q.shape[1])]
        return np.concatenate([exactly[:, :end], *(row[:, None] for row in rows)], axis=1)

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
    def storage(self) -> tuple[int, int]:
        """The numbers that all heads store together, and the bytes of codes."""
        numbers, code_bytes = storage(self.caches)
        known: dict[tuple[int, str], Cache] = {}
        for head in self.owners.values():
            cache = self.caches[head]
            if known.setdefault((head // self.group, str(self.methods[head])), cache) is not cache:
                numbers -= cache.common
        return numbers, code_bytes
