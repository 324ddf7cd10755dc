"""Every public entry point, by what it takes: for bad input, row by row, and for fuzzing."""

import math
import tempfile
import warnings

import numpy as np
import pandas as pd
from small import small

from analysis import inputs, moments
from analysis.advice import diagnose, pitfalls, target
from analysis.bounds import (
    certificates,
    lower_bounds,
    residuals,
    sampling_intervals,
    support_bounds,
)
from analysis.costs import budget, operations
from analysis.errors import metrics
from analysis.experiments import support_recall
from analysis.inputs import statistics
from analysis.ranks import modular, position_rank, rank
from analysis.ranks.attention_weights import Weights
from analysis.sweeps import crossovers, sweep
from approx import METHODS, Approximation, parse, projections
from approx.estimate import exact
from approx.low_rank import godec, robust_pca, stable_pca
from approx.polynomials import error_bounds, monomials
from approx.polynomials.remez import remez
from approx.supports.key_boxes import PageBoxes
from approx.textbook import attention, flash

SHAPE = (5, 4, 3)  # n, l, d
ALLOWED = (ValueError, TypeError, OSError, ArithmeticError, MemoryError, ImportError)


def points(dtype=np.float64, seed=0):
    """Return Q (5, 3) and K (4, 3)."""
    n, l, d = SHAPE
    x = np.random.default_rng(seed).uniform(-1, 1, (n + l, d)).astype(dtype)
    return x[:n].copy(), x[n:].copy()


def clean(call):
    """Return (result, None) or (None, error); fail unless the error is one a user can read."""
    try:
        return call(), None
    except ALLOWED as found:
        error = found
    text = str(error)
    assert text, f"{type(error).__name__} without a message"
    assert "\n" not in text, text
    assert len(text) <= 300, text
    return None, error


METHOD = parse("positive(m=2)")
DRAWN = parse("sampled(k=2)")


# Of each kind of estimate one method: all of them check their input in the class `Method`.
KINDS = (
    "positive", "fixed waves", "taylor", "truncated_svd", "top_k", "scatterbrain", "elu", "lsh",
    "poisson", "sampled", "quantised",
)  # fmt: skip


def _each(use):
    """Return a function of Q and K that uses a method of every kind, and says which one failed."""

    def entry(Q, K):
        first = None
        for name in KINDS:
            try:
                result, error = clean(lambda: use(small(name, *SHAPE), Q, K))  # noqa: B023
            except BaseException as other:
                other.add_note(f"method: {name}")
                raise
            kind = type(error)
            first = first or kind
            assert kind is first, f"{name}: {kind.__name__}, others: {first.__name__}"
        if error is not None:
            raise error
        return result

    return entry


# of Q (n, d) and K (l, d)
POINTS = {
    "Method.approximate": _each(lambda m, Q, K: m.approximate(Q, K, rng=0)),
    "Method.moments": _each(lambda m, Q, K: m.moments(Q, K)),
    "Method.covariance": _each(lambda m, Q, K: m.covariance(Q, K, row=0)),
    "exact.logits": exact.logits,
    "exact.kernel": exact.kernel,
    "exact.log_row_sums": exact.log_row_sums,
    "exact.attention": lambda Q, K: exact.attention(Q, K, np.ones((4, 2))),
    "metrics.compare": lambda Q, K: metrics.compare(METHOD.approximate(*points(), rng=0), Q, K),
    "metrics.compare_all": lambda Q, K: metrics.compare_all(
        [METHOD.approximate(Q, K, rng=0)], Q, K
    )[0],
    "certificates.row_bounds": lambda Q, K: (
        certificates.row_bounds(
            METHOD.approximate(*points(), rng=0), Q, K, entries=True
        ).attention_tv
    ),
    "residuals.off_support": lambda Q, K: (
        residuals.off_support(METHOD.approximate(*points(), rng=0), Q, K).tv
    ),
    "moments.monte_carlo": lambda Q, K: moments.monte_carlo(METHOD, Q, K, draws=3, rng=0),
    "moments.expected_error": lambda Q, K: moments.expected_error(METHOD, Q, K),
    "moments.normalised_moments": lambda Q, K: moments.normalised_moments(METHOD, Q, K),
    "weights.Weights": lambda Q, K: Weights(Q, K).matrix,
    "moments.features_needed": lambda Q, K: moments.features_needed(METHOD, 0.5, Q, K),
    "sampling_intervals.upper_bounds": lambda Q, K: sampling_intervals.upper_bounds(
        DRAWN.approximate(Q, K, rng=0), Q, K, method=DRAWN
    ).attention_tv.to_numpy(),
}

