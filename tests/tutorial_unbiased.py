"""Is an estimate of exp(q·k) unbiased? A test to read: derivation, z, a planted bug, its power.

One positive random feature is φ(x) = exp(ω·x − |x|²/2) with ω ~ N(0, I), and E exp(ω·u) =
exp(|u|²/2) for every u. With u = q + k it estimates exp(q·k) without bias:

    E φ(q)·φ(k) = exp(|q + k|²/2 − |q|²/2 − |k|²/2) = exp(q·k).

With u = 2(q + k), its second moment is E (φ(q)·φ(k))² = exp(2|q + k|² − |q|² − |k|²). Divided by
exp(2q·k) this is exp(|q + k|²), so that the relative variance is exp(|q + k|²) − 1. The mean of m
independent features has 1/m of it. As m is large, the mean is nearly normal, and

    z = (estimate / exp(q·k) − 1) / σ,    σ = √((exp(|q + k|²) − 1) / m),

has mean 0 and variance 1 *if there is no bias*. Its σ is the formula's and not that of the sample:
a sample may miss the rare large values, and then its own standard error is too small.
"""

import math

import numpy as np
from hypothesis import given, strategies as st
from scipy.stats import norm

from approx import parse

M = 10_000
LIMIT = 5  # |z| of a normal z is above it in 6 of 10⁷ tests

# |q|, |k| ≤ 1/2, so |q + k| ≤ 1 and σ ≤ √(1.72 / 10 000) = 1.3 %: the mean is nearly normal there.
vectors = st.lists(st.floats(-0.25, 0.25), min_size=4, max_size=4).map(np.array)
seeds = st.integers(0, 2**32 - 1)
Q = K = np.full(4, 0.25)  # where σ is largest


def ratio(q, k, seed):
    """Return the estimate over exp(q·k), whose mean is 1 without a bias."""
    estimate = parse(f"positive(m={M})").approximate(q[None], k[None], rng=seed)
    return estimate.to_dense()[0, 0] / math.exp(q @ k)


def sigma(q, k):
    return math.sqrt(math.expm1((q + k) @ (q + k)) / M)


def noticed(found, q, k):
    """Whether |z| > 5, multiplied out, since σ = 0 at q = −k; 10⁻¹² is for rounding."""
    return abs(found - 1) > LIMIT * sigma(q, k) + 1e-12


@given(vectors, vectors, seeds)
def test_positive_features_are_unbiased(q, k, seed):
    assert not noticed(ratio(q, k, seed), q, k)


@given(seeds)
def test_a_planted_bug_is_noticed(seed):
    """φ(k) without its −|k|²/2 multiplies the estimate by exp(1/8): 13 %, which is 10σ."""
    assert noticed(ratio(Q, K, seed) * math.exp(K @ K / 2), Q, K)


def test_the_power_is_what_a_normal_z_says():
    """A relative bias b moves z by b/σ, so that |z| > 5 with probability Φ(b/σ − 5).

    Here σ = 1.3 %: a bias of 5σ = 6.6 % is noticed in half of all runs, 6.3σ = 8.3 % in 90 %, and
    one of 2σ hardly ever. Smaller ones take a larger m: b falls as 1/√m.
    """
    runs = 300
    found = np.array([ratio(Q, K, seed) for seed in range(runs)])
    for shift in (2.0, 5.0, 6.3):
        power = norm.cdf(shift - LIMIT)
        share = np.mean([noticed(x + shift * sigma(Q, K), Q, K) for x in found])
        assert abs(share - power) < 5 * math.sqrt(power * (1 - power) / runs) + 0.02  # 2 %: skew
