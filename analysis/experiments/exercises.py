"""Ten exercises, "predict, run, explain": what is asked for, and checks that hold for any seed.

A check computes the truth for the inputs that the answers name, and says what is wrong with an
answer without the right one. The pages are in docs/exercises.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np

from analysis import inputs
from analysis.inputs import Head
from analysis.moments.normalised import normalised_moments
from analysis.sentences import Sentence
from approx import checks, parse
from approx.checks import Array, required
from approx.estimate import exact

Answers = Mapping[str, Any]
HEADS = ("17.4", "11.1", "0.0", "17.3")  # the bundled heads of SmolLM2
SURE = 3.0  # standard errors at which an estimate looks biased


class Judged(NamedTuple):
    """One answer, whether it is right, and if not what to think about."""

    what: str
    right: bool
    hint: Sentence


Judge = Callable[[Answers], Iterator[Judged]]


@dataclasses.dataclass(frozen=True)
class Exercise:
    """What an exercise asks for.

    Attributes
    ----------
    number : int
        Its place, 1 to 10, and the beginning of the name of its page.
    title : Sentence
    fields : mapping of str to type
        The names of the answers, of int, float or str.
    judge : callable
        From the answers to a `Judged` for each that can be wrong.
    """

    number: int
    title: Sentence
    fields: Mapping[str, type]
    judge: Judge


EXERCISES: dict[int, Exercise] = {}


def exercise(title: Sentence, **fields: type) -> Callable[[Judge], Judge]:
    """Enter a judge as the next exercise."""

    def enter(judge: Judge) -> Judge:
        number = len(EXERCISES) + 1
        EXERCISES[number] = Exercise(number, title, fields, judge)
        return judge

    return enter


def check(number: int, answers: Answers) -> list[Judged]:
    """Return what is right and what is wrong in the answers to an exercise.

    Parameters
    ----------
    number : int
        1 to 10.
    answers : mapping
        The answers by name, with the ``seed`` of the inputs where the exercise has one.

    Raises
    ------
    TypeError, ValueError
        There is no such exercise; an answer is missing, unknown, of another type or out of range.

    Examples
    --------
    >>> [judged.right for judged in check(7, {"sigma": 1.0, "factor": 1.6487, "corrected": 1.0})]
    [True, True]
    """
    if number not in EXERCISES:
        raise ValueError(f"the exercises are 1 to {len(EXERCISES)}, got {number!r}")
    asked = EXERCISES[number].fields
    checks.instance("answers", answers, Mapping, "names with their values")
    for name in answers:
        if name not in asked:
            raise ValueError(f"exercise {number} asks for {', '.join(asked)}, not for {name!r}")
    given: dict[str, Any] = {}
    for name, kind in asked.items():
        if name not in answers:
            raise ValueError(f"exercise {number} asks for {', '.join(asked)}: {name} is missing")
        value = answers[name]
        if kind is int:
            given[name] = checks.integer(name, value, least=0, most=2**31)
        elif kind is float:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{name} must be a number, got {value!r}")
            if not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value}")
            given[name] = float(value)
        else:
            checks.instance(name, value, str, "a text")
            given[name] = value
    return list(EXERCISES[number].judge(given))


def _close(what: str, given: float, truth: float, within: float, hint: Sentence) -> Judged:
    return Judged(what, abs(given - truth) <= within * abs(truth), hint)


def _rounded(what: str, given: float, truth: float, hint: Sentence) -> Judged:
    """Judge a number that may be rounded to three significant digits."""
    half = 0.5 * 10.0 ** (math.floor(math.log10(abs(truth))) - 2)
    return Judged(what, abs(given - truth) <= half * (1 + 1e-9), hint)


def _is(what: str, given: Any, truth: Any, hint: Sentence) -> Judged:
    return Judged(what, given == truth, hint)


# Inputs, as the pages make them


def pair(seed: int) -> tuple[Array, Array]:
    """Return a query and a key (1, 8) with |q + k|² between 2 and 4."""
    q, k = np.random.default_rng(seed).standard_normal((2, 1, 8))
    scale = math.sqrt(2 + seed % 3) / np.linalg.norm(q + k)
    return scale * q, scale * k


def gaussian_head(seed: int) -> Head:
    """Return a head of 64 Gaussian queries and keys, d = 16, at t = 1."""
    return inputs.gaussian(64, 16, rng=seed).at_temperature(1.0)


def model_head(layer: int, head: int, temperature: float = 1.0) -> Head:
    """Return the first 256 tokens of a bundled head of SmolLM2."""
    return inputs.sample("smollm2").at(layer, head).first(256).at_temperature(temperature)


def weights(x: Head) -> Array:
    """Return the attention weights of a head."""
    return np.asarray(exact.softmax(x.Q, x.K, x.mask))


# The exercises


@exercise(Sentence("A seed that makes an unbiased estimate look biased"), seed=int, share=float)
def looks_biased(a: Answers) -> Iterator[Judged]:
    """Judge the mean of 200 draws, in standard errors from exp(q·k), and how often it is so far."""
    off = abs(z_of_means(a["seed"]))
    hint = Sentence(
        "the mean of its 200 draws is off by less than {sure:g} standard errors", sure=SURE
    )
    yield Judged("seed", off >= SURE, hint)
    tail = math.erfc(SURE / math.sqrt(2))
    hint = Sentence("a mean of many draws is nearly normal: how often is it so far off?")
    yield Judged("share", tail / 3 <= a["share"] <= 3 * tail, hint)


def z_of_means(seed: int) -> float:
    """Return how many standard errors the mean of 200 draws is off, of q = k = (½, ½), m = 16."""
    q = k = np.full((1, 2), 0.5)
    method, rng = parse("positive(m=16)"), np.random.default_rng(seed)
    truth = math.exp(float((q @ k.T)[0, 0]))
    drawn = [method.approximate(q, k, rng=rng).to_dense()[0, 0] / truth for _ in range(200)]
    spread = math.sqrt(math.expm1(float(((q + k) ** 2).sum())) / 16)
    return float((np.mean(drawn) - 1) / (spread / math.sqrt(200)))


@exercise(Sentence("How many features for ten percent?"), seed=int, features=int)
def features(a: Answers) -> Iterator[Judged]:
    """Judge the least m with √((e^{|q+k|²} − 1)/m) ≤ .1."""
    q, k = pair(a["seed"])
    needed = math.ceil(math.expm1(float(((q + k) ** 2).sum())) / 0.01)
    hint = Sentence("the relative variance is (e^s − 1)/m, with s the square of |q + k|")
    yield _is("features", a["features"], needed, hint)


@exercise(Sentence("The degree that the left end needs"), B=float, degree=int)
def degree(a: Answers) -> Iterator[Judged]:
    """Judge the least n with |Σ_{j ≤ n} (−B)^j/j! − e^{−B}| ≤ e^{−B}/1000."""
    B = checks.positive("B", a["B"])
    if B > 40:
        raise ValueError(f"B must be at most 40, got {B:g}")
    with localcontext() as context:
        context.prec = 60
        x, term, total, n = -Decimal(B), Decimal(1), Decimal(1), 0
        while abs(total / x.exp() - 1) > Decimal("0.001"):
            n += 1
            term *= x / n
            total += term
    hint = Sentence("relative to e^x the error is largest at x = −B, where terms up to e^B cancel")
    yield _is("degree", a["degree"], n, hint)


@exercise(Sentence("Which head needs rank 40?"), head=str, temperature=float, rank=int)
def rank(a: Answers) -> Iterator[Judged]:
    """Judge the rank that leaves a tenth of the Frobenius norm of a head's attention."""
    t = checks.positive("temperature", a["temperature"])
    checks.one_of("head", a["head"], HEADS)
    layer, number = map(int, a["head"].split("."))
    s = np.linalg.svd(weights(model_head(layer, number, t)), compute_uv=False) ** 2
    left = np.sqrt(np.maximum(1 - np.cumsum(s) / s.sum(), 0.0))
    needed = int(np.argmax(left <= 0.1)) + 1
    hint = Sentence("what is left has a tenth of the norm, not of its square")
    yield _is("rank", a["rank"], needed, hint)
    hint = Sentence("this head needs a different rank here: how does temperature change it?")
    yield Judged("head", 38 <= needed <= 42, hint)