# of a matrix (n, l)
MATRICES = {
    "inexact_alm": robust_pca.inexact_alm,
    "acc_alt_proj": lambda D: robust_pca.acc_alt_proj(D, 1),
    "stable_pca": lambda D: stable_pca.stable_pca(D, 0.1),
    "godec": lambda D: godec.godec(D, 1, 1),
    "godec at_budget": lambda D: godec.at_budget(D, 2.0),
    "rank.summary": rank.summary,
    "rank.singular_values": rank.singular_values,
    "rank.estimates": lambda D: rank.estimates(D, rng=0),
    "positions.ranks": position_rank.ranks,
    "bounds.epsilon_rank_bound": lambda D: error_bounds.epsilon_rank_bound(
        "taylor", D, 2, 0.1, largest=1.0
    ),
    "Approximation.from_factors": lambda D: Approximation.from_factors(D, D).scaled_factors(),
    "projections.Fixed": projections.Fixed,
}


def _approximation(spec):
    return parse(spec).approximate(*points(), rng=0)


BOTH = "scatterbrain(low_rank=positive(m=4), sparse=top_k(k=2))"
# of values (l, c)
VALUES = {
    "attend": lambda V: _approximation("positive(m=4)").attend(V),
    "attend, sparse": lambda V: _approximation(BOTH).attend(V),
    "@": lambda V: _approximation("positive(m=4)") @ V,
    "@, sparse": lambda V: _approximation(BOTH) @ V,
    "@ of the transpose": lambda V: parse(BOTH).approximate(*points()[::-1], rng=0).T @ V,
    "exact.attention": lambda V: exact.attention(*points(), V),
    "certificates.row_bounds": lambda V: (
        certificates.row_bounds(_approximation(BOTH), *points(), V, entries=True).output_error
    ),
    "metrics.compare": lambda V: metrics.compare(_approximation(BOTH), *points(), V),
    "sampling_intervals.upper_bounds": lambda V: sampling_intervals.upper_bounds(
        _approximation(str(DRAWN)), *points(), V, method=DRAWN
    ).output_error.to_numpy(),
}


ENTRIES = [
    *((name, entry, side) for name, entry in POINTS.items() for side in ("Q", "K")),
    *((name, entry, "matrix") for name, entry in MATRICES.items()),
    *((name, entry, "V") for name, entry in VALUES.items()),
]


def sound(side):
    """Return an array that the entry points take there."""
    if side in "QK":
        return points()["QK".index(side)]
    return np.random.default_rng(1).uniform(-1, 1, (6, 5) if side == "matrix" else (4, 2))


def call(entry, side, value):
    """Give an entry point a value at one of its places, sound arrays at the others."""
    if side == "Q":
        return entry(value, points()[1])
    if side == "K":
        return entry(points()[0], value)
    return entry(value)


X, D = inputs.gaussian(6, 2, rng=0), sound("matrix")
FILE = inputs.Heads("file", X.q[None], X.k[None], ids=((0, 0, "0.0"),))
WEIGHTS = Weights.from_head(X)

# One argument that is no array

# number > 0 (or ≥ 0, where 0 has a meaning) of every entry point that takes one
NUMBERS = {
    "temperature": X.at_temperature,
    "temperature of Head": lambda t: inputs.Head("x", X.q, X.k, temperature=t),
    "scaling": lambda s: inputs.Head("x", X.q, X.k, scaling=s) if s is not None else 1 / 0,
    "temperature of sweep": lambda t: sweep.sweep([METHOD], X, [t], trials=1, seed=0),
    "spread": lambda s: inputs.clustered(3, 2, spread=s, rng=0),
    "delta": lambda s: inputs.generative(3, 2, s, rng=0),
    "budget of within": lambda b: parse("positive").within(b, n=5, l=4, d=3),
    "budget of a baseline": lambda b: parse("zero").within(b, n=5, l=4, d=3),
    "budget of match": lambda b: budget.match([METHOD], b, X),
    "budget of godec": lambda b: godec.at_budget(D, b),
    "lam": lambda x: robust_pca.inexact_alm(D, x) if x is not None else 1 / 0,
    "rho": lambda x: robust_pca.inexact_alm(D, rho=x),
    "tolerance": lambda x: robust_pca.inexact_alm(D, tolerance=x),
    "gap": lambda x: robust_pca.inexact_alm(D, gap_tolerance=1.0 if x is math.inf else x),
    "delta of stable": lambda x: stable_pca.stable_pca(D, x),
    "k of godec": lambda x: godec.godec(D, 1, x),
    "epsilon": lambda x: rank.summary(D, epsilon=x),
    "bound of remez": lambda x: remez(1, x),
    "epsilon of measures": lambda x: rank.measures(np.ones(1), (1, 1), epsilon=x),
    "budget of oracles": lambda b: crossovers.oracles(X, [1.0], [b]),
    "error": lambda x: moments.features_needed(METHOD, x, *points()),
    "level": lambda x: METHODS["threshold"](level=x) if x is not None else 1 / 0,
    "p of top_p": lambda x: METHODS["top_p"](p=x),
    "share": lambda x: METHODS["scatterbrain"](share=x),
}

