"""The benchmarks: ours and its peers at a shape.

Each asserts that both sides compute the same, and yields `measure.Bench`, which the loop measures,
or rows that are measured in processes of their own.
"""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse

from analysis.errors.metrics import compare
from analysis.moments import monte_carlo
from approx import Approximation, Mask, parse
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate import exact
from approx.kernels.elementary import exp_rows
from approx.low_rank.decomposition import Decomposition
from approx.low_rank.godec import SWEEPS, godec
from approx.low_rank.robust_pca import acc_alt_proj, inexact_alm
from approx.polynomials import monomials
from approx.polynomials.taylor import Taylor
from approx.projections import Fixed
from approx.random_features.positive import Positive
from studies.benchmarks import measure
from studies.benchmarks.measure import TILE, Bench, Line, Row
from tests import naive

DTYPES = "float64", "float32"
BENCHMARKS: dict[str, Benchmark] = {}


class Benchmark(NamedTuple):
    """A benchmark, and sizes at which a test runs it."""

    run: Callable[..., Iterator[Bench | Row]]
    tiny: dict[str, Any]

    def rows(self, repeats: int, **sizes: Any) -> Iterator[Row]:
        """Yield the measured rows."""
        for found in self.run(**sizes):
            yield from [found] if isinstance(found, Row) else found.measured(repeats)


def benchmark(**tiny: Any) -> Callable:
    def enter(run: Callable[..., Iterator[Bench | Row]]) -> Callable:
        BENCHMARKS[run.__name__] = Benchmark(run, tiny)
        return run

    return enter


def gaussian(*shapes: tuple[int, ...], dtype: str = "float64") -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def epsilon(dtype: str) -> float:
    return float(np.finfo(dtype).eps)


# Attention