@exercise(Sentence("How many keys hold nine tenths?"), seed=int, k=int)
def keys(a: Answers) -> Iterator[Judged]:
    """Judge the least k for which the k largest weights leave a tenth, on average over rows.

    One key more or less is right, too: so far off is the average of the rows' own least numbers.
    """
    ordered = np.sort(weights(gaussian_head(a["seed"])), axis=1)[:, ::-1]
    left = 1 - np.cumsum(ordered, axis=1).mean(axis=0)
    hint = Sentence("tv of the k largest entries is the weight of all others")
    yield Judged("k", abs(a["k"] - 1 - int(np.argmax(left <= 0.1))) <= 1, hint)


@exercise(Sentence("A window without its sink"), without=int, with_sink=int)
def window(a: Answers) -> Iterator[Judged]:
    """Judge the least windows with tv ≤ .1 on head 17.4, without and with the first key."""
    p = weights(model_head(17, 4))
    back = np.subtract.outer(np.arange(256), np.arange(256))
    hint = Sentence("tv is the weight outside; the window ends with the query's own key")
    for name, first in (("without", 0), ("with_sink", 1)):
        kept = (((back < w) | (np.arange(256) < first)) * p for w in range(1, 257))
        left = np.array([1 - some.sum(axis=1).mean() for some in kept])
        yield _is(name, a[name], int(np.argmax(left <= 0.1)) + 1, hint)