# integer, and the least that is allowed
INTEGERS = {
    "n of gaussian": (lambda n: inputs.gaussian(n, 2, rng=0), 1),
    "d of sphere": (lambda n: inputs.sphere(2, n, rng=0), 1),
    "clusters": (lambda n: inputs.clustered(4, 2, n, rng=0), 1),
    "size": (lambda n: inputs.generative(4, 2, 0.1, n, rng=0), 1),
    "layer": (lambda n: FILE.at(n, 0), 0),
    "head": (lambda n: FILE.at(0, n), 0),
    "n of within": (lambda n: parse("top_k").within(4, n=n, l=4, d=3), 1),
    "d of within": (lambda n: parse("positive").within(4, n=4, l=4, d=n), 1),
    "rows": (lambda n: metrics.compare(METHOD.approximate(*points()), *points(), rows=n), 2),
    "draws": (lambda n: moments.monte_carlo(METHOD, *points(), draws=n, rng=0), 2),
    "probes": (lambda n: rank.estimates(D, probes=n, rng=0), 2),
    "steps": (lambda n: rank.estimates(D, steps=n, rng=0), 1),
    "n of exact_attention": (lambda n: operations.exact_attention(n, 2), 0),
    "m of linear_attention": (lambda n: operations.linear_attention(4, 2, n), 0),
    "s of scatterbrain": (lambda n: operations.scatterbrain(4, 2, 2, n), 0),
    "e of quadratic_unit": (lambda n: operations.quadratic_unit(4, n, 2), 0),
    "c of mixed_chunk": (lambda n: operations.mixed_chunk(4, 2, 2, n), 1),
    "b of parallel memory": (lambda n: operations.parallel_causal_memory(n, 1, 4, 2), 0),
    "h of quadratic_memory": (lambda n: operations.quadratic_memory(1, n, 4), 0),
    "most of break_even": (lambda n: operations.break_even(abs, abs, most=n), 1),
    "c of kinds": (lambda n: operations.kinds(2, 2, 2, n), 1),
    "heads": (lambda n: position_rank.generic(4, 2, 1, 1, rng=0, heads=n), 1),
    "rank of godec": (lambda n: godec.godec(D, n, 1), 0),
    "iterations": (lambda n: godec.godec(D, 1, 1, iterations=n), 1),
    "rank of acc_alt_proj": (lambda n: robust_pca.acc_alt_proj(D, n), 0),
    "max_iterations": (lambda n: robust_pca.inexact_alm(D, max_iterations=n), 1),
    "trials": (lambda n: sweep.sweep([METHOD], X, [1.0], trials=n, seed=0), 1),
    "d of epsilon_rank_bound": (
        lambda n: error_bounds.epsilon_rank_bound("taylor", D, n, 0.1, largest=1.0),
        1,
    ),
    "n of gaussian_logits": (lambda n: statistics.gaussian_logits(n, 1.0, rows=2, rng=0), 1),
    "rows of gaussian_logits": (lambda n: statistics.gaussian_logits(2, 1.0, rows=n, rng=0), 2),
    "n of gaussian_entropy": (lambda n: statistics.gaussian_entropy(n, 1.0), 1),
    "trials of diagnose": (lambda n: diagnose.diagnose(X, budget=4, trials=n), 1),
    "count of entries": (lambda n: support_bounds.entries(WEIGHTS, n), 0),
    "k of keys": (lambda n: support_bounds.keys(WEIGHTS, n), 0),
    "k of columns": (lambda n: support_bounds.columns(WEIGHTS, n), 0),
    "k of evicting": (lambda n: support_bounds.evicting(WEIGHTS, n), 1),
    "count of pages": (lambda n: support_bounds.pages(WEIGHTS, n, 2), 0),
    "size of pages": (lambda n: support_bounds.pages(WEIGHTS, 1, n), 1),
    "k of blocks": (lambda n: support_bounds.blocks(WEIGHTS, n, 1), 1),
    "block of blocks": (lambda n: support_bounds.blocks(WEIGHTS, 4, n), 1),
    "k of lines": (lambda n: support_bounds.lines(WEIGHTS, n), 0),
    "m of low_rank": (lambda n: lower_bounds.low_rank(WEIGHTS, n), 0),
    "trials of needed": (lambda n: target.needed(X, 1.0, methods=[METHOD], trials=n), 1),
    "seed": (lambda n: sweep.sweep([METHOD], X, [1.0], trials=1, seed=n), 0),
    "jobs": (lambda n: sweep.sweep([METHOD], X, [1.0], trials=1, seed=0, jobs=n), 1),
    "degree of taylor_kernel": (lambda n: modular.taylor_kernel(n, [[1]], [[1]]), 0),
    "shape of measures": (lambda n: rank.measures(np.empty(0), (1, n)), 0),
    "degree of remez": (lambda n: remez(n, 1.0), 0),
    "d of width": (lambda n: monomials.width(n, 2), 0),
    "degree of width": (lambda n: monomials.width(2, n), 0),
    "d of layout": (lambda n: monomials.layout(n, 2), 1),
    "degree of layout": (lambda n: monomials.layout(2, n), 0),
    "n of normalisers": (lambda n: flash.normalisers(n, 4), 1),
    "size of normalisers": (lambda n: flash.normalisers(4, n), 1),
    "d of cache": (lambda n: METHOD.cache(d=n, c=1, rng=0), 1),
    "c of cache": (lambda n: parse("exact").cache(d=1, c=n), 1),
    "size of boxes": (lambda n: PageBoxes.from_keys(D, size=n), 1),
    "bits of boxes": (lambda n: PageBoxes.from_keys(D, bits=n), 0),
    "row": (lambda n: METHOD.covariance(*points(), row=n), 0),
}

