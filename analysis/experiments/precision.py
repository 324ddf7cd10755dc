"""Rounding error against approximation error: float32 arithmetic, bfloat16 inputs."""

import copy
import dataclasses
import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from analysis.compute.seeds import seed_sequence
from analysis.costs import budget
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row, head, numbers
from approx import Method, checks, parse
from approx.checks import Array
from approx.estimate import exact
from approx.method import Rng, generator

FORMATS = ("float32", "bfloat16")
TEMPLATES = (
    "uniform()", "positive()", "trigonometric()", "top_k()",
    "scatterbrain(low_rank=positive(), sparse=top_k())", "truncated_svd()", "nystrom()",
)  # fmt: skip
PRICED = ("taylor(degree=4)", "tensor_power(n=4)")  # at their own width: nothing fits the budget
EXACT = "exact attention"
COUNT = 256


class Precision(NamedTuple):
    """Errors of an output, each relative to the norm of the exact output in float64.

    Attributes
    ----------
    approximation : float
        The error of the method in float64.
    rounding : float
        The difference between the method in a format and in float64, with the same draws.
    total : float
        The error of the method in a format: at most the sum of the two.
    floor : float
        The error of exact attention in that format: no method can promise less.
    ratio : float
        total/floor: how many times exact attention in the format the method in the format is off.
        Near 1 the format decides, and a better method would gain nothing.
    """

    approximation: float
    rounding: float
    total: float
    floor: float

    @property
    def ratio(self) -> float:
        """The error of the method in the format over that of exact attention in it."""
        return self.total / self.floor if self.floor else math.inf


def bfloat16(x: ArrayLike) -> Array:
    """Return x rounded to the nearest bfloat16 (8 bits of mantissa, ties to even), as float32.

    x is rounded to float32 first, as a model holds it. Beyond 3.39e38 the nearest value is inf, as
    in IEEE arithmetic; NaN stays NaN.

    Examples
    --------
    >>> bfloat16([1.0, 1.00390625, 1.01171875, -3.1415927])
    array([ 1.      ,  1.      ,  1.015625, -3.140625], dtype=float32)
    """
    with np.errstate(over="ignore"):
        single = np.array(checks.array("x", x, finite=False), np.float32)
    bits = single.view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    upper = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), single, upper.view(np.float32))


def rounded(inputs: Head, form: str) -> Head:
    """Return inputs as a model in that format holds them, for arithmetic in float32.

    Parameters
    ----------
    form : {"float32", "bfloat16"}
        The raw q, k, v are rounded to it; temperature and everything after are float32, as on
        hardware that multiplies bfloat16 and accumulates in float32.
    """
    checks.instance("inputs", inputs, Head, "a Head")
    checks.one_of("form", form, FORMATS)

    def cast(x: Array) -> Array:
        return bfloat16(x) if form == "bfloat16" else x.astype(np.float32)

    v = None if inputs.v is None else cast(inputs.v)
    return dataclasses.replace(inputs, q=cast(inputs.q), k=cast(inputs.k), v=v)


def precision(method: Method, inputs: Head, form: str, *, rng: Rng = None) -> Precision:
    """Return the rounding and approximation errors of a method's output D⁻¹ estimate V.

    Parameters
    ----------
    method : Method
    inputs : Head
        One head in float64, with V, at its temperature.
    form : {"float32", "bfloat16"}
        The format of the inputs; see `rounded`.
    rng : None, int, SeedSequence or Generator
        Both runs have the same draws.

    Raises
    ------
    ValueError
        There is no V, or the inputs are not in float64, which is the truth here.

    Notes
    -----
    A support chosen by sorting or hashing may change when its inputs are rounded: that is part of
    the rounding error. Cost: twice the method and twice exact attention.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> from approx import parse
    >>> errors = precision(parse("taylor(degree=2)"), gaussian(64, 4, rng=0), "float32")
    >>> errors.approximation > 1e-2, errors.rounding < 1e-6
    (True, True)
    """
    checks.instance("method", method, Method, "a method")
    checks.instance("inputs", inputs, Head, "a Head")
    if inputs.V is None:
        raise ValueError(f"{inputs.name} has no V: give inputs with V, whose output has an error")
    if inputs.q.dtype != np.float64:
        raise ValueError(f"inputs must be float64, the truth here, got {inputs.q.dtype}")
    draws = generator(rng)

    def outputs(x: Head) -> tuple[Array, Array]:
        """Return the method's output and that of exact attention."""
        assert x.V is not None
        estimate = x.approximate(method, rng=copy.deepcopy(draws))
        return estimate.attend(x.V), exact.attention(x.Q, x.K, x.V, mask=x.mask)

    fine, truth = outputs(inputs)
    coarse, floor = (y.astype(np.float64) for y in outputs(rounded(inputs, form)))
    size = float(np.linalg.norm(truth))

    def relative(x: Array) -> float:
        return float(np.linalg.norm(x)) / size

    return Precision(
        relative(fine - truth), relative(coarse - fine), relative(coarse - truth),
        relative(floor - truth),
    )  # fmt: skip


def _rows(
    x: Head, method: Method, price: float, temperatures: tuple[float, ...], trials: int, seed: int
) -> list[Row]:
    rows, stream = list[Row](), seed_sequence(seed, x.digest(), str(method))
    for t in temperatures:
        at = x.at_temperature(t)
        for trial, child in enumerate(np.random.default_rng(stream).spawn(trials)):
            errors = {form: precision(method, at, form, rng=child) for form in FORMATS}
            place = head(at, method, price, trial)
            rows += numbers(place, approximation=errors["float32"].approximation)
            rows += numbers(place, **{form: part.rounding for form, part in errors.items()})
            if str(method) == "uniform()":
                floors = {form: part.floor for form, part in errors.items()}
                rows += numbers(head(at, EXACT), **floors)
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return, relative to exact outputs in float64: approximation error, and rounding in a format.

    Of the first 256 queries and keys of the profile's inputs. Exact attention in a format has rows
    of its own.
    """
    tasks = []
    for x in [x.first(COUNT) for x in profile.inputs]:
        methods = budget.match(map(parse, TEMPLATES), profile.budget, x, profile.currency).fitting
        for method in [*methods, *map(parse, PRICED)]:
            price = method.price(n=x.n, l=x.l, d=x.d, mask=x.mask)
            paid = -1.0 if price is None else price.stored
            trials = profile.trials if method.uses_rng else 1
            tasks.append((x, method, paid, profile.temperatures, trials, profile.seed))
    return profile.study(_rows, tasks, "precision")
