"""Predictors of the damage of a head: heads are replaced one at a time.

`singles` measures the damage KL(model ‖ replaced) with one head computed by a method and all other
heads exact. It also measures possible predictors: errors of the matrix, of the output, of the
output after the layer's projection, and the output error weighted by the loss gradient.
`correlations` compares how each predictor and the damage rank the heads.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from tqdm import tqdm

from analysis.compute.seeds import seed_sequence
from analysis.inputs import Head
from analysis.models.language_model import HeadIndex
from analysis.models.replacement import Estimated, Passage
from approx import Approximation, Method, checks
from approx.checks import Array
from approx.estimate import exact
from approx.method import Rng

SAMPLES = 4  # texts that the model itself could have written, for Fisher's information
PREDICTORS = (
    "attention_tv",
    "attention_relative_frobenius",
    "output_relative_error",
    "output_error",
    "projected_error",
    "projected_relative_error",
    "fisher",
)
HEAD = ["layer", "head"]
RESAMPLES = 1000  # of the bootstrap
ENDS = (0.025, 0.975)  # quantiles of the bootstrap interval


def singles(
    passage: Passage,
    methods: Sequence[Method],
    *,
    heads: Sequence[HeadIndex] | None = None,
    samples: int = SAMPLES,
    progress: bool = False,
) -> Iterator[pd.DataFrame]:
    """Yield the damage of each head by each method, and its predictors, layer by layer.

    Parameters
    ----------
    passage : Passage
    methods : sequence of Method
        Sized methods.
    heads : sequence of (layer, head), optional
        By default all.
    samples : int
        The number of backward passes for ``fisher``, ≥ 1.
    progress : bool
        Whether to show a bar on stderr.

    Yields
    ------
    DataFrame
        One row per head and method: ``layer``, ``head``, ``method``; ``kl``, the mean of
        KL(model ‖ replaced) over positions with only this head replaced, and ``kl_stderr``; and
        `PREDICTORS`, all at the inputs of the head in the unmodified model:

        - ``attention_tv``, ``attention_relative_frobenius``, ``output_relative_error`` of
          `analysis.errors.metrics.compare`
        - ``output_error``: ‖Δ‖_F/√n, where Δ is the error of the head's output, a row per position
        - ``projected_error``: ‖Δ W_O‖_F/√n, where W_O is the head's output projection
        - ``projected_relative_error``: ‖Δ W_O‖_F/‖state‖_F, with the state after the layer
        - ``fisher``: ½ mean over samples of Σ_i (g_i·Δ_i)²/positions

    Notes
    -----
    ``fisher``: for targets y_t drawn from the model itself, g = ∂ Σ_t −log p(y_t)/∂ output has mean
    0 and, to second order in Δ, E[(Σ_i g_i·Δ_i)²]/2 = Σ_t KL_t. The formula above omits products of
    different positions. This has far less variance, and is exact if these products have mean 0. It
    is an estimate, not a bound.
    Cost: one pass from the head's layer on per head and method, and one backward pass per sample.
    """
    for method in methods:
        checks.instance("every method", method, Method, "a method")
    checks.integer("samples", samples, least=1)
    model = passage.model
    every = [(i, j) for i in range(model.layers) for j in range(model.heads)]
    chosen = sorted(every if heads is None else set(heads))
    passage.check(dict.fromkeys(chosen, methods[0]))
    drawn = gradients(passage, samples)
    bar = tqdm(total=len(chosen) * len(methods), disable=not progress, desc="damage", leave=False)
    for layer in sorted({i for i, _ in chosen}):
        x, weights = passage.inputs(layer), model.projection(layer)
        behind = float(passage.states[layer + 1].double().norm())
        rows = []
        for head in (j for i, j in chosen if i == layer):
            mine = [g[layer][head] for g in drawn]
            for method in methods:
                kl = Estimated.from_positions(passage.replace({(layer, head): method}).kl)
                draws = passage.draws(layer, head)
                known = predictors(x.at(layer, head), method, draws, weights[head], mine)
                known["projected_relative_error"] = (
                    known["projected_error"] * math.sqrt(x.n) / behind
                )
                known["fisher"] /= len(passage.positions)
                place = {"layer": layer, "head": head, "method": str(method)}
                rows.append(place | {"kl": kl.mean, "kl_stderr": kl.stderr} | known)
                bar.update()
        yield pd.DataFrame(rows)
    bar.close()


Gradients = list[list[Array]]  # a sample, a layer: (heads, n, c)


def gradients(passage: Passage, samples: int = SAMPLES) -> Gradients:
    """Return loss gradients with respect to heads' outputs, for texts drawn from the model."""
    rng = np.random.default_rng(seed_sequence(passage.seed, "fisher"))
    return passage.gradients_of([passage.sampled(rng) for _ in range(samples)])


