"""What theory says of a head: each row against plain loops, and where a hypothesis is met."""

import dataclasses
import itertools
import json
import math
import tracemalloc

import mpmath
import naive
import numpy as np
import pandas as pd
import pytest
from each import each
from refusals import refuses
from scipy.stats import norm

from analysis.bounds import theory
from analysis.bounds.theory import THEORIES
from analysis.inputs import Head
from approx.estimate import exact
from approx.low_rank.coreset import Coreset
from approx.low_rank.thinning import thinned
from approx.polynomials import error_bounds
from figures.command import options, theory as theories

TIGHT = 1e-9  # decompositions of 40 × 40, and sums of some 10³ terms


def head(n=40, d=3, mask="causal", seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    q, k = scale * rng.standard_normal((2, n, d))
    return Head("head", q, k, rng.standard_normal((n, 2)), mask=mask)


def rows(x, **options):
    return theory.predictions(x, **{"keys": 8} | options).set_index("theory")


def test_entries_are_those_of_logits_over_d():
    x = head()
    n, d = x.q.shape
    # q·k/√d = (d^¼ q)·(d^¼ k)/d; channel c of q times a, and of k over a, is best where both are
    # the root of the product of their largest
    largest = [math.sqrt(np.abs(x.q[:, c]).max() * np.abs(x.k[:, c]).max()) for c in range(d)]
    B = d**0.25 * max(largest)
    found = rows(x)
    one, any_basis = found.loc["bounded entries"], found.loc["in any basis"]
    assert one.value == pytest.approx(B / math.sqrt(math.log(n)), rel=TIGHT)
    most = max(abs(float(q @ k)) for q, k in itertools.product(x.Q, x.K))
    assert any_basis.value == pytest.approx(math.sqrt(most / math.log(n)), rel=TIGHT)
    assert any_basis.value <= one.value * (1 + TIGHT)
    degree = error_bounds.minimum_degree("chebyshev", most, 0.1, "relative", exact=False)
    assert one.predicted == math.comb(d + degree, degree)
    kernel = naive.kernel(x.Q, x.K)
    s = np.linalg.svd(kernel / kernel.sum(axis=1, keepdims=True), compute_uv=False)
    least = next(r for r in range(n) if (s[r:] ** 2).sum() <= 0.01 * (s**2).sum())
    assert one.measured == least


def test_small_entries_meet_what_large_ones_do_not():
    small, large = (rows(head(scale=scale)).loc["bounded entries"] for scale in (0.1, 3.0))
    assert small.met
    assert not large.met
    few, many = (rows(head(d=d)).loc["any temperature"] for d in (3, 12))
    assert few.met
    assert few.predicted == pytest.approx(40 ** (1 / 3))
    assert not many.met


def test_the_coreset_is_the_smallest_that_is_near_enough():
    x = head()
    found = rows(x).loc["coreset"]
    centred = x.K - x.K.mean(axis=0)
    rho = np.linalg.norm(x.Q, axis=1).max() * np.linalg.norm(centred, axis=1).max()
    assert found.value == pytest.approx(rho)
    assert found.predicted == pytest.approx(math.sqrt(3) * math.exp(rho) / 0.1)
    assert not found.met
    exact = naive.attention(x.Q, x.K, x.V)
    limit = 0.1 * np.linalg.norm(x.V, axis=1).max()

    def worst(size):
        estimate = Coreset(rank=size).approximate(x.Q, x.K, rng=np.random.default_rng(0))
        return np.linalg.norm(estimate.attend(x.V) - exact, axis=1).max()

    assert worst(int(found.measured)) <= limit < worst(int(found.measured) // 2)
    sphere = x.k / np.linalg.norm(x.k, axis=1, keepdims=True)
    both = np.concatenate([sphere, -sphere])  # of mean 0, and of norm 1
    assert rows(Head("unit", x.q, both, mask=None)).loc["coreset"].met


def test_pairs_with_a_large_entry_are_counted():
    x = head(n=40, d=2, scale=2.0)
    threshold = math.sqrt(math.log(40))
    tops = [np.abs(a).max(axis=0) * 2**0.25 for a in (x.q, x.k)]
    scale = np.sqrt(tops[1] / tops[0])
    q, k = 2**0.25 * x.q * scale, 2**0.25 * x.k / scale
    large = [max(np.abs(a).max(), np.abs(b).max()) > threshold for a in q for b in k]
    found = rows(x).loc["support basis"]
    assert found.measured == pytest.approx(np.mean(large))
    stays = [(1 - 2 * norm.sf(threshold / np.sqrt(np.mean(a**2)))) ** 2 for a in (q, k)]
    assert found.predicted == pytest.approx(1 - math.prod(stays))
    assert found.met
    outlier = x.q.copy()
    outlier[0, 0] = 500.0
    assert not rows(Head("outlier", outlier, x.k)).loc["support basis"].met


def test_the_largest_of_normal_logits_are_as_many_as_the_law_says():
    n, sigma = 4096, 1.5
    rng = np.random.default_rng(0)
    x = Head("normal", np.ones((2, 1)), sigma * rng.standard_normal((n, 1)), scaling=1.0)
    found = theory._gaussian_logits(theory.Case(x, 0.1, 8, 0))
    assert found.met
    assert found.value == pytest.approx(sigma, rel=5 / math.sqrt(2 * n))
    assert found.predicted == pytest.approx(norm.sf(found.value + norm.ppf(0.1)))
    # k/n for tv ≤ ε; of heavy tails a sample of 4096 knows the mass to a few per cent
    assert found.measured == pytest.approx(found.predicted, rel=0.1)
    keys = np.exp(2 * rng.standard_normal((n, 1)))
    other = theory._gaussian_logits(theory.Case(Head("heavy", x.q, keys, scaling=1.0), 0.1, 8, 0))
    assert not other.met


@each("mask", ["causal", None])
def test_sampling_rank_states_and_columns_are_those_of_plain_sums(mask):
    x = head(mask=mask)
    n, k = 40, 8
    seen = naive.seen(mask, n, n)
    P = np.where(seen, naive.kernel(x.Q, x.K), 0.0)
    P /= P.sum(axis=1, keepdims=True)
    found = rows(x)
    errors, effective = [], []
    for row, there in zip(P, seen):
        p = row[there] * there.sum()  # numbers of mean 1, of which k are drawn
        if len(p) > k:
            effective.append(1 / (row**2).sum())
            errors.append(math.sqrt((1 - k / len(p)) * p.var(ddof=1) / k))
    assert found.loc["sampling"].value == pytest.approx(np.median(effective))
    assert found.loc["sampling"].predicted == pytest.approx(np.median(errors))
    assert found.loc["sampling"].measured == pytest.approx(np.median(errors), rel=0.5)
    U, s, Vt = np.linalg.svd(P)
    nearest = (U[:, :k] * s[:k]) @ Vt[:k]
    size = np.linalg.norm(P)
    one = found.loc["rank"]
    assert one.predicted == pytest.approx(np.linalg.norm(P - nearest) / size)
    assert one.measured == pytest.approx(np.linalg.norm((P - nearest)[seen]) / size)
    assert one.met == (mask is None)
    assert one.measured <= one.predicted * (1 + TIGHT)
    one = found.loc["columns"]
    stable = [np.linalg.norm(a) ** 2 / np.linalg.norm(a, 2) ** 2 for a in (P, x.V)]
    assert one.value == pytest.approx(stable[0])
    assert one.predicted == pytest.approx(math.sqrt(math.prod(stable) / k))
    assert 0 < one.measured <= one.predicted
    one = found.loc["states"]
    assert one.predicted <= one.measured


def test_the_command_says_it_of_each_head_or_of_all(tmp_path, printed, monkeypatch):
    x = head(n=16)
    file = tmp_path / "qk.npz"
    np.savez(file, q=x.q[None].repeat(2, 0), k=x.k[None].repeat(2, 0), causal=1)
    asked = []
    one_by_one = theories.engines.results

    def counted(*arguments, jobs, **options):
        asked.append(jobs)
        return one_by_one(*arguments, **options)

    monkeypatch.setattr(theories.engines, "results", counted)
    assert printed("theory", file, "--jobs", "3")
    assert asked == [1]  # for so few entries no process is begun
    monkeypatch.setattr(options, "OWN_PROCESS", 256)
    said = printed("theory", file, "--jobs", "3")
    assert asked == [1, 3]
    assert said.count("bounded entries") == 4  # two heads, both, and what it is
    assert max(map(len, said.splitlines())) <= theories.COLUMNS
    found = json.loads(printed("theory", file, "--heads", "0.1", "--json", "--lang=zh"))
    assert [one["theory"] for one in found] == [str(theory.name) for theory in THEORIES]
    assert [one["met"] for one in found if one["theory"] == "rank"] == [False]
    one = rows(head(n=24)).reset_index()
    table = pd.concat([one.assign(head=i) for i in range(9)])
    assert "Medians over 9 heads:" in theories._text(table)
    assert "9 of 9" in theories._text(table)


@pytest.mark.filterwarnings("error")
def test_nothing_depends_on_the_unit_of_the_values():
    x = head(seed=5)
    small = dataclasses.replace(x, v=2.0**-560 * x.v)  # whose squares are 0
    pd.testing.assert_frame_equal(rows(small), rows(x))


def test_extreme_logits_give_numbers_or_none():
    for scale in (0.0, 5e-324, 1e-160, 200.0):
        x = head(n=12, d=2, scale=scale)
        found = rows(x, keys=4)
        assert found.value.drop("normal logits").notna().all(), scale
    silent = np.column_stack([x.q, 0 * x.q[:, :1]]), np.column_stack([x.k, x.k[:, :1]])
    found = theory.Case(Head("silent", *silent, scaling=x.scaling), 0.1, 8, 0)
    assert np.isfinite(found.q).all()  # a channel of which all queries are 0 has no logits
    assert not found.k[:, 2].any()
    without = Head("no values", x.q, x.k)
    assert np.isnan(rows(without, keys=4).loc["columns"].measured)


def test_errors_say_what_is_wrong():
    refuses("epsilon must be below 1", theory.predictions, head(), epsilon=1.0)
    refuses("keys must be at most 8", theory.predictions, head(n=8), keys=9)


@each("scale", [0.3, 1.0, 3.0])
def test_the_degree_is_where_a_chebyshev_series_is_near_enough(scale):
    x = head(scale=scale)
    found = rows(x).loc["degree"]
    logits = x.logits()
    B = max(float(np.ptp(row[row > -np.inf])) for row in logits)
    assert found.value == pytest.approx(B, rel=TIGHT)
    points = np.cos(np.pi * (np.arange(400) + 0.5) / 400)  # nodes: coefficients are sums over them
    coefficients = np.polynomial.chebyshev.chebfit(points, np.exp(-B / 2 * (points + 1)), 99)
    grid = np.linspace(-1, 1, 2001)

    def off(degree):
        cut = np.polynomial.chebyshev.chebval(grid, coefficients[: degree + 1])
        return np.abs(cut - np.exp(-B / 2 * (grid + 1))).max()

    degree = int(found.measured)
    assert off(degree) <= 0.1 * (1 + 1e-9)
    assert degree == 0 or off(degree - 1) > 0.1
    assert 0.2 < (found.measured + 1) / (found.predicted + 1) < 5  # the order, at a constant of 1


def test_the_degree_of_huge_logits_takes_no_array_of_them():
    """For B → ∞, e^{−B/2} I_k(B/2) is normal in k: the tail is erfc((n + ½)/√B) + O(1/B)."""
    x = head(n=8, scale=3e3)
    tracemalloc.start()
    found = theory._degree(theory.Case(x, 0.1, 8, 0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    root = float(mpmath.erfinv(0.9)) * math.sqrt(found.value)
    assert found.value > 1e7
    assert found.measured == math.ceil(root - 0.5)
    assert peak < 2**23  # an array of B numbers would have 80 MB


def test_the_gap_scale_bounds_the_largest_weight_from_both_sides():
    rng = np.random.default_rng(0)
    for _ in range(100):
        z = 10 ** rng.uniform(-1, 1) * rng.standard_normal(rng.integers(2, 60))
        beta, gap, _ = theory.gap_scale(z)
        gaps = sorted(max(z) - z)
        counts = [sum(g <= x for g in gaps) for x in gaps[1:]]
        assert beta == pytest.approx(max(math.log(c) / g for c, g in zip(counts, gaps[1:])))
        for b in beta * np.array([0.1, 0.5, 0.9, 1.1, 2.0, 10.0]):
            largest = 1 / np.exp(b * (z - z.max())).sum()
            if b > beta:
                assert largest >= 1 - beta / b - 1e-12
            else:
                assert largest <= math.exp(-(beta - b) * gap) + 1e-12
    x = head(scale=3.0)
    found = rows(x).loc["critical temperature"]
    values = [theory.gap_scale(row[row > -np.inf])[0] for row in x.logits()[1:]]
    assert found.value == pytest.approx(np.median(values))
    P = exact.softmax(x.Q, x.K, x.mask)
    assert found.measured == pytest.approx(np.median(P.max(axis=1)[1:]))
    assert found.met == (found.value < 1)


def test_space_and_discrepancy_are_those_of_plain_sums():
    x = head(mask=None)
    found = rows(x)
    space, halves = found.loc["streaming space"], found.loc["discrepancy"]
    r = max(map(np.linalg.norm, x.Q)) * max(map(np.linalg.norm, x.K))
    assert space.value == pytest.approx(r)
    assert space.predicted == pytest.approx(min(100.0, 3 * math.exp(2 * r)))
    k = x.K - x.K.mean(axis=0)
    length, longest = max(map(np.linalg.norm, k)), max(map(np.linalg.norm, x.V))
    bounds = [
        math.log(40 / 0.1) * math.exp(np.linalg.norm(q) * length) / sum(np.exp(k @ q)) for q in x.Q
    ]
    assert halves.predicted == pytest.approx(np.median(bounds))
    P, off = exact.softmax(x.Q, x.K), []
    rng = np.random.default_rng(0)
    for _ in range(theory.DRAWS):
        kept = set(thinned(k, 20, rng).tolist())
        values = [v if j in kept else -v for j, v in enumerate(x.V)]
        off.append([np.linalg.norm(sum(p * v for p, v in zip(row, values))) for row in P])
    assert halves.measured == pytest.approx(np.median(off) / longest)
