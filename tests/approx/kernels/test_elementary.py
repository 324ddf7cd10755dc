"""The shared exponential, logarithm and maximum against mpmath and NumPy."""

import gc
import itertools
import math
import pickle
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from numba import njit
from numba.core.caching import NullCache
from numba.core.compiler import CompilerBase

from approx.kernels import compiler
from approx.kernels.elementary import exp, exp_rows, largest, log
from approx.kernels.jit import Kernel, kernel, summing_kernel

DTYPES = [np.float64, np.float32]
LOWEST = {np.float64: -745.2, np.float32: -104.0}  # below, e^x rounds to 0
HIGHEST = {d: math.log(np.finfo(d).max) for d in DTYPES}

in_both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def exponential(x):
    """Return e^x through the kernel; silent in pure Python too, where scalars warn."""
    out = np.array(x, ndmin=2)
    with np.errstate(all="ignore"):
        exp_rows(out, np.zeros(1, out.dtype))
    return out[0]


def ulps(x):
    """Return |computed − e^x| in units of the last place of e^x, by 60 digits."""
    info = np.finfo(x.dtype)
    with mpmath.workdps(60):
        errors = []
        for point, value in zip(x, exponential(x)):
            true = mpmath.exp(mpmath.mpf(float(point)))
            exponent = max(int(mpmath.floor(mpmath.log(true, 2))), int(info.minexp))
            unit = mpmath.ldexp(mpmath.mpf(1), exponent - info.nmant)
            errors.append(float(abs(mpmath.mpf(float(value)) - true) / unit))
    return np.array(errors)


def special_points(dtype):
    """Return where an exponential goes wrong: edges of the reduction, of the range, near 0."""
    steps = np.arange(-40, 41) * (math.log(2) / 2)  # |r| largest, and r = 0
    edges = [HIGHEST[dtype] - 1e-4, LOWEST[dtype] + 1, math.log(np.finfo(dtype).tiny)]
    tiny = [0.0, 1e-8, -1e-8, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal]
    x = np.concatenate([steps, edges, tiny]).astype(dtype)
    return np.concatenate([x, np.nextafter(x, dtype(np.inf)), np.nextafter(x, -dtype(np.inf))])


def gradual_points(dtype):
    """Return where e^x is subnormal."""
    return np.linspace(LOWEST[dtype], math.log(np.finfo(dtype).tiny), 101).astype(dtype)


@pytest.mark.kernel
@in_both_dtypes
def test_two_ulps_at_special_points(dtype):
    assert ulps(np.concatenate([special_points(dtype), gradual_points(dtype)])).max() <= 2
    values = exponential(gradual_points(dtype))
    assert np.count_nonzero((values > 0) & (values < np.finfo(dtype).tiny)) > 90


def test_two_ulps_at_a_million_float32_points():
    # float64 exp is right to 2^-52, 2^-29 of a float32 ulp
    x = np.linspace(-87.3, 88.7, 2**20).astype(np.float32)
    true = np.exp(x.astype(np.float64))
    error = np.abs(exponential(x) - true) / np.spacing(true.astype(np.float32))
    assert error.max() <= 2


@pytest.mark.kernel
@in_both_dtypes
def test_overflow_underflow_and_nan_beside_numbers(dtype):
    above = np.nextafter(dtype(HIGHEST[dtype]), dtype(np.inf))
    x = np.array([above, above + 1, 1e30, np.finfo(dtype).max, np.inf], dtype)
    np.testing.assert_array_equal(exponential(x), np.inf)
    x = np.array([LOWEST[dtype] - 1, -1e30, np.finfo(dtype).min, -np.inf], dtype)
    np.testing.assert_array_equal(exponential(x), 0.0)
    top = dtype(HIGHEST[dtype])
    if float(top) > HIGHEST[dtype]:
        top = np.nextafter(top, -dtype(np.inf))
    assert np.isfinite(exponential(np.array([top]))).all()
    x = np.zeros(37, dtype)
    x[[0, 5, 36]] = np.nan
    values = exponential(x)
    np.testing.assert_array_equal(np.isnan(values), np.isnan(x))
    assert (values[~np.isnan(x)] == 1).all()


@pytest.mark.kernel
@in_both_dtypes
def test_exp_rows_has_the_bits_of_each_number_and_the_shift_of_each_row(dtype):
    x = np.linspace(-20, 20, 41).astype(dtype)
    together = exponential(x)
    alone = np.concatenate([exponential(x[i : i + 1]) for i in range(len(x))])
    np.testing.assert_array_equal(together, alone)
    values = np.array([[0.0, 1.0], [800.0, 799.0]], dtype)
    exp_rows(values, np.array([1.0, 800.0], dtype))
    # two ulps of values ≤ 1
    np.testing.assert_allclose(
        values, [[math.exp(-1), 1], [1, math.exp(-1)]], rtol=0, atol=2 * np.finfo(dtype).eps
    )


@pytest.mark.kernel
@in_both_dtypes
def test_functions_in_a_kernel_keep_the_precision_of_their_argument(dtype):
    @kernel
    def inside(x, out):
        out[0], out[1] = exp(x[0]), largest(x)

    x, out = np.array([0.3, -0.1, 0.7], dtype), np.zeros(2, dtype)
    inside(x, out)
    np.testing.assert_array_equal(out, [exponential(x[:1])[0], x[2]])
    assert float(exp(x[0])) == float(out[0])


