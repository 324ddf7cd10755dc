"""Every public entry point with good arguments: for bad input, and for fuzzing.

The kind of an argument follows from its name, if `BY_NAME` has it, else from the type of the good
value. A good integer is at least 1 and a good number above 0, unless `at` says what is the least.
"""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from small import SIZED, small

from analysis import inputs, moments
from analysis.advice import diagnose, pitfalls, target
from analysis.bounds import (
    certificates,
    lower_bounds,
    residuals,
    support_bounds,
)
from analysis.costs import budget
from analysis.errors import metrics
from analysis.inputs import statistics
from analysis.ranks import position_rank, rank
from analysis.ranks.attention_weights import Weights
from analysis.sweeps import crossovers, sweep
from approx import METHODS, Approximation, Method, parse, projections
from approx.estimate import exact
from approx.low_rank import godec, robust_pca, stable_pca
from approx.polynomials import error_bounds, monomials
from approx.polynomials.remez import remez
from approx.supports.key_boxes import PageBoxes
from approx.textbook import attention, flash

SHAPE = (5, 4, 3)  # n, l, d
ALLOWED = (ValueError, TypeError, OSError, ArithmeticError, MemoryError, ImportError)
BOTH = "scatterbrain(low_rank=positive(m=4), sparse=top_k(k=2))"
# Of each kind of estimate one method: all of them check their input in the class `Method`.
KINDS = (
    "positive", "fixed waves", "taylor", "truncated_svd", "top_k", "scatterbrain", "elu", "lsh",
    "poisson", "sampled", "quantised",
)  # fmt: skip
METHOD, SPARSE = map(parse, ("positive(m=2)", BOTH))


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


def points(dtype=np.float64, seed=0):
    """Return Q (5, 3) and K (4, 3)."""
    n, l, d = SHAPE
    x = np.random.default_rng(seed).uniform(-1, 1, (n + l, d)).astype(dtype)
    return x[:n].copy(), x[n:].copy()


Q, K = points()
D = np.random.default_rng(1).uniform(-1, 1, (6, 5))
M = np.random.default_rng(1).uniform(-1, 1, (5, 4))
V = np.random.default_rng(1).uniform(-1, 1, (4, 2))
X = inputs.gaussian(6, 2, rng=0)
FILE = inputs.Heads("file", X.q[None], X.k[None], ids=((0, 0, "0.0"),))
WEIGHTS = Weights.from_head(X)
A, S = (method.approximate(Q, K, rng=0) for method in (METHOD, SPARSE))
T = SPARSE.approximate(K, Q, rng=0).T
CACHE = METHOD.cache(d=3, c=1)
CACHE.append(K[0], np.ones(1))


class at(NamedTuple):
    """The least allowed value of an argument, and a good one."""

    least: float
    good: Any


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry point: its name, how it is called, good arguments; the least of some of them."""

    name: str
    use: Callable
    good: dict
    least: dict
    then: Callable

    def __repr__(self):
        return self.name

    def __call__(self, **changed):
        """Call it with good arguments, but for these."""
        return self.then(self.use(**(self.good | changed)))

    def kind(self, argument):
        """Return the kind of an argument, or None if bad input of it isn't tested."""
        one = self.good[argument][0] if isinstance(self.good[argument], list) else None
        good = self.good[argument] if one is None else one
        if argument in UNTESTED or argument in ("rng", "mask", "sink"):
            return None if argument in UNTESTED else argument
        if isinstance(good, np.ndarray):
            known = {"Q": "Q", "q": "Q", "K": "K", "V": "V", "x": "V"}
            return known.get(argument, "matrix")
        if argument == "causal" and "n" not in self.good:
            return "causal"
        return next((kind for of, kind in BY_TYPE.items() if isinstance(good, of)), None)

    def given(self, argument, value):
        """Call it with this value of an argument, in a list where the good one is in a list."""
        return self(**{argument: [value] if isinstance(self.good[argument], list) else value})

    def optional(self, argument):
        """Return whether None stands for a default, which is no bad input."""
        known = inspect.signature(self.use).parameters
        return argument in known and known[argument].default is None


BY_TYPE = {bool: "flag", int: "integer", float: "number", str: "name", Method: "method",
           inputs.Head: "head", Approximation: "estimate"}  # fmt: skip
# of any shape, value or name, or tested elsewhere
UNTESTED = ("s", "target", "beta", "sums_to_one")


