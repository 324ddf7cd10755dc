"""The kind of a head of a language model, by the keys that get most of its attention."""

import numpy as np
from numpy.typing import ArrayLike

from approx import checks

RECENT = 31  # with key 0, the 32 keys of the smallest common budget
FIRST = 64  # the first query that counts: for earlier queries, most keys are recent
KINDS = ("sink", "local", "retrieval", "broad", "mixed")


def shares(weights: ArrayLike, token_ids: ArrayLike, *, first: int = FIRST) -> dict[str, float]:
    """Return the shares of attention by position of the key, as means over queries.

    Parameters
    ----------
    weights : (n, n)
        Rows of causal softmax.
    token_ids : (n,)
        Integer token numbers.
    first : int
        The first query that counts.

    Returns
    -------
    dict
        - ``sink``: on key 0
        - ``recent``: on the last 31 keys, including the query's own
        - ``far``: on the keys between; the three add up to 1
        - ``effective_keys``: exp of the row's entropy; so many equal weights have this entropy
        - ``induction``: on the keys just after an earlier occurrence of the query's token; queries
          with a new token do not count, and it is 0 if all tokens are new

    Examples
    --------
    >>> uniform = np.tri(128) / np.arange(1, 129)[:, None]
    >>> found = shares(uniform, np.arange(128) % 32)
    >>> round(found["effective_keys"], 9), round(found["sink"] * 31 / found["recent"], 9)
    (96.5, 1.0)
    """
    p = checks.array("weights", weights, ndim=2)
    n = checks.integer("n", len(p), least=RECENT + 2)
    first = checks.integer("first", first, least=RECENT, most=n - 1)
    ids = np.asarray(token_ids)
    if p.shape != (n, n) or ids.shape != (n,) or ids.dtype.kind not in "iu":
        raise ValueError(
            f"weights must be (n, n) and token_ids n integers, got {p.shape}, {ids.shape}"
        )
    i, j = np.arange(first, n)[:, None], np.arange(n)
    p = p[first:]
    recent = float(np.where(j > i - RECENT, p, 0.0).sum(axis=1).mean())
    sink = float(p[:, 0].mean())
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    before = np.concatenate([[-1], ids[:-1]])  # the token before each key; −1 for the first
    after = (before == ids[first:, None]) & (j > 0) & (j <= i)
    met = after.any(axis=1)
    copied = np.where(after, p, 0.0).sum(axis=1)[met]
    return {
        "sink": sink,
        "recent": recent,
        "far": float(p.sum(axis=1).mean()) - sink - recent,
        "effective_keys": float(np.exp(-(p * logs).sum(axis=1)).mean()),
        "induction": float(copied.mean()) if met.any() else 0.0,
    }


def kind(shares: dict[str, float], *, keys: int = RECENT + 1) -> str:
    """Return the kind of a head, one of `KINDS`, by the share that is above one half.

    A head with far attention is ``"retrieval"`` if the effective keys are at most ``keys``,
    otherwise ``"broad"``. A head without a majority is ``"mixed"``.

    Examples
    --------
    >>> kind({"sink": 0.1, "recent": 0.2, "far": 0.7, "effective_keys": 9.0})
    'retrieval'
    """
    if shares["sink"] > 0.5:
        return "sink"
    if shares["recent"] > 0.5:
        return "local"
    if shares["far"] > 0.5:
        return "retrieval" if shares["effective_keys"] <= keys else "broad"
    return "mixed"
