"""The limit on memory."""

import os
import platform
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from approx import Approximation, ResourceLimitError, parse
from approx.estimate import exact, memory
from figures.command.options import size


def test_a_limit_is_what_was_set_or_half_of_what_is_free(monkeypatch):
    assert memory.explicit_limit() is None
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1001))
    assert memory.limit() == 500
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


@pytest.mark.parametrize(("nbytes", "written"), [
    (1001, "1001 B"), (12_800_000_000, "11.9 GiB"), (10**18, "888 PiB"), (2**70, "1.02e+3 EiB"),
    (10**400, "8.67e+381 EiB"),
])  # fmt: skip
def test_the_error_says_what_how_much_the_limit_and_what_to_lower(nbytes, written, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=2**34))
    memory.set_limit(1000)
    with pytest.raises(ResourceLimitError) as error:
        memory.reserve(nbytes, "the matrix", "n")
    said = f"the matrix would take {written}, and the limit is 1000 B: lower n"
    more = {1001: "1001", 12_800_000_000: "12G"}  # what this machine does not have is not advised
    assert str(error.value) == said + (
        f", or raise the limit (--max-memory {more[nbytes]})"
        if nbytes in more
        else "; this machine has 16 GiB"
    )


@pytest.mark.parametrize("nbytes", [1, 1023, 1024, 1025, 10**6, 2**20, 3 * 10**9, 2**34])
def test_the_limit_that_is_advised_is_enough(nbytes, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=2**40))
    memory.set_limit(1)
    with pytest.raises(ResourceLimitError) as error:
        memory.reserve(2 * nbytes, "it", "n")
    advised = size(re.search(r"--max-memory (\w+)", str(error.value))[1])
    assert 2 * nbytes <= advised <= 4 * nbytes


def test_dense_matrices_are_refused_before_they_are_made():
    n = 3 * 10**6  # n² float64 are 72 TB
    x = np.ones((n, 1))
    A = Approximation.from_factors(x, x)
    with pytest.raises(ResourceLimitError, match=r"the dense estimate would take 65\.5 TiB"):
        A.to_dense()
    with pytest.raises(ResourceLimitError, match=r"the logits would take 65\.5 TiB"):
        exact.kernel(x, x)
    with pytest.raises(ResourceLimitError, match="decomposing a dense"):
        parse("robust_pca").approximate(x, x)  # a truncated SVD would stream it


@pytest.mark.parametrize(("spec", "rows", "limit", "said"), [
    ("positive(m=1000000000000)", 1, None, "lower m, n or l"),
    ("trigonometric(m=1000000000000000000000000000000)", 1, None, "lower m, n or l"),
    ("coreset(rank=4)", 4, 1000, r"coreset\(rank=4\) would take .* lower rank"),
    ("nystrom(rank=8)", 4, 1000, r"nystrom\(rank=8\) would take .* lower rank"),
    ("lsh('cross_polytope', hashes=1, buckets=4096)", 64, 2**20,
     "a cross-polytope hash would take .* lower buckets"),
])  # fmt: skip
def test_a_method_is_refused_before_it_draws_or_decomposes(spec, rows, limit, said):
    memory.set_limit(limit)
    with pytest.raises(ResourceLimitError, match=said):
        parse(spec).approximate(np.ones((rows, 2)), np.ones((rows, 2)))


FREED = """
import resource
import numpy as np
from approx.estimate import memory
memory.keep()
for _ in range(9):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [np.ones(2**18) for _ in range(6)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how glibc frees")
def test_what_is_freed_is_used_again():
    """Six arrays of 512 pages each would fault in nearly all of them again."""
    # dask sets MALLOC_TRIM_THRESHOLD_ in the environment of a process that starts its workers
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    assert int(subprocess.check_output([sys.executable, "-c", FREED], env=env)) < 512