RNGS = {
    "approximate": lambda rng: METHOD.approximate(*points(), rng=rng),
    "scatterbrain": lambda rng: parse(BOTH).approximate(*points(), rng=rng),
    "gaussian": lambda rng: inputs.gaussian(3, 2, rng=rng),
    "sphere": lambda rng: inputs.sphere(3, 2, rng=rng),
    "clustered": lambda rng: inputs.clustered(3, 2, rng=rng),
    "generative": lambda rng: inputs.generative(3, 2, 0.1, rng=rng),
    "monte_carlo": lambda rng: moments.monte_carlo(METHOD, *points(), draws=2, rng=rng),
    "estimates": lambda rng: rank.estimates(D, rng=rng),
    "generic": lambda rng: position_rank.generic(4, 2, 1, 1, rng=rng),
}

FLAGS = {
    "causal of attention": lambda x: attention.dot_product_attention(D, D, D, causal=x),
    "causal of linear": lambda x: attention.linear_attention(D, D, D, causal=x),
    "causal of linear_weights": lambda x: attention.linear_weights(D, D, causal=x),
    "causal of normalisers": lambda x: flash.normalisers(4, 2, causal=x),
    "causal of local_quadratic": lambda x: flash.local_quadratic(D, D, 2, causal=x),
    "normalise": lambda x: attention.linear_attention(D, D, D, normalise=x),
    "exact": lambda x: error_bounds.minimum_degree("taylor", 1.0, 0.1, exact=x),
    "shared": lambda x: inputs.clustered(4, 2, shared=x, rng=0),
    "queries": lambda x: METHODS["centered"](queries=x),
    "nonnegative": lambda x: METHODS["poisson"](nonnegative=x),
}