@pytest.mark.kernel
def test_the_logarithm_is_within_an_ulp_of_libm():
    rng, eps = np.random.default_rng(0), np.finfo(np.float64).eps
    ends = [5e-324, 1e-310, 2.0**-1022, 2.0**-900, 0.5, math.sqrt(0.5), 1 - eps, 1.0, 1 + eps]
    x = np.concatenate([ends, [2.0, 1.7e308], np.exp(rng.uniform(-744, 709, 2000)),
                        1 + rng.uniform(-1e-3, 1e-3, 500)])  # fmt: skip
    ours, expected = np.array([log(v) for v in x]), np.log(x)
    # log x is e ln 2 + log(1 + f) in one rounding of the larger part; a tiny x has one more
    np.testing.assert_array_less(np.abs(ours - expected), 2 * np.spacing(np.abs(expected)) + 1e-300)
    assert ours[ends.index(1.0)] == 0.0


@pytest.mark.kernel
@in_both_dtypes
def test_the_largest_is_that_of_numpy(dtype):
    tiny, most = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    some = [0.0, 1.0, -1.0, tiny, -tiny, most, -most, np.inf, -np.inf, 2.5, -2.5]
    for vector in itertools.permutations(np.array(some, dtype), 2):
        assert largest(np.array(vector)) == max(vector)
    x = np.random.default_rng(0).standard_normal((40, 37)).astype(dtype) - dtype(2)
    ours = [largest(row) for row in x]
    np.testing.assert_array_equal(ours, x.max(axis=1))
    x[0, 5] = np.nan
    assert np.isnan(largest(x[0]))


def test_kernels_alone_have_their_options():
    def twice(x):
        for i in range(x.size):
            x[i] *= 2.0

    def text(compiled):
        compiled._cache = NullCache()  # what is read from a cache has no text
        compiled(np.ones(3))
        return compiled.inspect_llvm(compiled.signatures[0])

    ours, sums, theirs = kernel(twice).compiled, summing_kernel(twice).compiled, njit(twice)
    assert ours.stats.cache_path
    ours, sums, theirs = text(ours), text(sums), text(theirs)
    wide = '"prefer-vector-width"="512"'
    assert [wide in x for x in (ours, sums, theirs)] == [True, True, False]
    assert " fmul nsz contract " in ours
    assert " fmul reassoc nsz contract " in sums


def test_numba_is_imported_by_the_first_call_of_a_kernel_and_threads_may_make_it():
    code = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from approx.kernels.elementary import exp_rows
before = "numba" in sys.modules
sys.setswitchinterval(1e-6)
arrays = [np.full((2, 3), float(i)) for i in range(8)]
with ThreadPoolExecutor(8) as executor:
    list(executor.map(exp_rows, arrays, [np.zeros(2)] * 8))
right = all(np.allclose(x, np.exp(i), rtol=1e-15) for i, x in enumerate(arrays))
print(before, "numba" in sys.modules, right)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "True"]


def test_compiled_functions_of_others_may_be_the_first_to_call_a_kernel():
    code = """
import numpy as np
from numba import njit
from approx.kernels.elementary import exp
@njit
def theirs(x):
    return exp(x)
print(theirs(0.0), theirs(np.float32(1)) == exp(np.float32(1)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["1.0", "True"]


def test_kernels_travel_by_their_name_and_those_of_a_script_with_their_code(monkeypatch):
    cloudpickle = pytest.importorskip("cloudpickle")
    assert pickle.loads(pickle.dumps(exp_rows)) is exp_rows

    def twice(x):
        return 2 * x

    def travelled():
        mine = kernel(twice)
        monkeypatch.setattr(sys.modules["__main__"], "twice", mine, raising=False)
        mine(1.0)
        theirs = pickle.loads(cloudpickle.dumps(mine))
        assert theirs is not mine
        return theirs(3.0)

    assert travelled() == 6.0  # of a function's own
    twice.__module__, twice.__qualname__ = "__main__", "twice"
    assert travelled() == 6.0


def test_threads_that_come_together_get_one_compiled_function():
    @kernel
    def twice(x):
        return 2 * x

    first, second = (Kernel.compiled.func(twice) for _ in range(2))
    assert first is second is twice.compiled


def test_without_a_folder_to_write_a_kernel_compiles_and_says_it_once(monkeypatch):
    def nowhere(*_):
        raise RuntimeError("no locator available")

    monkeypatch.setattr("numba.core.caching.FunctionCache.__init__", nowhere)
    compiler._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR") as said:
        assert [kernel(lambda x, c=c: c * x)(2.0) for c in (2.0, 3.0)] == [4.0, 6.0]
    assert len(said) == 1


@pytest.mark.parametrize("searches", [True, False])
def test_garbage_is_searched_for_after_a_compilation_as_before(searches, monkeypatch):
    during = []

    def failing(*_):
        during.append(gc.isenabled())
        raise ValueError("of the compiler")

    monkeypatch.setattr(CompilerBase, "compile_extra", failing)
    before = gc.isenabled()
    try:
        (gc.enable if searches else gc.disable)()
        with pytest.raises(ValueError, match="of the compiler"):
            compiler.WideCompiler.compile_extra(object.__new__(compiler.WideCompiler), None)
        assert during == [False]
        assert gc.isenabled() is searches
    finally:
        (gc.enable if before else gc.disable)()
