"""Names of a package that are imported when they are asked for."""

import pickle
import subprocess
import sys

import pytest

import approx

FRESH = """
import sys
import approx
assert "numpy" not in sys.modules and "approx.registry" not in sys.modules
from approx.low_rank import godec  # another module of the package is known all the same
assert approx.low_rank.robust_pca.inexact_alm and "approx.registry" not in sys.modules
assert approx.METHODS is approx.registry.METHODS and "METHODS" in vars(approx)
before = set(sys.modules)
assert len(approx.METHODS) == len(list(approx.METHODS)) and "top_k" in approx.METHODS
assert set(sys.modules) == before  # names alone import no method
approx.parse("taylor(degree=2)")
assert "approx.polynomials.taylor" in sys.modules
assert not {"approx.sparse", "approx.sketches", "approx.mechanisms"} & set(sys.modules)
"""


def test_a_package_imports_what_is_asked_for():
    subprocess.run([sys.executable, "-c", FRESH], check=True)


def test_every_public_name_is_there_and_listed():
    namespace = {}
    exec("from approx import *", namespace)
    assert set(approx.__all__) == set(namespace) - {"__builtins__"}
    assert set(approx.__all__) <= set(dir(approx))
    assert pickle.loads(pickle.dumps(approx.Mask)) is approx.Mask


@pytest.mark.parametrize("name", ["METHOD", "__wrapped__", "_exact", "low.rank"])
def test_an_unknown_name_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'approx' has no attribute '{name}'"):
        getattr(approx, name)