@exercise(
    Sentence("What exp makes of an unbiased logit"), sigma=float, factor=float, corrected=float
)
def unbiased_logit(a: Answers) -> Iterator[Judged]:
    """Judge E e^{x + σg}/e^x, and the same of x + σg − σ²/2."""
    half = checks.positive("sigma", a["sigma"], most=30.0) ** 2 / 2
    hint = Sentence("complete the square in the integral of e^(σg) over a normal g")
    yield _rounded("factor", a["factor"], math.exp(half), hint)
    hint = Sentence("what does −σ²/2 do to that factor?")
    yield _rounded("corrected", a["corrected"], 1.0, hint)


@exercise(Sentence("Normalised attention is biased"), seed=int, sign=int, ratio=float)
def normalised(a: Answers) -> Iterator[Judged]:
    """Judge the bias of the largest weight: its sign, and how it falls from m to 2m."""
    rng = np.random.default_rng(a["seed"])
    q, k = 0.5 * rng.standard_normal((1, 4)), 0.5 * rng.standard_normal((6, 4))
    largest = int((k @ q[0]).argmax())
    bias = [
        float(required(normalised_moments(parse(f"positive(m={m})"), q, k)).bias[0, largest])
        for m in (400, 800)
    ]
    hint = Sentence("to first order it is ã(ãᵀRã − (Rã)_j): which of the two terms is larger?")
    yield _is("sign", a["sign"], int(bias[0] > 0), hint)
    hint = Sentence("how does R depend on m?")
    yield _close("ratio", a["ratio"], bias[0] / bias[1], 0.05, hint)


@exercise(Sentence("The best matrix of rank four"), seed=int, error=float, tv=float)
def best_rank(a: Answers) -> Iterator[Judged]:
    """Judge the relative Frobenius error of the best rank 4 of exp(QKᵀ), and its tv."""
    x = gaussian_head(a["seed"])
    s = np.linalg.svd(np.exp(x.Q @ x.K.T), compute_uv=False)
    left = math.sqrt(float((s[4:] ** 2).sum() / (s**2).sum()))
    hint = Sentence("which singular values are left (Eckart–Young)?")
    yield _rounded("error", a["error"], left, hint)
    estimate = parse("truncated_svd(rank=4)").approximate(x.Q, x.K)
    hint = Sentence("rows are normalised before they are compared")
    yield _rounded("tv", a["tv"], x.compare(estimate)["attention_tv"], hint)


@exercise(Sentence("What a new token reads"), m=int, d=int, keys=int)
def reads(a: Answers) -> Iterator[Judged]:
    """Judge the most exact keys that read no more than a state of m features."""
    m, d = (checks.integer(name, a[name], least=1, most=10**6) for name in ("m", "d"))
    hint = Sentence("a key comes with its value, a state with its sums and its frequencies")
    yield _is("keys", a["keys"], (m * (d + 1) + m * d) // (2 * d), hint)