def entry(use, name="", /, then=lambda result: result, **given):
    """Return an entry point; `then` takes of its result what two calls are compared by."""
    good = {key: x.good if isinstance(x, at) else x for key, x in given.items()}
    least = {key: x.least for key, x in given.items() if isinstance(x, at)}
    named = use.func if isinstance(use, partial) else use
    name = name or f"{named.__module__.rpartition('.')[2]}.{named.__qualname__}"
    return Entry(name, use, good, least, then)


def of_points(name):
    """Yield what a method says of Q and K."""
    method = small(name, *SHAPE)
    yield entry(method.approximate, f"approximate {name}", Q=Q, K=K, rng=0)
    yield entry(method.moments, f"moments {name}", Q=Q, K=K)
    yield entry(method.covariance, f"covariance {name}", q=Q, K=K, row=at(0, 0))


ENTRIES = [
    *(found for name in KINDS for found in of_points(name)),
    entry(METHOD.approximate, Q=Q, K=K, mask=None, rng=0, sink=at(None, 0.0)),
    entry(SPARSE.approximate, Q=Q, K=K, mask=None, rng=0),
    entry(METHOD.moments, Q=Q, K=K, mask=None),
    entry(METHOD.covariance, q=Q, K=K, row=at(0, 0), mask=None),
    entry(parse("random(k=2)").probability, Q=Q, K=K, mask=None),
    entry(partial(METHOD.price, d=3), n=5, l=4, mask=None),
    entry(parse("positive").within, budget=9.0, n=5, l=4, d=3, mask=None, currency="stored"),
    entry(parse("zero").within, budget=9.0, n=5, l=4, d=3),
    entry(parse("top_k").within, budget=9.0, n=5, l=4, d=3),
    entry(METHOD.cache, d=3, c=1, rng=0, window=at(0, 0)),
    entry(parse("exact").cache, d=3, c=1),
    entry(partial(CACHE.attend, K[0]), sink=0.0),
    *(entry(METHODS[name], **{x: at(int(x != "degree"), 24)}) for name, x in SIZED.items()),
    entry(METHODS["threshold"], level=0.5),
    entry(METHODS["top_p"], p=0.5),
    entry(METHODS["scatterbrain"], low_rank=METHOD, sparse=parse("top_k(k=2)"), share=0.5),
    entry(METHODS["centered"], queries=True),
    entry(METHODS["poisson"], nonnegative=True),
    entry(projections.Fixed, omega=D),
    # estimates
    entry(A.attend, V=V),
    entry(S.attend, "attend, sparse", V=V),
    entry(A.__matmul__, "@", x=V),
    entry(S.__matmul__, "@, sparse", x=V),
    entry(T.__matmul__, "@ of the transpose", x=V),
    entry(A.seen, mask=None),
    entry(Approximation.from_factors, left=Q, right=K, mask=None),
    entry(exact.logits, Q=Q, K=K),
    entry(exact.kernel, Q=Q, K=K),
    entry(exact.log_row_sums, Q=Q, K=K, mask=None),
    entry(exact.attention, Q=Q, K=K, V=V, mask=None, sink=0.0),
    # matrices
    entry(robust_pca.inexact_alm, D=M, lam=0.5, mask=None, rho=1.5, tolerance=1e-7,
          max_iterations=1000, gap_tolerance=1e-4),
    entry(robust_pca.acc_alt_proj, D=M, rank=at(0, 1), mask=None, tolerance=1e-7, max_iterations=9),
    entry(stable_pca.stable_pca, D=M, delta=at(0, 0.1), mask=None),
    entry(godec.godec, D=M, rank=at(0, 1), k=at(0, 1.0), mask=None, iterations=9),
    entry(godec.at_budget, D=M, budget=2.0, mask=None),
    entry(rank.summary, matrix_or_operator=D, epsilon=0.01),
    entry(rank.singular_values, matrix=D),
    entry(rank.estimates, matrix=D, probes=at(2, 16), steps=60, rng=0),
    entry(rank.measures, s=[1.0], shape=(1, 1), epsilon=0.01),
    entry(rank.exact_singular_values, inputs=X),
    entry(position_rank.ranks, logits=D),
    entry(position_rank.generic, n=4, d=2, d_h=1, d_p=at(0, 1), heads=1, rng=0),
    # errors, bounds, moments
    entry(metrics.compare, approximation=S, Q=Q, K=K, V=V, mask=None, rows=at(2, 3)),
    entry(metrics.compare_all, approximations=[A], Q=Q, K=K, mask=None,
          then=lambda tables: tables[0]),
    entry(certificates.row_bounds, estimate=S, Q=Q, K=K, V=V, entries=True,
          then=lambda table: table.output_absolute_error.to_numpy()),
    entry(residuals.off_support, estimate=A, Q=Q, K=K, then=lambda found: found.tv),
    entry(moments.monte_carlo, method=METHOD, Q=Q, K=K, mask=None, draws=at(2, 3), rng=0),
    entry(moments.expected_error, method=METHOD, Q=Q, K=K, mask=None),
    entry(moments.normalised_moments, method=METHOD, Q=Q, K=K, mask=None),
    entry(moments.features_needed, method=METHOD, error=0.5, Q=Q, K=K),
    entry(Weights, Q=Q, K=K, then=lambda weights: weights.matrix),
    entry(error_bounds.epsilon_rank_bound, method="taylor", logits=D, d=2, epsilon=0.1,
          largest=1.0),
    entry(error_bounds.minimum_degree, method="taylor", bound=1.0, epsilon=0.1, exact=True),
    entry(support_bounds.entries, weights=WEIGHTS, count=at(0, 2)),
    entry(support_bounds.keys, weights=WEIGHTS, k=at(0, 2)),
    entry(support_bounds.columns, weights=WEIGHTS, k=at(0, 2)),
    entry(support_bounds.evicting, weights=WEIGHTS, k=2),
    entry(support_bounds.pages, weights=WEIGHTS, count=at(0, 1), size=2),
    entry(support_bounds.blocks, weights=WEIGHTS, k=4, block=1),
    entry(support_bounds.lines, weights=WEIGHTS, k=at(0, 2)),
    entry(lower_bounds.low_rank, weights=WEIGHTS, m=at(0, 2), sums_to_one=True),
    # inputs
    entry(partial(inputs.Head, "x", Q, K), temperature=1.0, scaling=0.5, mask=None),
    entry(X.at_temperature, t=1.0, then=lambda head: head.Q),
    entry(FILE.at, layer=at(0, 0), head=at(0, 0), then=lambda head: head.Q),
    entry(inputs.gaussian, n=3, d=2, rng=0),
    entry(inputs.sphere, n=3, d=2, rng=0),
    entry(inputs.clustered, n=3, d=2, clusters=2, spread=at(0, 0.3), shared=True, rng=0),
    entry(inputs.generative, n=3, d=2, delta=at(0, 0.1), size=2, shared=True, rng=0),
    entry(statistics.gaussian_logits, n=2, beta=1.0, rows=at(2, 2), rng=0),
    entry(statistics.gaussian_entropy, n=2, beta=1.0),
    entry(statistics.describe, inputs=X),
    entry(pitfalls.concentration, approximation=S),
    # costs, sweeps, advice
    entry(budget.match, methods=[METHOD], budget=4.0, inputs=X),
    entry(budget.stored, approximation=A),
    entry(crossovers.oracles, inputs=[X], temperatures=[1.0], budgets=[8.0]),
    entry(sweep.sweep, methods=[METHOD], inputs=[X], temperatures=[1.0], trials=1, seed=at(0, 0),
          jobs=1),
    entry(diagnose.diagnose, inputs=[X], budget=4.0, methods=[METHOD], trials=1, jobs=1,
          temperature=1.0, currency="stored", metric="attention_tv"),
    entry(target.needed, inputs=[X], target=0.5, methods=[METHOD], trials=1),
    # textbooks and polynomials
    entry(partial(attention.dot_product_attention, Q, K, V), causal=False),
    entry(partial(attention.linear_attention, Q, K, V), causal=False, normalise=True),
    entry(partial(attention.linear_weights, Q, K), causal=False),
    entry(partial(flash.local_quadratic, Q, K, 2), causal=False),
    entry(partial(flash.global_linear, Q, K, 2), causal=False),
    entry(flash.normalisers, n=4, size=2, causal=False, normaliser="length"),
    entry(remez, degree=at(0, 1), bound=at(0, 1.0), weight="relative"),
    entry(monomials.width, d=at(0, 2), degree=at(0, 2)),
    entry(monomials.layout, d=2, degree=at(0, 2)),
    entry(partial(PageBoxes.from_keys, D), size=2, bits=at(0, 0)),
]  # fmt: skip
ARRAYS = ("Q", "K", "V", "matrix")
# every (entry point, argument) by the kind of the argument
ARGUMENTS = {}
for _entry in ENTRIES:
    for _argument in _entry.good:
        if (_kind := _entry.kind(_argument)) is not None:
            ARGUMENTS.setdefault(_kind, []).append((_entry, _argument))