@benchmark(n=160, d=4, m=8)
def linear_attention(n: int = 16384, d: int = 64, m: int = 256) -> Iterator[Bench]:
    """Attention by positive features against the Performer in torch, without a mask and causal."""
    torch, performer = measure.peer("torch"), measure.peer("performer_pytorch.performer_pytorch")
    musts = {"float64": {"ratio": (3.5, 5.0)}, "float32": {"ratio": (2.0, 2.6)}}
    for name in DTYPES:
        Q, K, V, omega = gaussian((n, d), (n, d), (n, d), (m, d), dtype=name)
        q, k = (x * x.dtype.type(d**-0.25) for x in (Q, K))
        method, fixed = parse(f"positive(m={m})"), Positive(projection=Fixed(omega))
        height, width = min(n, TILE), max(n // 16, 1)
        masks = {"ours": None, "causal": "causal", "window": Mask.window(n, n, width)}

        def ours(method: Any = method, mask: Any = None, x: Any = (q, k, V)) -> Any:
            return method.approximate(x[0], x[1], mask=mask, rng=0).attend(x[2])

        sides: dict[str, Any] = {
            side: functools.partial(ours, mask=mask) for side, mask in masks.items()
        }
        sides["limit"] = measure.limit(
            ((height, d, m), 2 * n // height),
            ((m, height, d + 1), n // height),
            ((height, m, d + 1), n // height),
            exponentials=2 * n * m,
            dtype=np.dtype(name),
        )
        if performer is not None:
            given = [torch.from_numpy(x[None, None]) for x in (Q, K, V)]

            def theirs(mask: Any, x: Any = given, W: Any = omega, eps: float = 1e-4) -> Any:
                phi_q, phi_k = (
                    performer.softmax_kernel(
                        y, projection_matrix=torch.from_numpy(W), is_query=query, eps=eps
                    )
                    for y, query in ((x[0], True), (x[1], False))
                )
                if mask:
                    causal = performer.causal_linear_attention_noncuda
                    return causal(phi_q, phi_k, x[2], eps=0.0).numpy()[0, 0]
                return performer.linear_attention(phi_q, phi_k, x[2]).numpy()[0, 0]

            # averages of V over n terms, and exponents of about 30; causal, they add eps to sums
            for mask, off in ((None, 30 * np.sqrt(n) * epsilon(name)), ("causal", 1e-3)):
                sides[f"their {mask}"] = functools.partial(theirs, mask)
                measure.agree(
                    ours(fixed, mask), theirs(mask, eps=0.0), off, f"linear attention, {name}"
                )
        about, less = f"n = {n}, d = {d}, m = {m}, {name}", "ours without a mask"
        yield Bench(sides, [
            Line(f"linear attention, {about}", "torch performer", musts[name],
                 theirs="their None"),
            Line(f"causal linear attention, {about}", "torch performer, causal", {}, "causal",
                 "their causal", ""),
            Line(f"linear attention, causal, {about}", less, {"ratio": (1 / 1.6, None)}, "causal",
                 "ours", ""),
            Line(f"linear attention, window of {width}, {about}", less, {}, "window", "ours", ""),
        ])  # fmt: skip


@benchmark(n=48, d=4, m=8)
def positive_features(n: int = 16384, d: int = 64, m: int = 256) -> Iterator[Bench]:
    """φ(Q): share of the limit, and two libraries; ours draws frequencies and has one key, too."""
    torch, performer = measure.peer("torch"), measure.peer("performer_pytorch.performer_pytorch")
    sklearn = measure.peer("sklearn.kernel_approximation")
    share = {"share": (0.8, 0.92)}
    musts = {  # the targets exclude the system's new pages
        "float64": ({"ratio": (5.0, 7.0)} | share, {"ratio": (4.0, 5.5)}),
        "float32": ({"ratio": (2.0, 2.8)} | share, {"ratio": (1.2, 1.45)}),
    }
    for name in DTYPES:
        Q, omega = gaussian((n, d), (m, d), dtype=name)
        q, method = Q * Q.dtype.type(d**-0.25), parse(f"positive(m={m})")
        there = np.empty((n, m), name)
        tiles = ((min(n, 256), d, m), n // min(n, 256))
        sides: dict[str, Any] = {
            "a new array": lambda Q=q, f=method: f.approximate(Q, Q[:1], rng=0).scaled_factors(),
            "out=": lambda Q=q, f=method, out=there: f.approximate(
                Q, Q[:1], rng=0
            ).low.query_features(out),
            "limit": measure.limit(tiles, exponentials=n * m, dtype=np.dtype(name)),
        }
        if performer is not None:
            given = torch.from_numpy(Q[None, None]), torch.from_numpy(omega)
            sides["performer"] = lambda x=given: performer.softmax_kernel(
                x[0], projection_matrix=x[1], is_query=True
            )
            # Each row equals ours up to a scale. They add 1e-4 to every feature, which counts 50
            # times as much after the scale e^{−|x|²/2} ≈ e^{−4}; exponents of 30 round by 30 eps.
            theirs = sides["performer"]().numpy()[0, 0] * np.sqrt(m) - 1e-4
            ours = Positive(projection=Fixed(omega)).approximate(q, q[:1]).scaled_factors().left
            theirs /= theirs.max(axis=1, keepdims=True)
            measure.agree(ours, theirs, 2000 * epsilon(name), "positive features")
        if sklearn is not None:
            sampler = sklearn.RBFSampler(gamma=0.5, n_components=m, random_state=0).fit(q)
            sides["sampler"] = lambda Q=q, f=sampler: f.transform(Q)
        peers = ("torch performer", "performer"), ("scikit-learn RBFSampler", "sampler")
        yield Bench(sides, [
            Line(f"φ(Q), n = {n}, d = {d}, m = {m}, {name}, {side}", peer, held and must, side, key)
            for side, held in (("out=", True), ("a new array", {}))
            for (peer, key), must in zip(peers, musts[name])
        ])  # fmt: skip


@benchmark(n=48, d=4, m=8, width=4)
def sparse_correction(
    n: int = 16384, d: int = 64, m: int = 256, width: int = 64
) -> Iterator[Bench]:
    """Positive features with exp(q·k) on a support, against scipy.sparse and dense attention.

    The time of the features, which run right before, is subtracted on each side. After dense
    attention, with its gigabyte and cold caches, a run is not counted.
    """
    torch = measure.peer("torch")
    Q, K, V, omega = gaussian((n, d), (n, d), (n, d), (m, d))
    q, k, low = Q * d**-0.25, K * d**-0.25, Positive(projection=Fixed(omega))
    sides: dict[str, Any] = {}
    if torch is not None:
        given = [torch.from_numpy(x[None, None]) for x in (Q, K, V)]
        dense = torch.nn.functional.scaled_dot_product_attention
        sides["attention"] = lambda: dense(*given)
    for spec, scipys, dense_ratio in (
        (f"sliding_window(width={width})", (3.0, 4.4), (12.0, 17.0)),
        (f"chunk(size={width})", (5.0, 7.5), (20.0, 30.0)),
    ):
        method: Any = Scatterbrain(low, parse(spec))
        pattern = parse(spec).approximate(q, k).sparse
        sides |= {
            "not counted": lambda: in_scipy(q, k, V, omega),
            "scipy's features": lambda: in_scipy(q, k, V, omega),
            "scipy": lambda s=pattern: in_scipy(q, k, V, omega, s),
            # with stored factors, as with a support; alone it computes them again
            "features": lambda: Approximation(low.approximate(q, k).low.prepare()) @ V,
            "ours": lambda f=method: f.approximate(q, k) @ V,
        }
        # sums of n terms, from which the terms on the support are subtracted again
        off = 100 * np.sqrt(n) * epsilon("float64")
        measure.agree(sides["ours"](), sides["scipy"](), off, f"estimates beside {spec}")
        work = f"sparse correction, {spec}, n = {n}, nnz = {pattern.nnz / n:.0f} n, float64"
        yield Bench(sides, [
            Line(work, "scipy.sparse", {"ratio": scipys}, theirs="scipy", limit="",
                 less=("features", "scipy's features")),
            Line(work, "torch attention, dense", {"ratio": dense_ratio}, theirs="attention",
                 limit="", less=("features", "")),
        ])  # fmt: skip


def in_scipy(q: Any, k: Any, V: Any, omega: Any, pattern: Any = None) -> Any:
    """Return φ(Q) (φ(K)ᵀ V) + (exp(q·k) − φ·φ on a pattern) V, with entries in chunks."""
    left, right = (
        np.exp(x @ omega.T - np.square(x).sum(axis=1)[:, None] / 2 - np.log(len(omega)) / 2)
        for x in (q, k)
    )
    output = left @ (right.T @ V)
    if pattern is None:
        return output
    i, j = np.repeat(np.arange(len(q)), np.diff(pattern.indptr)), pattern.indices
    data, step = np.empty(len(j)), 2**11  # some megabytes of factors
    for start in range(0, len(j), step):
        a, b = (x[start : start + step] for x in (i, j))
        data[start : start + step] = np.exp(np.einsum("id,id->i", q[a], k[b])) - np.einsum(
            "ir,ir->i", left[a], right[b]
        )
    return output + scipy.sparse.csr_array((data, j, pattern.indptr), shape=pattern.shape) @ V


# Features and exponentials


@benchmark(n=20, cases=((3, 2),), tile=8)
def taylor_features(
    n: int = 4096, cases: Sequence[tuple[int, int]] = ((16, 4), (32, 3), (64, 2)), tile: int = 256
) -> Iterator[Bench]:
    """Compact Taylor features against scikit-learn's PolynomialFeatures, which has no weights."""
    sklearn = measure.peer("sklearn.preprocessing")
    musts = {"a new array": (2.5, 3.0), "out=": (3.5, 5.0), "tiles of rows": (5.0, 7.0)}
    for name in DTYPES:
        for d, degree in cases:
            X = np.random.default_rng(0).uniform(-1, 1, (n, d)).astype(name)
            polynomial = sklearn and sklearn.PolynomialFeatures(degree)
            agree_with_polynomial(X[:tile], degree, polynomial)
            roots, logs = monomials.root_ratios(d, degree), np.zeros(degree + 1)
            whole = np.empty((n, monomials.width(d, degree)), X.dtype)
            part, zeros = np.empty((tile, whole.shape[1]), X.dtype), np.zeros(n)

            def write(
                rows: slice, out: Any = None, X: Any = X, w: Any = roots, a: Any = logs,
                zeros: Any = zeros,
            ) -> Any:  # fmt: skip
                return monomials.features(X[rows], w, a, zeros[rows], out=out)

            def stream(write: Any = write, part: Any = part) -> None:
                for start in range(0, n, tile):
                    write(slice(start, start + tile), part[: min(tile, n - start)])

            sides: dict[str, Any] = {
                "a new array": lambda f=write: f(slice(None)),
                "out=": lambda f=write, out=whole: f(slice(None), out),
                "tiles of rows": stream,
                "zeros": lambda like=whole: np.empty_like(like).fill(0),  # new memory pages
            }
            if polynomial is not None:
                sides["theirs"] = lambda X=X, f=polynomial: f.fit_transform(X)
            work = f"Taylor features, n = {n}, d = {d}, degree {degree}"
            yield Bench(sides, [
                Line(f"{work}, {kind}, {name}", "scikit-learn PolynomialFeatures",
                     {"ratio": must}, kind, limit="zeros" * (kind == "a new array"))
                for kind, must in musts.items()
            ])  # fmt: skip


def agree_with_polynomial(X: Any, degree: int, peer: Any) -> None:
    """Assert that the factors are the weighted columns of the peer, with product Σ xʲ/j!."""
    d, eps = X.shape[1], epsilon(X.dtype.name)
    left, right = Taylor(degree).approximate(X, X).factors()
    logits, factorials = X.astype(np.float64) @ X.T, np.cumprod([1.0, *range(1, degree + 1)])
    total = sum(logits**j / factorial for j, factorial in enumerate(factorials))
    # sums of a few thousand products of weights, powers and roots, each off by a few eps
    measure.agree(left @ right.T, total, 1e3 * eps, "Taylor features")
    if peer is not None:
        theirs = peer.fit_transform(X)
        weight = 1 / np.sqrt(factorials[peer.powers_].prod(axis=1))
        roots, zeros = monomials.root_ratios(d, degree), np.zeros(len(X))
        ours = monomials.features(X, roots, -np.log(factorials), zeros)
        measure.agree(ours, theirs * weight, 1e2 * eps, "PolynomialFeatures")


@numba.njit  # type: ignore[untyped-decorator]
def _scalar_exp_rows(values: Any, shift: Any) -> None:
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            values[i, j] = math.exp(values[i, j] - shift[i])


@benchmark(size=64, passes=1)
def exponentials(size: int = 2**14, passes: int = 64) -> Iterator[Bench]:
    """The shared exponential of numbers in the cache against `math.exp` in Numba."""
    for name, ratio in zip(DTYPES, ((4.0, 5.0), (6.0, 8.0))):
        start = np.random.default_rng(0).uniform(-8, 8, (1, size)).astype(name)
        found = {exp_rows: start.copy(), _scalar_exp_rows: start.copy()}
        for function, values in found.items():
            function(values, np.zeros(1, name))
        one, two = found.values()
        measure.agree(one / two, np.ones_like(one), 4 * epsilon(name), f"exp, {name}")

        def often(function: Any, values: Any, shift: Any) -> None:
            for _ in range(passes):
                function(values, shift)

        shift = np.ones(1, name)  # repeated e^(x − 1) stays near 1
        sides = {
            side: functools.partial(often, function, start * 0, shift)
            for side, function in (("ours", exp_rows), ("theirs", _scalar_exp_rows))
        }
        work = f"exp of {size} numbers {passes} times, {name}"
        yield Bench(sides, [Line(work, "math.exp in Numba", {"ratio": ratio})])


# Errors and moments


@benchmark(n=40, d=4, m=8, small=16)
def errors(n: int = 8192, d: int = 64, m: int = 256, small: int = 512) -> Iterator[Bench]:
    """Every error of a low-rank estimate, of a small one, as sweeps make thousands, and causal.

    The exact matrix is computed in float64 for any dtype of the estimate.
    """
    kernel = {"float64": (0.8, 0.95), "float32": (0.6, 0.75)}  # shares of the limit
    every = {"float64": (0.7, 0.8), "float32": (0.5, 0.65)}
    for name in DTYPES:
        Q, K = (x * x.dtype.type(d**-0.25) for x in gaussian((n, d), (n, d), dtype=name))
        estimate, tile = parse(f"positive(m={m})").approximate(Q, K, rng=0), min(n, TILE)

        def dense(estimate: Any = estimate, Q: Any = Q, K: Any = K) -> float:
            left, right = estimate.factors()
            whole = np.exp(Q.astype(np.float64) @ K.T.astype(np.float64))
            return float(np.linalg.norm(left @ right.T - whole) / np.linalg.norm(whole))

        sides: dict[str, Any] = {
            "every": functools.partial(compare, estimate, Q, K),
            "kernel": functools.partial(compare, estimate, Q, K, attention=False),
            "theirs": dense,
            "limit": measure.limit(
                *(((tile, width, tile), (n // tile) ** 2) for width in (d, m)),
                exponentials=n * n, dtype=np.dtype(name),
            ),
        }  # fmt: skip
        # sums of n² terms with exponents of about 10, in the dtype of the estimate
        found = sides["every"]()["kernel_relative_frobenius"]
        measure.agree(found, dense(), 1e3 * epsilon(name), f"errors, {name}")
        about = f"n = l = {n}, d = {d}, rank {m}, {name}"
        yield Bench(sides, [
            Line(f"compare, {what}, {about}", "NumPy, n × n",
                 {"share": share[name], "megabytes": (24.0, None)}, side)
            for side, what, share in (
                ("kernel", "kernel errors", kernel), ("every", "every error", every))
        ])  # fmt: skip
    Q, K = (x * d**-0.25 for x in gaussian((small, d), (small, d)))
    estimate = parse("positive(m=16)").approximate(Q, K, rng=0)
    products = (((small, d, small), 1), ((small, 16, small), 1))
    sides = {
        "ours": functools.partial(compare, estimate, Q, K),
        "limit": measure.limit(*products, exponentials=small**2, dtype=np.dtype("float64")),
    }
    work = f"compare, every error, n = l = {small}, d = {d}, rank 16, float64"
    yield Bench(sides, [Line(work, must={"share": (0.5, 0.6)})], often=20)  # milliseconds
    Q, K, V = (x * d**-0.25 for x in gaussian(*[(n // 2, d)] * 3))
    estimates = {
        mask: parse(f"positive(m={m})").approximate(Q, K, mask=mask, rng=0)
        for mask in (None, "causal")
    }
    truth = exact.attention(Q, K, V, mask="causal")
    off = np.linalg.norm(estimates["causal"].attend(V) - truth) / np.linalg.norm(truth)
    found = compare(estimates["causal"], Q, K, V)["output_relative_error"]
    measure.agree(found, off, 1e-9, "the error of the output")  # sums of l terms, l·eps
    sides = {str(mask): functools.partial(compare, e, Q, K, V) for mask, e in estimates.items()}
    work = f"compare, every error, causal, n = l = {n // 2}, d = {d}, rank {m}"
    yield Bench(sides, [
        Line(work, "ours without a mask", {"ratio": (1 / 0.6, None)}, "causal", "None")
    ])  # fmt: skip


@benchmark(n=16, d=4, m=8, draws=4, temperatures=2)
def moments(
    n: int = 4096, d: int = 64, m: int = 64, draws: int = 200, temperatures: int = 8
) -> Iterator[Bench]:
    """Mean and variance by Monte Carlo, against a plain loop over draws, which uses float64.

    The ratio estimate/exact of a pair depends on q + k alone, so pairs are computed as the query 0
    with the keys q_i + k_i; the loop computes features of both.
    """
    ladder = np.geomspace(0.5, 4.0, temperatures)
    for name, ts, ratio in (
        ("float64", ladder[:1], (2.2, 2.5)),
        ("float64", ladder, (5.0, 7.0)),
        ("float32", ladder[:1], (4.0, 5.2)),
    ):
        # |q + k|² ≈ ½: variances of order 1
        Q, K = (0.5 / math.sqrt(d) * x for x in gaussian((n, d), (n, d)))
        q, k = np.zeros((1, d), name), (Q + K).astype(name)
        sides: dict[str, Any] = {
            "ours": functools.partial(
                monte_carlo, parse(f"positive(m={m})"), q, k, draws=draws, rng=0, temperatures=ts
            ),
            "theirs": functools.partial(drawn, Q, K, m, draws, ts),
        }
        # q, k and exponents of order 10 round; the loop's variance is a difference
        off = 1e3 * epsilon(name)
        for one, (mean, variance) in zip(sides["ours"](), sides["theirs"]()):
            measure.agree(one.mean[0], mean, off, f"means, {name}")
            measure.agree(one.variance[0], variance, 10 * off, f"variances, {name}")
        factors = draws * m * (n + 1)
        products = (TILE, d, TILE), math.ceil(factors / TILE**2)
        sides["limit"] = measure.limit(
            products, exponentials=factors * len(ts), dtype=np.dtype(name)
        )
        about = f"d = {d}, m = {m}, {draws} draws, t: {len(ts)}, {name}"
        work = f"Monte Carlo, {n} pairs, {about}"
        yield Bench(sides, [Line(work, "NumPy, draw by draw", {"ratio": ratio})])


def drawn(Q: Any, K: Any, m: int, draws: int, temperatures: Sequence[float]) -> list[Any]:
    """Return mean and variance of estimate/exact of pairs at each temperature."""
    found = []
    for t in temperatures:
        q, k = (x / math.sqrt(t) for x in (Q, K))
        total, squares = 0.0, 0.0
        for rng in np.random.default_rng(0).spawn(draws):
            omega = rng.standard_normal((m, Q.shape[1]))
            left, right = (np.exp(x @ omega.T - (x * x).sum(axis=1)[:, None] / 2) for x in (q, k))
            ratio = np.einsum("ir,ir->i", left, right) / m / np.exp(np.einsum("id,id->i", q, k))
            total, squares = total + ratio, squares + ratio**2
        mean = total / draws
        found.append((mean, (squares - draws * mean**2) / (draws - 1)))
    return found


# Robust PCA against pyrpca and tensorly, GoDec against a full SVD per sweep

GROWTHS = (1.5, 1.2, 1.1, 1.05)  # ρ of pyrpca: its default, then slower until objectives agree
GAP = 1e-4


@benchmark(n=60, larger=80, length=64, rank=2, ts=(0.5,))
def robust_pca(
    n: int = 500, larger: int = 1000, length: int = 512, rank: int = 16,
    ts: Sequence[float] = (0.25, 0.5, 1.0, 2.0),
) -> Iterator[Bench]:  # fmt: skip
    """Exact recovery, pursuit of attention matrices, and splits at a budget."""
    yield on_golden(n, "pyrpca")
    yield on_golden(n, "tensorly")
    yield on_golden(larger, "pyrpca")
    for t in ts:
        Q, K = np.random.default_rng(0).standard_normal((2, length, 64))
        D = np.exp(Q @ K.T / (t * math.sqrt(64)))
        about = f"n = l = {length}, t = {t:g}"
        yield on_attention(f"exp(q·k), {about}", D)
        ours, theirs = (
            functools.partial(godec, D, rank, rank),
            functools.partial(full_svd, D, rank, rank * length),
        )
        yield on_budget(f"godec(rank={rank}, k={rank}), {about}", D, 3 * rank, ours, theirs)


def parts(result: Any) -> tuple[Any, Any]:
    """Return L and S of a side."""
    if isinstance(result, Decomposition):
        return result.low_rank, result.sparse.toarray()
    return result


def reached(result: Any) -> tuple[float, int, int]:
    """Return ‖L‖_* + λ‖S‖₁ at λ = 1/√n, the rank of L and the entries of S.

    Singular values below the residual of D, 1e-7, count as 0.
    """
    L, S = parts(result)
    s = np.linalg.svd(L, compute_uv=False)
    value = float(s.sum() + np.abs(S).sum() / math.sqrt(len(L)))
    return value, int(np.sum(s > 1e-6 * s[0])), int(np.count_nonzero(S))


def pursuits() -> dict[str, Callable[..., Any]]:
    """Return the importable peers, D → (L, S), all to ‖D − L − S‖_F ≤ 1e-7 ‖D‖_F."""
    peers: dict[str, Callable[..., Any]] = {}
    if (pyrpca := measure.peer("pyrpca")) is not None:
        peers["pyrpca"] = lambda D, rho=GROWTHS[0]: pyrpca.rpca_pcp_ialm(
            D, len(D) ** -0.5, rho=rho, tol=1e-7, verbose=False
        )
    if (tensorly := measure.peer("tensorly.decomposition")) is not None:
        # It counts ‖L‖_* once for each of two unfoldings, and its tolerance is absolute. With its
        # default growth of μ, 1.1 per iteration, it takes more; with 1.3, it has other entries.
        peers["tensorly"] = lambda D: tensorly.robust_pca(
            D, reg_J=0.5, reg_E=len(D) ** -0.5, tol=1e-7 * np.linalg.norm(D),
            mu_init=1.25 / np.linalg.norm(D, 2), learning_rate=1.2, n_iter_max=1000, verbose=0,
        )  # fmt: skip
    return peers


def on_golden(n: int, peer: str) -> Bench:
    """Compare solvers on matrices with exact recovery and a known optimum."""
    rank, pursue = n // 20, pursuits()
    L, S = naive.golden(n, rank, 0.05)
    sides: dict[str, Callable[[], Any]] = {"inexact_alm": lambda: inexact_alm(L + S)}
    musts: dict[str, Any] = {"inexact_alm": {}}
    if peer == "pyrpca":
        sides["acc_alt_proj"] = lambda: acc_alt_proj(L + S, rank)
        musts = {"inexact_alm": {"ratio": (15.0, 25.0)}, "acc_alt_proj": {"ratio": (20.0, 35.0)}}
    if peer in pursue:
        sides[peer] = functools.partial(pursue[peer], L + S)
    optimum, *counts = reached((L, S))
    for name, side in sides.items():
        objective, *found = reached(side())
        what = f"{name}, exact recovery, n = {n}"
        measure.agree(objective, optimum, 1e-6, f"objectives of {what}")  # L + S = D to 1e-7
        measure.agree(found, counts, 0.0, f"rank and entries of {what}")
    about = f"exact recovery, n = {n}, rank {rank}, 5% of entries"
    return Bench(sides, [
        Line(f"{name}, {about}", peer, must, name, peer) for name, must in musts.items()
    ])  # fmt: skip


def on_attention(work: str, D: Any) -> Bench:
    """Compare pursuit to a gap of 1e-4; the peer has the first ρ that reaches our objective."""
    sides: dict[str, Any] = {"ours": lambda: inexact_alm(D, gap_tolerance=GAP)}
    found, peer = sides["ours"](), "pyrpca"
    if not found.gap <= GAP:
        raise AssertionError(f"{work}: the gap is {found.gap:.2g}, allowed is {GAP:g}")
    if pursue := pursuits().get("pyrpca"):
        ours = reached(found)[0]
        for rho in GROWTHS:
            peer, sides["theirs"] = f"pyrpca, ρ = {rho:g}", functools.partial(pursue, D, rho)
            if (objective := reached(sides["theirs"]())[0]) <= ours * (1 + 1e-5):
                break
        measure.agree(ours, objective, 1e-5, f"objectives of pursuit, {work}")
    must = {"ratio": (2.0, 3.0)}
    return Bench(sides, [Line(f"inexact_alm, {work}, gap ≤ {GAP:g}", peer, must)])


def on_budget(work: str, D: Any, budget: int, ours: Any, theirs: Any) -> Bench:
    """Compare one split at a budget, in values per row, with its twin."""
    found = ours()
    stored = found.left.size + found.right.size + found.sparse.nnz
    measure.agree(stored, budget * len(D), 0.0, f"stored values of {work}")
    # ours stops at a gain of 1e-4 per sweep, before the twin, or in another local optimum
    L, S = parts(found)
    measure.agree(np.linalg.norm(D - L - S), theirs(), 1e-3, f"errors of {work}")
    sides = {"ours": ours, "theirs": theirs}
    return Bench(sides, [Line(work, "full SVD a sweep", {"ratio": (20.0, 30.0)})])


def full_svd(D: Any, rank: int, count: int) -> float:
    """Return the error from the two usual starts; a single part needs one sweep only."""
    starts = (np.zeros_like(D), naive.largest(D, count))
    sweeps = SWEEPS if rank and count else 1
    return float(min(naive.godec(D, rank, count, S, sweeps) for S in starts))


# Seconds of a start, in processes of their own

COMMANDS = {"--help": (0.3, 0.1), "methods": (0.6, 0.4)}
USED = {
    "exp_rows": "approx.parse('positive(m=4)').approximate(Q, K, rng=0)",
    "compare": "metrics.compare(approx.parse('positive(m=4)').approximate(Q, K, rng=0), Q, K)",
    "sampled": "approx.parse('scatterbrain(sparse=top_k(2))').approximate(Q, K, rng=0) @ K",
    "monomials": "approx.parse('taylor(2)').approximate(Q, K).factors()",
    "monte_carlo": "moments.monte_carlo(approx.parse('positive(m=4)'), Q, K, draws=2, rng=0)",
    "godec": "approx.parse('godec(rank=2, k=2)').approximate(Q, K)",
    "robust_pca": "approx.parse('robust_pca()').approximate(Q, K)",
}
SCRIPT = """
import numpy as np, approx, sys, time
from analysis.errors import metrics
from analysis import moments
from approx import METHODS
Q, K = np.random.default_rng(0).standard_normal((2, 24, 4)) / 4
start = time.perf_counter()
{lines}
print(time.perf_counter() - start)
"""


@benchmark(commands=("--help",), kernels=(), times=1)
def start(
    commands: Sequence[str] = tuple(COMMANDS), kernels: Sequence[str] = tuple(USED), times: int = 3
) -> Iterator[Row]:
    """The command, imports, and first calls cold and cached."""
    python = [sys.executable]
    sides = {f"expqk {x}": ([*python, "-m", "figures", x], COMMANDS[x]) for x in commands}
    sides["import approx"] = [*python, "-c", "import approx"], (0.5, 0.15)
    for work, (command, must) in sides.items():
        seconds = []
        for _ in range(times):
            begin = time.perf_counter()
            in_process(command)
            seconds.append(time.perf_counter() - begin)
        yield Row(work, min(seconds), must={"seconds": must})
    script = SCRIPT.format(lines="\n".join(USED[name] for name in kernels))
    with tempfile.TemporaryDirectory() as cache:
        for state, bars in (("cold", (6.0, 4.0)), ("cached", (1.0, None))):
            output = in_process([*python, "-c", script], NUMBA_CACHE_DIR=cache)
            work = f"first calls of {len(kernels)} kinds of estimates, {state}"
            yield Row(work, float(output), must={"seconds": bars})


def in_process(command: Sequence[str], **variables: str) -> str:
    root, variables = Path(__file__).parents[2], {"PYTHONDONTWRITEBYTECODE": ""} | variables
    done = subprocess.run(
        command, cwd=root, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
