"""The baselines: means of what is seen."""

import naive
import numpy as np
from hypothesis import given, strategies as st
from small import hiding, problems

from approx import parse


@given(problems(dtypes=[np.float64]), st.integers(0, 99))
def test_means_are_over_what_is_seen(problem, seed):
    Q, K, V, _ = problem
    mask = hiding(len(Q), len(K), seed)
    on, D = naive.seen(mask, len(Q), len(K)), naive.kernel(Q, K)
    means = [D[i, row].mean() for i, row in enumerate(on)]
    wanted = {
        "zero": np.zeros_like(D),
        "one": on,
        "constant": D[on].mean() * on,
        "uniform": np.array(means)[:, None] * on,
    }
    for name, want in wanted.items():
        A = parse(name).approximate(Q, K, mask=mask)
        np.testing.assert_allclose(A.to_dense(), want, rtol=1e-13)  # sums of ≤ 64 exponentials
        if name != "zero":
            past = np.array([V[row].mean(axis=0) for row in on])
            np.testing.assert_allclose(A.attend(V), past, rtol=1e-12, atol=1e-13)
