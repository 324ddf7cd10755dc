"""The limit on memory."""

from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from approx import Approximation, ResourceLimitError, exact, memory, parse


def test_by_default_half_of_what_is_free(monkeypatch):
    assert memory.explicit_limit() is None
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1001))
    assert memory.limit() == 500


def test_a_limit_is_what_was_set():
    memory.set_limit(12345)
    assert memory.limit() == memory.explicit_limit() == 12345
    memory.set_limit(None)
    assert memory.explicit_limit() is None


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_positive(limit):
    with pytest.raises(ValueError, match=f"the memory limit must be >= 1, got {limit}"):
        memory.set_limit(limit)
    assert memory.explicit_limit() is None


def test_exactly_the_limit_fits():
    memory.set_limit(1000)
    memory.reserve(1000, "it", "n")
    with pytest.raises(ResourceLimitError):
        memory.reserve(1001, "it", "n")


@pytest.mark.parametrize(
    ("nbytes", "written"),
    [(1001, r"1001"), (10**18, r"1e\+18"), (2**70, r"1\.181e\+21"), (10**400, r"1e\+400")],
)
def test_the_error_says_what_how_much_the_limit_and_what_to_lower(nbytes, written):
    memory.set_limit(1000)
    message = rf"^the matrix needs {written} bytes, the limit is 1000: lower n, or raise .*max-mem"
    with pytest.raises(ResourceLimitError, match=message):
        memory.reserve(nbytes, "the matrix", "n")


def test_it_is_a_memory_error():
    assert issubclass(ResourceLimitError, MemoryError)


def test_dense_matrices_are_refused_before_they_are_made():
    n = 3 * 10**6  # n² float64 are 72 TB
    x = np.ones((n, 1))
    A = Approximation.from_factors(x, x)
    with pytest.raises(ResourceLimitError, match=r"the dense estimate needs 7\.2e"):
        A.to_dense()
    with pytest.raises(ResourceLimitError, match=r"the logits needs 7\.2e"):
        exact.kernel(x, x)
    with pytest.raises(ResourceLimitError, match="decomposing a dense"):
        parse("robust_pca").approximate(x, x)  # a truncated SVD would stream it


@pytest.mark.parametrize(
    "spec", ["positive(m=1000000000000)", "trigonometric(m=1000000000000000000000000000000)"]
)
def test_features_are_refused_before_they_are_drawn(spec):
    with pytest.raises(ResourceLimitError, match="lower m, n or l"):
        parse(spec).approximate([[1.0]], [[1.0]])
