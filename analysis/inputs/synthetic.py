"""Synthetic queries, keys and values: Gaussian, on a sphere, or in clusters."""

import math

import numpy as np

from analysis.inputs.heads import Head
from approx import checks
from approx.estimate import memory
from approx.method import Rng, generator


def gaussian(n: int, d: int, *, rng: Rng) -> Head:
    """Return n independent q, k and v ~ N(0, I_d); the logits have standard deviation 1/t."""
    shape, g = _shape(n, d), generator(rng)
    q, k, v = (g.standard_normal(shape) for _ in range(3))
    return Head("gaussian", q, k, v)


def sphere(n: int, d: int, *, rng: Rng) -> Head:
    """Return q and k uniform on the sphere of radius √d, and v ~ N(0, I_d)."""
    x = gaussian(n, d, rng=rng)
    q, k = (y * (math.sqrt(d) / np.linalg.norm(y, axis=1, keepdims=True)) for y in (x.q, x.k))
    return Head("sphere", q, k, x.v)


def clustered(
    n: int,
    d: int,
    clusters: int | None = None,
    spread: float = 0.3,
    shared: bool = False,
    *,
    rng: Rng,
) -> Head:
    """Return q, k = c + spread·N(0, I_d) around common centres c ~ N(0, I_d).

    Parameters
    ----------
    n, d : int
        The number of tokens and their width.
    clusters : int, optional
        The number of centres, by default n/8. Consecutive points belong to different centres.
    spread : float
        The standard deviation within a cluster.
    shared : bool
        Whether Q = K, as in the analysis of Scatterbrain.
    rng : None, int, SeedSequence or Generator
    """
    shape, g = _shape(n, d), generator(rng)
    count = checks.integer(
        "clusters", max(1, n // 8) if clusters is None else clusters, least=1, most=n
    )
    width = _width("spread", spread)
    shared = checks.flag("shared", shared)
    centres = g.standard_normal((count, d))[np.arange(n) % count]
    q = centres + width * g.standard_normal(shape)
    k = q if shared else centres + width * g.standard_normal(shape)
    return Head("clustered Q=K" if shared else "clustered", q, k, g.standard_normal(shape))


def generative(
    n: int, d: int, delta: float, size: int = 2, *, shared: bool = True, rng: Rng
) -> Head:
    """Return the clusters of nearly unit vectors for which Scatterbrain's regimes are proved.

    Centres are c ~ N(0, I_d/d), and members are c + r with r ~ N(0, Δ² I_d/d). The scaling is 1, so
    logits are q·k/t, and β in the theory, exp(β·q·k), is 1/t: ``at_temperature(1 / beta)``. Norms
    are near 1; q·k is near 1 within a cluster and near 0 ± 1/√d between clusters.

    Parameters
    ----------
    n, d : int
        The number of tokens and their width.
    delta : float
        Δ, the distance of a member from its centre.
    size : int
        Members per cluster; if it does not divide n, some clusters have one less. Consecutive
        points belong to different clusters.
    shared : bool
        Whether Q = K, as in the theory; otherwise keys are other members of the same clusters.
    rng : None, int, SeedSequence or Generator

    Notes
    -----
    Entries within clusters and entries between clusters have equal row sums near β = log(n/size),
    and equal sums of squares near half of this β: there neither sparse nor low-rank alone suffices.
    Q = K adds a diagonal of e^{β(1 + Δ²)}, which is sparse at every β.

    References
    ----------
    .. [1] B. Chen, T. Dao, E. Winsor, Z. Song, A. Rudra, C. Ré, "Scatterbrain: Unifying Sparse and
       Low-rank Attention Approximation", NeurIPS 2021, Process 1 and Theorem 1.

    Examples
    --------
    >>> x = generative(4, 64, 0.0, rng=0).at_temperature(1 / 3)  # beta = 3
    >>> bool(np.allclose(x.Q @ x.K.T, 3 * x.q @ x.k.T))
    True
    """
    shape, g = _shape(n, d), generator(rng)
    count = -(-n // checks.integer("size", size, least=1, most=n))
    width = _width("delta", delta)
    shared = checks.flag("shared", shared)
    unit = 1 / math.sqrt(d)
    centres = (unit * g.standard_normal((count, d)))[np.arange(n) % count]
    q = centres + width * unit * g.standard_normal(shape)
    k = q if shared else centres + width * unit * g.standard_normal(shape)
    name = "generative Q=K" if shared else "generative"
    return Head(name, q, k, g.standard_normal(shape), scaling=1.0)


def _shape(n: int, d: int) -> tuple[int, int]:
    n, d = checks.integer("n", n, least=1), checks.integer("d", d, least=1)
    memory.reserve(6 * 8 * n * d, f"{n} × {d} queries, keys and values", "n or d")
    return n, d


def _width(name: str, value: float) -> float:
    width = checks.number(name, value, "finite and >= 0")
    return width if width == 0 else checks.positive(name, value, most=1e100)
