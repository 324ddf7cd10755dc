"""Checks of the ten exercises of docs/exercises, "predict, run, explain", right for any seed."""

import inspect
import math
from decimal import Decimal, localcontext
from itertools import accumulate, count
from typing import Any

import numpy as np
import scipy.linalg

from analysis import inputs
from analysis.inputs import Head
from analysis.moments.normalised import normalised_moments
from analysis.sentences import Sentence
from approx import checks, parse
from approx.checks import Array, required
from approx.estimate import exact

Judged = dict[str, bool]  # whether each answer is right


def check(number: int, answers: dict[str, Any]) -> tuple[Judged, Sentence]:
    """Return which answers to exercise 1 to 10 are right, and a hint for those that are wrong.

    Examples
    --------
    >>> check(7, {"sigma": 1.0, "factor": 1.6487, "corrected": 1.0})[0]
    {'factor': True, 'corrected': True}
    """
    judge, hint = EXERCISES[checks.integer("the exercise", number, least=1, most=10) - 1]
    checks.instance("answers", answers, dict, "names with their values")
    fields = inspect.signature(judge).parameters
    if set(answers) != set(fields):
        got = ", ".join(map(str, answers)) or "nothing"
        raise ValueError(f"exercise {number} asks for {', '.join(fields)}, got {got}")
    for name, field in fields.items():
        if field.annotation is int:
            checks.integer(name, answers[name], least=0, most=2**31)
        elif field.annotation is float:
            checks.number(name, answers[name], "a finite number")
    return judge(**answers), hint


def pair(seed: int) -> tuple[Array, Array]:
    """Return a query and a key (1, 8) with |q + k|² between 2 and 4."""
    q, k = np.random.default_rng(seed).standard_normal((2, 1, 8))
    scale = math.sqrt(2 + seed % 3) / np.linalg.norm(q + k)
    return scale * q, scale * k


def gaussian_head(seed: int) -> Head:
    """Return a head of 64 Gaussian queries and keys, d = 16, at t = 1."""
    return inputs.gaussian(64, 16, rng=seed).at_temperature(1.0)


def model_head(layer: int, head: int, t: float = 1.0) -> Head:
    """Return the first 256 tokens of a bundled head of SmolLM2."""
    return inputs.sample("smollm2").at(layer, head).first(256).at_temperature(t)


def lookup(seed: int) -> tuple[Array, Array]:
    """Return queries and keys (64, 64): exp(q·k) is 3 to 7 for one key a query, all others 1."""
    Q = math.sqrt(math.log(3 + seed % 5)) * np.eye(64)
    return Q, np.random.default_rng(seed).permutation(Q)


def weights(x: Head) -> Array:
    """Return the attention weights of a head."""
    return np.asarray(exact.softmax(x.Q, x.K, x.mask))


def z_of_means(seed: int) -> float:
    """Return the error of a mean of 200 draws in standard errors, for q = k = (½, ½), m = 16."""
    q, method, rng = np.full((1, 2), 0.5), parse("positive(m=16)"), np.random.default_rng(seed)
    drawn = [method.approximate(q, q, rng=rng).to_dense()[0, 0] for _ in range(200)]
    spread = math.sqrt(math.expm1(2.0) / 16 / 200)  # |q + k|² = 2
    return float((np.mean(drawn) / math.exp(0.5) - 1) / spread)


def _near(answer: float, truth: float) -> bool:
    """Whether an answer is within half a unit of the third digit, but for its own rounding."""
    return abs(answer - truth) <= 0.5000001 * 10.0 ** (math.floor(math.log10(truth)) - 2)


def _biased(seed: int, share: float) -> Judged:
    tail = math.erfc(3 / math.sqrt(2))  # P(a normal mean is off by more than three standard errors)
    return {"seed": abs(z_of_means(seed)) >= 3, "share": tail / 3 <= share <= 3 * tail}


def _features(seed: int, features: int) -> Judged:  # √((e^{|q+k|²} − 1)/m) ≤ .1
    q, k = pair(seed)
    return {"features": features == math.ceil(math.expm1(float(((q + k) ** 2).sum())) / 0.01)}


def _degree(B: float, degree: int) -> Judged:  # |Σ_{j ≤ n} (−B)^j/j! − e^{−B}| ≤ e^{−B}/1000
    with localcontext(prec=60):
        x = -Decimal(checks.positive("B", B, most=40))
        terms = accumulate(count(1), lambda term, n: term * x / n, initial=Decimal(1))
        good = (abs(sum_ / x.exp() - 1) <= Decimal("0.001") for sum_ in accumulate(terms))
        return {"degree": degree == next(n for n, enough in enumerate(good) if enough)}


