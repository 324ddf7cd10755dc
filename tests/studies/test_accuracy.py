"""Accuracy that is promised: the quick form of `make accuracy`, and that nothing is left out."""

import math
import re

import mpmath
import numpy as np
import pytest

from studies.accuracy import __main__ as command, factorisations, measure
from studies.accuracy.cases import CASES
from studies.accuracy.measure import Case, Point, error_of, promise

QUICK = 6  # points of a case


def test_no_promise_is_broken():
    broken = [
        f"{row.name} {row.part} {row.dtype}: {row.error:.3g} {row.unit} at {row.where}"
        for row in command.measure(QUICK, quick=True)
        if not row.holds
    ]
    assert not broken, "\n".join(["beyond the bound of the docstring:", *broken])


def test_factorisations_leave_a_rounding():
    found = list(factorisations.residuals(24))
    assert len({row.name for row in found}) == 9
    for row in found:
        assert row.value < factorisations.THRESHOLD, row


def test_units_and_derivatives_by_hand():
    point = Point("", 1.0 + 2.0**-52, mpmath.mpf(1), mpmath.mpf(3))
    assert error_of(point, np.float64, "ulp") == 1.0
    assert error_of(point, np.float64, "eps") == 1.0
    assert error_of(point, np.float64, "eps·κ") == 0.25  # κ = 4
    assert error_of(point, np.float32, "eps") == 2.0**-29
    tiny = Point("", 2 * 5e-324, mpmath.mpf(5e-324))
    assert error_of(tiny, np.float64, "ulp") == 1.0  # of subnormal numbers
    assert error_of(Point("", math.nan, mpmath.mpf(1)), np.float64, "ulp") == math.inf
    with mpmath.workdps(measure.DIGITS):
        (found,) = measure.points(np.exp, mpmath.exp, [(2.5,)])
        assert abs(found.reach() / mpmath.exp(2.5) - 2.5) < 1e-15
        vectors = np.array([1.0, -3.0]), np.array([2.0, 1.0])
        (found,) = measure.points(np.dot, mpmath.fdot, [vectors])
        assert abs(found.reach() - 2 * (2 + 3)) < 1e-15


@pytest.mark.parametrize(("name", "worse"), [
    # log(p/q) of two logarithms, where p and q agree to ten digits
    ("analysis.errors.metrics.compare", lambda x: (x - math.log1p(math.expm1(x))) ** 2 + 1e-20 * x),
    ("approx.kernels.elementary.exp", lambda x: math.exp(x) * (1 + 5e-16)),
])  # fmt: skip
def test_a_lost_digit_is_noticed(name, worse):
    def points(size, dtype):
        truth = mpmath.exp if "exp" in name else lambda x: 0 * x
        return measure.points(worse, truth, [(float(x),) for x in np.linspace(0.1, 1, size)])

    assert not measure.worst(Case(name, "", np.float64, points), 5).holds


@pytest.mark.listed
def test_every_promise_has_a_case_and_stands_on_the_page():
    root, promised = command.PAGE.parents[1], set()
    for path in (*root.glob("approx/**/*.py"), *root.glob("analysis/**/*.py")):
        text = path.read_text("utf-8")
        count = len(re.findall(measure.PROMISE, re.sub(r"\s+", " ", text)))
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        names = {case.name for case in CASES if case.name.startswith(f"{module}.")}
        assert len(names) == count, f"{module} promises {count} times, {sorted(names)} are measured"
        promised |= names
    assert promised == {case.name for case in CASES}
    table = command.PAGE.read_text("utf-8").split(command.marks("table")[1])[0]
    for name in promised:
        bound, unit = promise(name)
        lines = [x for x in table.splitlines() if x.startswith(f"| `{name}`")]
        assert lines, f"{name} is not in {command.PAGE.name}: run make accuracy"
        assert all(f"| {command.number(bound)} {unit} |" in x for x in lines), name
