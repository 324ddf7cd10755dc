"""Recall: by its definition, its expectation, what it does not depend on."""

import dataclasses

import naive
import numpy as np
import pytest
from refusals import refuses
from small import hiding

from analysis.experiments.support_recall import recall
from analysis.inputs import gaussian
from approx import parse
from approx.estimate import exact

X = gaussian(24, 5, rng=0)


def by_loops(on, x, k):
    seen = naive.seen(x.mask, x.n, x.l)
    weights = np.where(seen, naive.kernel(x.Q, x.K), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    recalls, masses, chances = [], [], []
    for row, held, mine in zip(weights, on, seen):
        largest = sorted(np.flatnonzero(mine), key=lambda j: -row[j])[:k]
        recalls.append(np.mean([held[j] for j in largest]))
        masses.append(sum(row[j] for j in np.flatnonzero(mine & held)))
        chances.append(np.mean(held[mine]))
    return np.mean(recalls), np.mean(masses), np.mean(chances)


@pytest.mark.parametrize("mask", [None, "causal", hiding(24, 24, 3)])
@pytest.mark.parametrize("spec", ["sliding_window(5)", "lsh(hashes=2)", "threshold(0.1)"])
def test_recall_by_its_definition(monkeypatch, spec, mask):
    monkeypatch.setattr(exact, "STRIPE", 60)  # of two rows
    x = dataclasses.replace(X, mask=mask)
    A = x.approximate(parse(spec), rng=3)
    on = A.to_dense() > 0
    found = recall(A, x, ks=(1, 4))
    for k in (1, 4):
        values = [found[name] for name in (f"recall_{k}", "mass", "chance")]
        # sums of 24·24 positive terms that add to 24
        np.testing.assert_allclose(values, by_loops(on, x, k), rtol=1e-12)
    assert found["entries"] == on.sum() / 24
    other = dataclasses.replace(X, mask="causal" if mask is None else None)
    refuses(r"has the mask .* the inputs .*: use inputs.approximate", recall, A, other)


def test_top_k_recalls_all_and_holds_the_most():
    masses = {}
    for spec in ("top_k(6)", "sliding_window(6)", "strided(6)", "random(6)"):
        found = recall(parse(spec).approximate(X.Q, X.K, rng=0), X, ks=(6,))
        masses[spec] = found["mass"]
        assert (found["recall_6"] == 1) == (spec == "top_k(6)")
    assert max(masses, key=masses.get) == "top_k(6)"


def test_expected_recall_is_the_probability_of_the_largest():
    """|z| ≤ 5: pairs of a round are dependent, so the error is taken over draws."""
    method = parse("lsh(hashes=2, rounds=2)")
    largest = parse("top_k(4)").approximate(X.Q, X.K).to_dense() > 0
    expected = method.probability(X.Q, X.K)[largest].mean()
    found = [
        recall(method.approximate(X.Q, X.K, rng=seed), X, ks=(4,))["recall_4"]
        for seed in range(400)
    ]
    assert abs(np.mean(found) - expected) <= 5 * np.std(found, ddof=1) / 20


@pytest.mark.parametrize("spec", ["lsh(hashes=2)", "smyrf(4)", "reformer(4)", "top_k(3)"])
def test_recall_does_not_depend_on_the_temperature(spec):
    hot, cold = X.at_temperature(4.0), X.at_temperature(0.25)  # powers of two: no rounding
    found = [recall(parse(spec).approximate(x.Q, x.K, rng=1), x, ks=(1, 8)) for x in (hot, cold)]
    assert all(found[0][key] == found[1][key] for key in ("entries", "recall_1", "recall_8"))
    assert found[0]["mass"] < found[1]["mass"]


def test_what_has_no_support_has_no_recall():
    one, some = (parse(spec).approximate(X.Q, X.K) for spec in ("one()", "top_k(3)"))
    refuses("needs an approximation with a support", recall, one, X)
    refuses("k must be <= 24", recall, some, X, ks=(25,))