# of a mask of 5 queries and 4 keys
MASKS = {
    "approximate": lambda x: METHOD.approximate(*points(), mask=x),
    "moments": lambda x: METHOD.moments(*points(), mask=x),
    "covariance": lambda x: METHOD.covariance(*points(), row=0, mask=x),
    "probability": lambda x: parse("random(k=2)").probability(*points(), mask=x),
    "price": lambda x: METHOD.price(n=5, l=4, d=3, mask=x),
    "within": lambda x: METHOD.within(9.0, n=5, l=4, d=3, mask=x),
    "seen": lambda x: METHOD.approximate(*points()).seen(x),
    "from_factors": lambda x: Approximation.from_factors(*points(), mask=x),
    "exact.attention": lambda x: exact.attention(*points(), np.ones(4), mask=x),
    "exact.log_row_sums": lambda x: exact.log_row_sums(*points(), mask=x),
    "compare": lambda x: metrics.compare(METHOD.approximate(*points()), *points(), mask=x),
    "compare_all": lambda x: metrics.compare_all(
        [METHOD.approximate(*points())], *points(), mask=x
    ),
    "Head": lambda x: inputs.Head("x", *points(), mask=x),
    "godec": lambda x: godec.godec(np.ones((5, 4)), 1, 1, mask=x),
    "at_budget": lambda x: godec.at_budget(np.ones((5, 4)), 2, mask=x),
    "inexact_alm": lambda x: robust_pca.inexact_alm(np.ones((5, 4)), mask=x),
    "acc_alt_proj": lambda x: robust_pca.acc_alt_proj(np.ones((5, 4)), 1, mask=x),
    "stable_pca": lambda x: stable_pca.stable_pca(np.ones((5, 4)), 0.1, mask=x),
}


def answer(sink):
    """Return what the cache of a key answers."""
    cache = METHOD.cache(d=3, c=1)
    cache.append(np.ones(3), np.ones(1))
    return cache.attend(np.ones(3), sink)


SINKS = {
    "approximate": lambda x: METHOD.approximate(*points(), sink=x),
    "exact.attention": lambda x: exact.attention(*points(), np.ones(4), sink=x),
    "Cache.attend": answer,
}

METHODS_TAKEN = {
    "monte_carlo": lambda m: moments.monte_carlo(m, *points(), draws=2, rng=0),
    "expected_error": lambda m: moments.expected_error(m, *points()),
    "normalised_moments": lambda m: moments.normalised_moments(m, *points()),
    "features_needed": lambda m: moments.features_needed(m, 0.5, *points()),
    "match": lambda m: budget.match([m], 4, X),
    "diagnose": lambda m: diagnose.diagnose(X, budget=4, methods=[m]),
    "needed": lambda m: target.needed(X, 1.0, methods=[m]),
    "sweep": lambda m: sweep.sweep([m], X, [1.0], trials=1, seed=0),
    "low_rank of scatterbrain": lambda m: METHODS["scatterbrain"](low_rank=m),
    "sparse of scatterbrain": lambda m: METHODS["scatterbrain"](sparse=m),
}

HEADS = {
    "match": lambda x: budget.match([METHOD], 4, x),
    "sweep": lambda x: sweep.sweep([METHOD], [x], [1.0], trials=1, seed=0),
    "diagnose": lambda x: diagnose.diagnose([x], budget=4, methods=[METHOD]),
    "needed": lambda x: target.needed([x], 1.0, methods=[METHOD]),
    "describe": statistics.describe,
    "exact_singular_values": rank.exact_singular_values,
    "recall": lambda x: support_recall.recall(parse("top_k(k=1)").approximate(X.Q, X.K), x),
}

ESTIMATES = {
    "compare": lambda A: metrics.compare(A, *points()),
    "concentration": pitfalls.concentration,
    "values_per_row": budget.values_per_row,
    "recall": lambda A: support_recall.recall(A, X),
}

# of one argument that is no array, by what it must be
ARGUMENTS = {
    "number": NUMBERS,
    "integer": {name: use for name, (use, _) in INTEGERS.items()},
    "rng": RNGS,
    "flag": FLAGS,
    "mask": MASKS,
    "sink": SINKS,
    "method": METHODS_TAKEN,
    "head": HEADS,
    "estimate": ESTIMATES,
}


# Layouts of an array


def _strided(x):
    wide = np.repeat(np.repeat(x, 2, 0), 3, 1)
    return wide[::2, 1::3]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def _mapped(x):
    """Return an array in a file, which is read-only."""
    with tempfile.TemporaryFile() as file:
        np.save(file, x, allow_pickle=False)
        return np.memmap(file, x.dtype, "r", file.tell() - x.nbytes, x.shape)


def _matrix(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that np.matrix is old
        return np.matrix(x)


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "strided": _strided,
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "subclass": lambda x: np.asarray(x).view(np.recarray).view(type("Sub", (np.ndarray,), {})),
    "np.matrix": _matrix,
    "memory map": _mapped,
    "list": lambda x: x.tolist(),
    "DataFrame": pd.DataFrame,
    "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape))[1],
}
