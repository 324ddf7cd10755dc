"""Bounds of sampled rows: against plain loops, and how often they fail, over all draws."""

import functools
import itertools
import math

import numpy as np
import pytest
import scipy.sparse
from each import each
from refusals import refuses

from analysis import inputs
from analysis.bounds.concentration import PROVED, lower, upper
from analysis.bounds.sampling_intervals import NORMAL, upper_bounds
from approx import Approximation, Mask, parse
from approx.baselines import Zero
from approx.combinations.sampled import Sampled
from approx.estimate.corrections import Support

TINY = 1e-9  # logs are widened by 1e-12; sums of some 10² terms
ERRORS = ("row_sum", "attention_tv", "output_absolute_error")


def truth(estimate, Q, K, V):
    """Errors of each row, from dense matrices."""
    seen = estimate.mask.visible()
    kernel = np.where(seen, np.exp(Q @ K.T), 0.0)
    total, of_estimate = kernel.sum(axis=1), estimate.to_dense().sum(axis=1)
    P, found = kernel / total[:, None], estimate.to_dense() / of_estimate[:, None]
    off = np.linalg.norm((P - found) @ V, axis=1)
    return np.abs(of_estimate / total - 1), np.abs(P - found).sum(axis=1) / 2, off


def twin(i, estimate, Q, K, V, delta, kind, size):
    """The bounds of row i of a uniform draw, from boxes, in loops."""
    support, mask = estimate.correction, estimate.mask
    a, z = support.matrix.indptr[i : i + 2]
    weights = dict(zip(support.matrix.indices[a:z].tolist(), support.weights[a:z].tolist()))
    keys = range(mask.first[i], mask.stop[i])
    x = {j: math.exp(Q[i] @ K[j]) for j in keys}
    held = [j for j in weights if weights[j] == 1]
    drawn = [j for j in weights if weights[j] != 1]
    unread = [j for j in keys if j not in weights]
    low, high, far = {}, {}, {}
    centre = sum(x[j] * V[j] for j in held) / sum(x[j] for j in held)
    for j in [*unread, *drawn]:
        page = slice(j // size * size, min(j // size * size + size, len(K)))
        products = [(q * K[page, c].min(), q * K[page, c].max()) for c, q in enumerate(Q[i])]
        low[j] = math.exp(sum(min(pair) for pair in products))
        high[j] = math.exp(sum(max(pair) for pair in products))
        ends = V[page].min(axis=0), V[page].max(axis=0)
        far[j] = np.linalg.norm(sum(ends) / 2 - centre) + np.linalg.norm(ends[1] - ends[0]) / 2
    N, b = len(drawn) + len(unread), len(drawn)
    R = N * max(high.values())
    y = np.array([N * x[j] for j in drawn]) / R
    read, whole = sum(x[j] for j in weights), sum(weights[j] * x[j] for j in weights)
    of_held = sum(x[j] for j in held)

    def total(level):
        ends = (R * f(y, level, kind=kind, population=N) + of_held for f in (lower, upper))
        least, most = ends
        return max(least, read + sum(low[j] for j in unread)), min(
            most, read + sum(high[j] for j in unread)
        )

    def relative(level):
        least, most = total(level)
        return max(whole / least - 1, 1 - whole / most)

    most = total(delta)[1]
    tv = sum(max(weights[j] * x[j] / whole - x[j] / most, 0) for j in weights)
    output = sum(weights[j] * x[j] * V[j] for j in weights) / whole
    vectors = np.array([N * x[j] * (V[j] - centre) for j in drawn])
    sizes = np.linalg.norm(vectors, axis=1)
    S = max(N * high[j] * far[j] for j in high)
    L, half = math.log(8 / delta), math.log(4 / delta) / (2 * b)
    deviation = math.sqrt(np.mean((sizes / S) ** 2) + half) + math.sqrt(half)
    chance = S * (2 * L / b + math.sqrt(2 * L / b) * deviation)
    sure = np.linalg.norm(vectors.mean(axis=0) - vectors.sum(axis=0) / N)
    sure += sum(high[j] * far[j] for j in unread)
    error = min(chance, sure) / total(delta / 4)[0]
    error += np.linalg.norm(output - centre) * relative(delta / 4)
    reach = 0.0
    for page in {j // size for j in keys}:
        ends = [f(V[page * size : (page + 1) * size], axis=0) for f in (np.min, np.max)]
        reach = max(reach, np.linalg.norm(sum(ends) / 2 - output)
                    + np.linalg.norm(ends[1] - ends[0]) / 2)  # fmt: skip
    return relative(delta / 2), tv, min(error, reach)


@each("kind", PROVED)
def test_bounds_are_those_of_plain_loops(kind):
    x = inputs.gaussian(30, 3, rng=0).at_temperature(2.0)
    method = parse("sampled(sparse=sink_window(k=4, sinks=2), k=6)")
    for mask in ("causal", None):
        estimate = method.approximate(x.Q, x.K, mask=mask, rng=0)
        given = {"delta": 0.2, "kind": kind, "size": 8}
        found = upper_bounds(estimate, x.Q, x.K, x.V, method=method, **given)
        for i in (15, 29):
            expected = twin(i, estimate, x.Q, x.K, x.V, **given)
            np.testing.assert_allclose(
                found.loc[i, list(ERRORS)].astype(float), expected, rtol=TINY
            )


def all_draws(Q, K, b):
    """An estimate with a row for every draw of b different keys, beside key 0, which is held."""
    every = list(itertools.combinations(range(1, len(K)), b))
    n, l = len(every), len(K)
    mask = Mask(np.zeros(n, int), np.full(n, l), l, True)
    keys = np.array([(0, *some) for some in every])
    queries = np.tile(Q, (n, 1))
    logits = np.take_along_axis(queries @ K.T, keys, axis=1)
    indptr = np.arange(0, keys.size + 1, b + 1)
    matrix = scipy.sparse.csr_array((logits.ravel(), keys.ravel(), indptr), shape=(n, l))
    weights = np.tile([1.0, *[(l - 1) / b] * b], n)
    nothing = Zero().approximate(queries, K, mask=mask).low
    return Approximation(nothing, Support(matrix, weights), mask=mask), queries


@each("kind", PROVED)
def test_over_all_draws_no_bound_fails_for_more_than_delta(kind):
    rng = np.random.default_rng(3)
    method = parse("sampled(sparse=sink_window(k=1), k=4)")
    for scale in (0.3, 3.0):  # alike; one key that has all
        K, V = scale * rng.standard_normal((8, 1)), rng.standard_normal((8, 2))
        estimate, Q = all_draws(np.ones((1, 1)), K, 4)
        true = truth(estimate, Q, K, V)
        for delta in (0.5, 0.1):
            for largest in ("boxes", np.full(len(Q), K[1:].max())):
                asked = {"delta": delta, "kind": kind, "largest": largest, "size": 3}
                found = upper_bounds(estimate, Q, K, V, method=method, **asked)
                for name, exactly in zip(ERRORS, true):
                    assert (found[name] < exactly - TINY).mean() <= delta


def test_the_normal_one_fails_where_one_key_has_all():
    K = np.array([0.0, *[0.0] * 7, 5.0])[:, None]
    estimate, Q = all_draws(np.ones((1, 1)), K, 4)
    method = parse("sampled(sparse=sink_window(k=1), k=4)")
    found = upper_bounds(estimate, Q, K, method=method, kind="normal", size=9)
    failed = found.row_sum < truth(estimate, Q, K, K)[0] - TINY
    assert failed.mean() == pytest.approx(0.5)  # half of all draws miss the key
    assert set(found.assumes) == {NORMAL}


def test_a_page_of_one_key_leaves_nothing_to_chance():
    rng = np.random.default_rng(6)
    K = rng.standard_normal((9, 2))
    estimate, Q = all_draws(rng.standard_normal((1, 2)), K, 4)
    method = parse("sampled(sparse=sink_window(k=1), k=4)")
    found = upper_bounds(estimate, Q, K, method=method, size=1)
    for name, exactly in zip(ERRORS, truth(estimate, Q, K, K)[:2]):
        np.testing.assert_allclose(found[name], exactly, atol=TINY)


@pytest.mark.parametrize("kind", PROVED)
def test_bounds_of_the_output_follow_the_unit_of_the_values(kind):
    rng = np.random.default_rng(1)
    Q, K, V = (rng.standard_normal((rows, 2)) for rows in (4, 40, 40))
    method = parse("sampled(sparse=sink_window(k=2), k=20)")
    estimate = method.approximate(Q, K, rng=0)
    unit = 2.0**-560  # its square is no float
    one, small = (
        upper_bounds(estimate, Q, K, v, method=method, kind=kind, size=4).output_absolute_error
        for v in (V, unit * V)
    )
    np.testing.assert_allclose(small / unit, one, rtol=1e-12)  # its log, some 400, rounds by 1e-13


def test_draws_with_replacement_count_as_often_as_they_are_drawn():
    rng = np.random.default_rng(4)
    K, V = rng.standard_normal((12, 2)), rng.standard_normal((12, 1))
    n = 200
    mask = Mask(np.zeros(n, int), np.full(n, 12), 12, True)
    Q = np.tile(rng.standard_normal((1, 2)), (n, 1))
    for more in ("", ", sparse=sink_window(k=3), sizes='bound'"):
        method = parse(f"sampled(design='multinomial', k=10{more})")
        estimate = method.approximate(Q, K, mask=mask, rng=0)
        true = truth(estimate, Q, K, V)
        for kind in PROVED:
            asked = {"delta": 0.3, "kind": kind, "size": 4}
            found = upper_bounds(estimate, Q, K, V, method=method, **asked)
            assert (found.drawn == 10).all()
            for name, exactly in zip(ERRORS, true):
                # 5 standard errors of a share of 0.3
                assert (found[name] < exactly - TINY).mean() <= 0.3 + 5 * math.sqrt(0.21 / n)
    one = found.iloc[0]
    weights = estimate.correction.weights[: estimate.correction.matrix.indptr[1]]
    assert one.unread == 12 - len(weights)


def test_what_is_read_whole_is_exact():
    x = inputs.gaussian(12, 4, rng=0).at_temperature(1.0)
    method = Sampled(k=12)
    estimate = method.approximate(x.Q, x.K, mask="causal", rng=0)
    found = upper_bounds(estimate, x.Q, x.K, x.V, method=method)
    assert found[list(ERRORS)].to_numpy().max() < TINY
    assert not found.unread.any()


def test_the_least_that_top_k_holds_bounds_the_rest():
    x = inputs.sample("smollm2").at(17, 4).first(128)
    method = parse("sampled(sparse=top_k(k=16), k=16)")
    estimate = x.approximate(method, rng=0)
    true = truth(estimate, x.Q, x.K, x.V)
    asked = {"method": method, "kind": "betting"}
    by_boxes, by_held = (
        upper_bounds(estimate, x.Q, x.K, x.V, largest=largest, **asked)
        for largest in ("boxes", "held")
    )
    for name, exactly in zip(ERRORS, true):
        assert (by_held[name] <= by_boxes[name] * (1 + TINY)).all()
        assert (by_held[name] >= exactly * (1 - TINY) - TINY).mean() > 0.9
    assert by_held.attention_tv.iloc[64:].median() < 0.2
    assert by_boxes.attention_tv.iloc[64:].median() > 0.8


def test_each_row_has_as_many_draws_as_its_pilot_asked_for():
    x = inputs.gaussian(64, 4, rng=0).at_temperature(0.7)
    method = Sampled(k=8, epsilon=0.2, delta=0.1)
    estimate = x.approximate(method, rng=0)
    found = upper_bounds(estimate, x.Q, x.K, method=method, kind="hoeffding")
    some = found[found.unread > 0]
    assert some.drawn.nunique() > 5
    assert (some.drawn + some.unread == 64).all()


@pytest.mark.filterwarnings("error")
def test_large_logits_give_neither_nan_nor_warning():
    rng = np.random.default_rng(5)
    Q, K = 100 * rng.choice([-1.0, 1.0], (6, 1)), 100 * rng.uniform(-1, 1, (40, 1))
    for spec in ("sampled(k=4)", "sampled(design='multinomial', sizes='bound', k=4)"):
        method = parse(spec)
        estimate = method.approximate(Q, K, rng=0)
        for largest, kind in itertools.product(("boxes", "read"), (*PROVED, "normal")):
            asked = {"method": method, "kind": kind, "largest": largest, "size": 8}
            found = upper_bounds(estimate, Q, K, K, **asked)
            assert not found[list(ERRORS)].isna().any(axis=None)
            assert (found.attention_tv <= 1).all()
            assert (found.output_absolute_error < np.inf).all()


def test_where_nothing_is_proved_it_is_refused():
    Q = K = np.eye(4)
    for options, text in (
        ("design='systematic', k=2", "not systematic"),
        ("design='lsh', hashes=2, tables=4", "not lsh"),
        ("k=2, shared=True", "not of one that is shared"),
        ("k=2, weighted=False", "not of weighted=False"),
        ("k=2, low_rank=positive(m=2)", "nothing of low rank is beneath"),
        ("design='multinomial', sparse=random(k=2), k=2", "supports that draw nothing"),
    ):
        method = parse(f"sampled({options})")
        refuses(text, upper_bounds, method.approximate(Q, K, rng=0), Q, K, method=method)


def test_what_does_not_fit_is_refused():
    x = inputs.gaussian(8, 2, rng=0)
    method = Sampled(k=2)
    estimate = method.approximate(x.Q, x.K, rng=0)
    asked = functools.partial(upper_bounds, estimate, x.Q, x.K, method=method)
    for spec in ("top_k(k=2)", "sampled(sparse=top_k(k=2), design='multinomial', k=3)"):
        other = parse(spec).approximate(x.Q, x.K, rng=0)
        refuses("the estimate is not one that", upper_bounds, other, x.Q, x.K, method=method)
    refuses("the estimate is not one that", asked, method=Sampled(k=3, design="multinomial"))
    refuses('largest="held" needs the support top_k', asked, largest="held")
    refuses("largest must be a log for each of 8 queries", asked, largest=[1.0])
    refuses("the estimate has shape", upper_bounds, estimate, x.Q[:4], x.K, method=method)
