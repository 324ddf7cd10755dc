"""The reason why a Performer is off by 70 %: d = 128, m = 1024, Gaussian inputs."""

import dataclasses

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.advice.pitfalls import RawQR, with_eps
from analysis.experiments.profile import Profile, trials
from analysis.inputs import Head
from analysis.moments import expected_error, features_needed
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row, head, numbers
from approx import Method, parse
from approx.checks import Array, required
from approx.estimate import exact
from approx.kernels.threads import one_thread
from approx.random_features.positive import Positive

D, COUNT, M = 128, 512, 1024
SIZES = tuple(2**j for j in range(4, 13))
FAMILIES = "positive", "generalized_exponential"
EPS = 1e-4
WITH_EPS = f"positive + eps={EPS:g}"
TARGET = 0.1
TIMES = 5
ASKED = 24  # tokens of the question; its error is mean |difference| over mean |output|


def sized(family: str, m: int) -> Method:
    """Return a family with m features."""
    return dataclasses.replace(parse(family), m=m)  # type: ignore[type-var]


def _head(x: Head, spec: str, m: int, trial: int) -> Row:
    budget = -1.0 if m < 0 else m * (x.n + x.l) / x.n
    return head(x, spec, budget, trial)


def _relative(x: Array, truth: Array) -> float:
    return float(np.linalg.norm(x) / np.linalg.norm(truth))


def _errors(x: Head, family: str, m: int, count: int, seed: int) -> list[Row]:
    Q, K, V, method = x.Q, x.K, required(x.V), sized(family, m)
    spec, rows = str(method), list[Row]()
    expected = required(expected_error(method, Q, K))
    rows += numbers(_head(x, spec, m, -1), expected_kernel_relative_frobenius=expected)
    truth = exact.attention(Q, K, V)
    for trial, stream in trials(method, x, count, seed):
        output = method.approximate(Q, K, rng=np.random.default_rng(stream)).attend(V)
        error = _relative(output - truth, truth)
        rows += numbers(_head(x, spec, m, trial), output_relative_error=error)
        if isinstance(method, Positive):
            rng = np.random.default_rng(stream)  # the same frequencies, so that only eps differs
            faulty = with_eps(method, Q, K, eps=EPS, rng=rng).attend(V)
            error = _relative(faulty - truth, truth)
            rows += numbers(_head(x, WITH_EPS, m, trial), output_relative_error=error)
    return rows


def faulty_label(eps: float) -> str:
    """Return the name of a Performer with both faults of public code."""
    return f"positive, raw QR + eps={eps:g}"


def _asked(seed: int) -> list[Row]:
    """Return the errors of the question: 24 tokens, raw QR, fresh inputs every time."""
    rows = list[Row]()
    method = Positive(M, RawQR())
    for trial in range(TIMES):
        x = data.gaussian(ASKED, D, rng=seed_sequence(seed, "question", trial))
        V = required(x.V)
        truth = exact.attention(x.Q, x.K, V)
        rng = seed_sequence(seed, "draw", trial)
        outputs = {
            faulty_label(eps): with_eps(method, x.Q, x.K, eps=eps, rng=np.random.default_rng(rng))
            for eps in (EPS, 0.0)
        } | {"uniform()": parse("uniform()").approximate(x.Q, x.K)}
        answers = {label: estimate.attend(V) for label, estimate in outputs.items()}
        size = np.abs(truth).mean()
        for label, output in answers.items():
            error = np.abs(output - truth).mean() / size
            rows += numbers(_head(x, label, M, trial), mean_absolute_error=error)
    return rows


def _needed(x: Head, family: str) -> Row:
    needed = features_needed(parse(family), TARGET, x.Q, x.K)
    return (*_head(x, str(sized(family, M)), -1, -1), "features_needed", needed, np.nan)


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors against m; the budget is 2m values per query row.

    expected_kernel_relative_frobenius: of exp(q·k), closed form. output_relative_error: measured.
    mean_absolute_error: at 24 tokens, mean |difference| over mean |exact output|, as in the
    question at github.com/lucidrains/performer-pytorch/issues/69. features_needed: for a kernel
    error of 10 %.
    """
    n = 128 if profile.grid == "quick" else COUNT
    x = data.gaussian(n, D, rng=profile.seed)
    tasks = [
        (x, family, m, max(2, min(profile.trials, 5)), profile.seed)
        for family in FAMILIES
        for m in SIZES
    ]
    table = profile.study(_errors, tasks, "features")
    V = required(x.V)
    with one_thread():
        truth = exact.attention(x.Q, x.K, V)
        uniform = parse("uniform()").approximate(x.Q, x.K).attend(V)
        rows = _asked(profile.seed) + [_needed(x, family) for family in FAMILIES]
    error = _relative(uniform - truth, truth)
    rows.append((*_head(x, "uniform()", -1, -1), "output_relative_error", error, np.nan))
    rest = pd.DataFrame(rows, columns=table.columns)
    return pd.concat([table, rest], ignore_index=True)