def predictors(
    x: Head, method: Method, rng: Rng, projection: Array, gradients: Sequence[Array]
) -> dict[str, float]:
    """Return the predictors of one head's damage, from its inputs and from gradients.

    Parameters
    ----------
    x : Head
        The head, with V.
    method : Method
    rng : int, Generator, ...
    projection : (c, width)
        W_O of this head.
    gradients : sequence of (n, c)
        Gradients of the summed loss with respect to the head's output.

    Returns
    -------
    dict
        `PREDICTORS` without ``projected_relative_error``; ``fisher`` is a sum over positions here,
        not a mean.

    Raises
    ------
    ValueError
        There is no V.
    """
    estimate = x.approximate(method, rng=rng)
    errors = x.compare(estimate)
    change = moved(x, estimate)
    size = math.sqrt(len(change))
    return {name: errors[name] for name in PREDICTORS[:3]} | {
        "output_error": float(np.linalg.norm(change)) / size,
        "projected_error": float(np.linalg.norm(change @ projection)) / size,
        "fisher": fisher(change, gradients),
    }


def moved(x: Head, estimate: Approximation, exactly: Array | None = None) -> Array:
    """Return Δ, a head's output by an estimate minus its exact output, (n, c) float64.

    `exactly`, the exact output, saves time for many estimates.

    Raises
    ------
    ValueError
        There is no V.
    """
    if x.V is None:
        raise ValueError("the errors of outputs need V: give inputs that have it")
    if exactly is None:
        exactly = exact.attention(x.Q, x.K, x.V, mask=x.mask, sink=x.sink)
    return np.asarray(estimate.attend(x.V) - exactly, np.float64)


def fisher(change: Array, gradients: Sequence[Array] | Array) -> float:
    """Return ½ mean over gradients g of Σ_i (g_i·Δ_i)², for Δ and every g of shape (n, c).

    A float64 array of gradients is fastest.

    Examples
    --------
    >>> fisher(np.array([[1.0, 2.0]]), [np.array([[3.0, 0.0]]), np.array([[0.0, 1.0]])])
    3.25
    """
    products = np.einsum("sic,ic->si", np.asarray(gradients), change)
    return float(np.square(products).sum(axis=1).mean()) / 2


def correlations(table: pd.DataFrame, *, each: bool = True, seed: int = 0) -> pd.DataFrame:
    """Return the rank correlation of each predictor with the damage, and its interval.

    Parameters
    ----------
    table : DataFrame
        The concatenated results of `singles` for two or more methods.
    each : bool
        Whether to add rows for each method to the rows for "all".
    seed : int

    Returns
    -------
    DataFrame
        One row per (method, predictor): ``heads``; ``spearman``; ``low`` and ``high``, its 95 %
        bootstrap interval. The bootstrap draws heads, each with all its methods, because the
        methods of a head are dependent.
    """
    rng = np.random.default_rng(seed)
    names = ["all", *(table.method.unique() if each else ())]
    rows = []
    for group in names:
        part = table if group == "all" else table[table.method == group]
        places = [np.asarray(index) for index in part.groupby(HEAD).indices.values()]
        drawn = [
            np.concatenate([places[i] for i in rng.integers(len(places), size=len(places))])
            for _ in range(RESAMPLES)
        ]
        most = min(map(len, drawn))  # heads have equally many rows, unless some are missing
        again = np.array([rows_[:most] for rows_ in drawn])
        kl = part.kl.to_numpy()
        for name in PREDICTORS:
            x = part[name].to_numpy()
            low, high = np.quantile(spearman(x[again], kl[again]), ENDS)
            place = {"method": group, "predictor": name, "heads": len(places)}
            value = float(spearman(x, kl))
            rows.append(place | {"spearman": value, "low": float(low), "high": float(high)})
    return pd.DataFrame(rows)


def spearman(x: Array, y: Array) -> Array:
    """Return Spearman's rank correlation along the last axis: Pearson's of the ranks.

    Equal values share their rank.

    Examples
    --------
    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 9.0, 5.0])).round(12)
    np.float64(0.5)
    """
    a, b = (rankdata(z, axis=-1) - (z.shape[-1] + 1) / 2 for z in (x, y))
    return np.asarray((a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))[()]