def _rank(head: str, temperature: float, rank: int) -> Judged:  # leaves a tenth of the norm
    checks.one_of("head", head, ("17.4", "11.1", "0.0", "17.3"))
    layer, number = map(int, head.split("."))
    checks.positive("1/temperature", 1 / checks.positive("temperature", temperature), most=100)
    x = model_head(layer, number, checks.positive("temperature", temperature, most=100))
    s = np.linalg.svd(weights(x), compute_uv=False) ** 2
    needed = int(np.argmax(s.sum() - np.cumsum(s) <= 0.01 * s.sum())) + 1
    return {"rank": rank == needed, "head": 38 <= needed <= 42}


# one key more or less is right: rounding may shift the mean
def _keys(seed: int, k: int) -> Judged:
    left = 1 - np.cumsum(-np.sort(-weights(gaussian_head(seed)), axis=1), axis=1).mean(axis=0)
    return {"k": abs(k - 1 - int(np.argmax(left <= 0.1))) <= 1}


def _window(without: int, with_sink: int) -> Judged:  # the least windows with tv ≤ .1
    p, keys = weights(model_head(17, 4)), np.arange(256)
    back, least = keys[:, None] - keys, []
    for sink in (keys < 0, keys < 1):
        tv = [1 - (((back < w) | sink) * p).sum(axis=1).mean() for w in range(1, 257)]
        least.append(1 + next(i for i, x in enumerate(tv) if x <= 0.1))
    return {"without": without == least[0], "with_sink": with_sink == least[1]}


def _unbiased_logit(sigma: float, factor: float, corrected: float) -> Judged:
    truth = math.exp(checks.positive("sigma", sigma, most=30.0) ** 2 / 2)  # E e^{σg}
    return {"factor": _near(factor, truth), "corrected": _near(corrected, 1.0)}


# sign and ratio of the bias at the largest weight
def _normalised(seed: int, sign: int, ratio: float) -> Judged:
    q, k = np.split(0.5 * np.random.default_rng(seed).standard_normal((7, 4)), [1])
    both = (normalised_moments(parse(f"positive(m={m})"), q, k) for m in (400, 800))
    one, half = (required(each).bias[0, int((k @ q[0]).argmax())] for each in both)
    return {"sign": sign == int(one > 0), "ratio": bool(abs(ratio * half / one - 1) <= 0.05)}


# D = 11ᵀ + (s − 1)P, P a permutation: one singular value is s + 63, the others are s − 1
def _sum(seed: int, rank: int, entries: int, values: int) -> Judged:
    s = 3 + seed % 5
    left = 64 * (63 + s**2) / 100  # a hundredth of ‖D‖²
    judged = {"rank": rank == 64 - left // (s - 1) ** 2, "entries": entries == 64**2 - left // 1}
    return judged | {"values": values == 128 + 64}


def _landmarks(seed: int, error: float, distance: float, landmarks: int, best: int) -> Judged:
    if not 0 < error < 1:
        raise ValueError(f"error must be above 0 and below 1, got {error}")
    K = gaussian_head(seed).K
    A = np.exp(K @ K.T)
    C = np.tril(scipy.linalg.lapack.dpstrf(A, lower=1)[0])  # the pivot with most left, each time
    taken = np.square(C).sum(axis=0), np.linalg.eigvalsh(A)[::-1]
    few, least = (int(np.argmax(np.cumsum(x) >= 0.9 * A.trace())) + 1 for x in taken)
    judged = {"distance": _near(distance, math.sqrt(-math.log1p(-error)))}
    return judged | {"landmarks": landmarks == few, "best": best == least}


EXERCISES = (
    (_biased, Sentence("a mean of many draws is nearly normal: how often is it so far off?")),
    (_features, Sentence("the relative variance is (e^s − 1)/m, with s the square of |q + k|")),
    (_degree, Sentence("the relative error is largest at x = −B, where terms up to e^B cancel")),
    (_rank, Sentence("a rank of 38 to 42 leaves a tenth of the norm, not of its square")),
    (_keys, Sentence("tv of the k largest entries is the weight of all others")),
    (_window, Sentence("tv is the weight outside; the window ends with the query's own key")),
    (_unbiased_logit, Sentence("complete the square in the integral of e^(σg) over a normal g")),
    (_normalised, Sentence("the bias is about a_j(aᵀRa − (Ra)_j): how does R depend on m?")),
    (_sum, Sentence("D is 1 everywhere, plus s − 1 at the keys found: what is left of D?")),
    (
        _landmarks,
        Sentence("z leaves A − aaᵀ/a_z, a its column; best is to leave small eigenvalues"),
    ),
)
