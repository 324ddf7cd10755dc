"""Accuracy that is promised: the quick form of `make accuracy`, and that nothing is left out."""

import fnmatch
import math

import mpmath
import numpy as np
import pytest

from studies.accuracy import __main__ as command, digits, factorisations, measure, public
from studies.accuracy.measure import CASES, Case, Point, error_of, promise

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
    assert len({row.name for row in found}) > 15
    for row in found:
        assert row.value < factorisations.THRESHOLD, row


def test_units_by_hand():
    point = Point("", 1.0 + 2.0**-52, mpmath.mpf(1), mpmath.mpf(3))
    assert error_of(point, np.float64, "ulp") == 1.0
    assert error_of(point, np.float64, "eps") == 1.0
    assert error_of(point, np.float64, "eps·κ") == 0.25  # κ = 4
    assert error_of(point, np.float32, "eps") == 2.0**-29
    tiny = Point("", 2 * 5e-324, mpmath.mpf(5e-324))
    assert error_of(tiny, np.float64, "ulp") == 1.0  # of subnormal numbers
    assert error_of(Point("", math.nan, mpmath.mpf(1)), np.float64, "ulp") == math.inf


def test_derivatives_are_those_of_the_truth():
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

    (row,) = measure.worst(Case((name,), np.float64, "", points), 5)
    assert not row.holds


@pytest.mark.listed
def test_every_public_function_is_measured_or_has_a_reason():
    there = set(public.functions())
    measured = {name for case in CASES for name in case.names}
    without = [name for name in sorted(there - measured) if public.why(name) is None]
    assert not without, (
        f"{', '.join(without)}: measure it, or say in studies/accuracy/public.py why not"
    )
    for pattern in public.WHY:
        left = fnmatch.filter(there - measured, pattern)
        assert left, f"WHY excuses {pattern}, which is not there or is measured"
    for name in measured:
        assert promise(name)


@pytest.mark.listed
def test_the_page_has_every_function_and_what_it_promises():
    text = command.PAGE.read_text("utf-8").split(command.marks("table")[1])[0]
    for case in CASES:
        for name in case.names:
            bound, unit = promise(name)
            lines = [x for x in text.splitlines() if x.startswith(f"| `{name}`")]
            assert lines, f"{name} is not in {command.PAGE.name}: run make accuracy"
            assert all(f"| {command.number(bound)} {unit} |" in x for x in lines), name


def test_a_printed_number_that_changes_is_counted():
    same = digits.compare("a 0.123 b −4e-05\nin 3 s", "a 0.123 b −4e-05\nin 5 s")
    assert (same.numbers, same.changed, same.worst) == (2, 0, "")
    moved = digits.compare("a 0.123 b 7", "a 0.124 b 7")
    assert (moved.numbers, moved.changed, moved.worst) == (2, 1, "0.123 and 0.124")
    assert digits.compare("use x, 1", "use y, 1").changed == 1
    assert digits.compare("a 0.000", "a -0.000").changed == 1
