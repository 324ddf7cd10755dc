"""Specs: what `parse` reads, `str` writes, and neither ever runs."""

import dataclasses
import inspect
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpydoc.docscrape import NumpyDocString
from refusals import refuses
from small import SPECS, few, small, very_few

import approx
from approx import ALIASES, METHODS, Method, Size, parse
from approx.method import MOST_KEYS
from approx.method.name_hints import MEANT, bare_name, meant
from approx.method.tags import OUTERMOST
from approx.projections import IID, Fixed
from approx.random_features.positive import Positive


def assert_round_trip(method):
    again = parse(str(method))
    assert again == method
    assert type(again) is type(method)
    assert str(again) == str(method)
    assert hash(again) == hash(method)


@pytest.mark.parametrize("name", METHODS)
def test_names_are_keys_and_defaults_are_left_out(name):
    method = METHODS[name]()
    assert METHODS[name].name == name
    assert str(method) == f"{name}()"
    assert parse(name) == parse(f"{name}()") == parse(f"  {name} ( ) \n") == method


@pytest.mark.parametrize("name", SPECS)
@few
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 5))
def test_round_trip(name, n, l, d):
    assert_round_trip(small(name, n, l, d))


@pytest.mark.parametrize("name", METHODS)
@very_few
@given(st.floats(1, 1e6), st.integers(1, 500), st.integers(1, 500), st.integers(1, 64))
def test_round_trip_after_within(name, budget, n, l, d):
    spec = "scatterbrain(positive, top_k)" if name == "scatterbrain" else name
    filled = parse(spec).within(budget, n=n, l=l, d=d)
    if filled is not None:
        assert_round_trip(filled)


@given(
    st.sampled_from(sorted(name for name in METHODS if OUTERMOST not in parse(name).tags)),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.integers(1, MOST_KEYS),
)
def test_round_trip_of_nested_methods(name, share, k):
    inner = parse("scatterbrain")
    nested = dataclasses.replace(inner, sparse=METHODS["top_k"](k=k), share=share)
    assert_round_trip(nested)
    assert_round_trip(dataclasses.replace(nested, low_rank=small(name, 4, 4, 2)))
    assert (f"top_k(k={k})" in str(nested)) == (k != 32)  # the default is left out


def test_familiar_names_stand_for_one_spec():
    for alias, spec in ALIASES.items():
        assert alias not in METHODS
        assert parse(alias) == parse(spec)
        assert str(parse(alias)) == str(parse(spec))
        assert type(parse(alias)).name == spec.partition("(")[0]
    assert parse("performer(16)") == parse("positive(m=16, projection='orthogonal')")
    assert parse("streaming_llm(k=9, sinks=2)") == parse("sink_window(k=9, sinks=2)")
    assert str(parse("scatterbrain(performer(m=8), streaming_llm(k=8))")) == (
        "scatterbrain(low_rank=positive(m=8, projection='orthogonal'), "
        "sparse=sink_window(k=8, sinks=4))"
    )
    refuses(r"unknown field of performer 'size'", parse, "performer(size=3)")
    refuses(r"did you mean 'performer'", parse, "perfomer(m=3)")


def test_what_a_spec_may_look_like():
    want = METHODS["scatterbrain"](METHODS["positive"](m=8), METHODS["top_k"](k=3), 0.25)
    for spec in (
        "scatterbrain(low_rank=positive(m=8), sparse=top_k(k=3), share=0.25)",
        "scatterbrain(positive(8), top_k(3), 0.25)",
        'scatterbrain(positive(8, "iid"), sparse=top_k(3), share=25e-2)',
        "scatterbrain(\n  positive(m=8),\n  top_k(k=3), share=0.25,\n)",
    ):
        assert parse(spec) == want
    assert parse("positive(m=None)") == parse("positive") == METHODS["positive"]()
    assert parse("scatterbrain(positive, top_k)").low_rank == METHODS["positive"]()


def test_a_number_of_numpy_is_written_as_a_number():
    scatterbrain = METHODS["scatterbrain"](share=np.float64(0.25))
    assert str(scatterbrain) == "scatterbrain(share=0.25)"
    assert_round_trip(scatterbrain)


def test_frequencies_have_a_name_but_no_spec():
    method = Positive(projection=Fixed([[1.0], [-1.0]]))
    assert str(method) == str(Positive(projection=Fixed([[1.0], [-1.0]])))
    assert str(method) != str(Positive(projection=Fixed([[1.0], [-2.0]])))
    refuses(r"is not a (spec|literal)", parse, str(method))


# Names that people know


def test_every_hint_is_the_name_of_a_method_and_of_one_only():
    known = [*METHODS, *ALIASES]
    assert set(MEANT.values()) <= set(known)
    plainly = [*map(bare_name, known), *MEANT]
    assert len(set(plainly)) == len(plainly)
    assert all(bare_name(name) == name for name in MEANT)


@pytest.mark.parametrize(("name", "method"), [
    ("StreamingLLM", "streaming_llm"), ("streaming-llm", "streaming_llm"), ("H2O", "h2o"),
    ("Nyström", "nystrom"), ("FAVOR+", "performer"), ("favor++", "generalized_exponential"),
    ("Linear Attention", "elu"), ("softmax", "exact"), ("positive", "positive"),
    ("nothing like it", None),
])  # fmt: skip
def test_a_name_is_known_as_people_write_it(name, method):
    assert meant(name, [*METHODS, *ALIASES]) == method


# Errors


@pytest.mark.parametrize(("spec", "message"), [
    (
        "postive(m=3)",
        "unknown method 'postive', did you mean 'positive' or 'shifted_positive'\\? "
        f"`expqk methods` lists all {len(METHODS)}$",
    ),
    ("topk", r"unknown method 'topk', did you mean 'top_k'\? `"),
    ("H2O(k=32)", r"unknown method 'H2O', did you mean 'h2o'\?"),
    ("linear_attention", r"unknown method 'linear_attention', did you mean 'elu'\?"),
    ("adakv(k=32)", "a rule for the sizes of a method: expqk plan --sizes ada"),
    ("qqq(m=3)", r"unknown method 'qqq'\. `expqk methods` lists all \d+$"),
    ("sampled(desing='lsh')", "did you mean 'design' .* `expqk methods sampled` lists all 14"),
    ("positive(n=3)", r"unknown field of positive 'n'.* Known: m, projection"),
    ("positive(projektion='iid')", "did you mean 'projection'"),
    ("zero(m=3)", "unknown field of zero 'm'.* Known: none"),
    ("zero(3)", r"zero takes nothing, got 'zero\(3\)'"),
    ("positive(3, 'iid', 4)", "positive takes m, projection"),
    ("positive(3, m=3)", "m is given twice"),
    ("positive(m=-1)", "m must be >= 1, got -1"),
    (
        "positive(projection='iidd')",
        "projection must be one of iid, antithetic, zero_mean, orthogonal",
    ),
    ("positive(**{'m': 3})", "unknown field of positive"),
    ("positive(*[3])", "is not a literal"),
    ("scatterbrain(sparse=top_kk(k=3))", "unknown method 'top_kk'"),
    ("scatterbrain(sparse=top_k(kk=3))", "unknown field of top_k 'kk'"),
    ("", "is not a spec such as"),
    ("3", "is not a spec such as"),
    ("'positive'", "is not a spec such as"),
    ("[positive]", "is not a literal"),
    ("top_k(k=1if 1 else 2)", "is not a literal"),  # of which Python warns
    ("positive(m=3", "is not a spec such as"),
    ("positive m=3", "is not a spec such as"),
    ("positive(m=3); zero()", "is not a spec such as"),
    ("positive(m=3\0)", "is not a spec such as"),
    ("x = 3", "is not a spec such as"),
    ("positive(m=3)(m=4)", "is not a literal"),
    ("positive(m={[1]})", "is not a literal"),
    ("positive(m=2**70)", "is not a literal"),
    ("positive(m=m)", "unknown method 'm'"),
    ("(" * 300 + "3" + ")" * 300, "is not a spec such as"),
    ("positive(m=" + "-" * 10**5 + "3)", "nested too deeply"),
    ("positive(m=" + "1+" * 2000 + "1)", "nested too deeply"),
    ("scatterbrain(low_rank=" * 13 + "zero()" + ")" * 13, "nested too deeply"),
])  # fmt: skip
def test_errors_name_the_rule_and_what_was_given(spec, message):
    refuses(message, parse, spec)


@pytest.mark.parametrize(("spec", "message"), [
    ("positive(m='3')", "m must be an integer, got '3'"),
    ("lsh(hashes=2, rounds=None)", "rounds must be an integer, got None"),
    ("smyrf(size=2, rounds=None)", "rounds must be an integer, got None"),
    ("positive(m=3.0)", "m must be an integer, got 3.0"),
    ("positive(m=True)", "m must be an integer, got True"),
    ("positive(m=zero())", "m must be an integer"),
    ("scatterbrain(low_rank=3)", "low_rank must be a method, got 3"),
])  # fmt: skip
def test_values_of_another_type(spec, message):
    with pytest.raises(TypeError, match=message):
        parse(spec)


@pytest.mark.parametrize(("spec", "message"), [
    ("sampled(design='lsh')", "needs hashes and tables"),
    ("sampled(design='lsh', hashes=2, tables=1)", "2 collisions need as many tables, got 1"),
    ("sampled(design='lsh', hashes=2, tables=3, k=3)", "takes no k"),
    ("sampled(k=3, hashes=2)", 'belong to design "lsh"'),
    ("sampled(k=3, epsilon=0.1)", "epsilon and delta go together"),
    ("sampled(k=1, epsilon=0.1, delta=0.1)", "needs k >= 2 at width"),
    ("sampled(k=3, design='poisson', epsilon=0.1, delta=0.1)", "epsilon needs design"),
    ("sampled(positive(m=3), k=2)", "sparse must be a support"),
    ("sampled(k=2, low_rank=top_k(k=1))", "purely low-rank"),
    ("sampled(k=2, design='multinomial', weighted=False)", "count by their weights"),
    ("quantised(bits=9, levels='normal')", "bits must be <= 8 for normal levels, got 9"),
    ("quantised(levels='normal', dither=True)", "dither=True belongs to levels='uniform'"),
    ("rounded_values(exact(), bits=9, levels='normal')", "bits must be <= 8 for normal"),
    ("centered(rounded_values(exact()))", "put rounded_values outside"),
    ("logit_svd(rank=3)", "rank must be <= 2, got 3"),
    ("key_pca(rank=3)", "rank must be <= 2, got 3"),
    ("channels(r=3)", "r must be <= 2, got 3"),
    ("projected_top_k(k=1, r=3)", "r must be <= 2, got 3"),
    ("projected_top_k(k=1, by='svd', centred=False)", "centred=False belongs to by="),
    ("truncated_svd(3, epsilon=0.1)", "exclude each other, got rank and epsilon"),
    ("truncated_svd(3, energy=0.1)", "got rank and energy"),
    ("truncated_svd(epsilon=0.1, energy=0.9)", "got epsilon and energy"),
    ("truncated_svd(epsilon=1.0)", r"epsilon must be < 1, got 1\.0"),
    ("truncated_svd(epsilon=0)", "epsilon must be finite and > 0"),
    ("truncated_svd(energy=1.5)", r"energy must be <= 1, got 1\.5"),
    ("acc_alt_proj(rank=5)", "rank must be <= 4, got 5"),
    ("acc_alt_proj(rank=1, space='rows')", "space must be one of kernel, attention"),
    ("stable_pca(delta=-1)", "delta must be finite and > 0"),
    ("coreset(3, 'random')", "pivots must be one of cholesky, uniform, leverage, thinning"),
    ("coreset(3, tau='best')", "tau must be one of keys, queries, radii"),
    ("coreset(3, tau=0.0)", "tau must be"),
    ("coreset(3, block=2)", "tau must be a number where keys of the past"),
    ("coreset(3, weights='equal')", "equal weights are of keys that are drawn with equal"),
    (
        "coreset(3, 'uniform', 1.0, 'equal', block=2)",
        "equal weights are of keys that are drawn",
    ),
    ("nystrom(3, 'random')", "landmarks must be one of uniform, kmeans, leverage"),
    ("nystrom(3, block=0)", "block must be >= 1"),
    ("lsh(hashes=2, entries=3)", "hashes and entries exclude each other: give one"),
    ("lsh(entries=0)", "entries must be finite and > 0"),
    ("lsh(entries=3)", "64 hashes still expect 4 entries per row"),
    ("lsh('cross_polytope', buckets=3)", "buckets must be even, got 3"),
    ("lsh(buckets=4)", "buckets belongs to family 'cross_polytope', got 'sign'"),
    ("lsh(width=1.0)", "width belongs to family 'e2', got 'sign'"),
    ("lsh('angular')", "family must be one of"),
    ("squared_sketch(inner=2, degree=3)", "degree must be even, got 3"),
    ("product_sketch(m=2, law='cauchy')", "law must be one of rademacher, gaussian"),
    ("random_maclaurin(m=2, law='zipf')", "law must be one of geometric, poisson"),
    ("random_maclaurin(m=3, exact=2)", r"\(m=3, exact=2\) needs m >= 4 at width 2, got 3"),
    ("top_p(p=1.5)", r"p must be <= 1, got 1\.5"),
    ("sink_window(k=2, sinks=3)", "k counts the sinks too, so it must be >= 3, got 2"),
    ("pages(k=15)", "k must hold a page, so it must be >= 16, got 15"),
    ("vertical_slash(4, sinks=2, recent=3)", "recent keys too, so it must be >= 5, got 4"),
    ("columns(k=2, sinks=1, recent=2)", r"k counts sinks and recent keys too.*>= 3, got 2"),
    ("columns(k=4, by='h2o', recent=2, block=4)", r"recent keys and block too.*>= 5, got 4"),
    ("columns(by='snapkv', kernel_size=4)", "kernel_size must be odd, got 4"),
    ("columns(by='h2o', window=8)", "window is a field of by=.snapkv. or"),
    ("cosformer(M=3)", "M must be >= 4, got 3"),
    ("eva(m=2, size=3)", "m follows from size: leave it out"),
    (
        "hierarchical(basis='mean', space='attention')",
        r"estimates exp\(q·k\), so space must be",
    ),
    ("chebyshev(degree=1, bound=1e-300)", r"bound must be >= 9\.54e-07, got 1e-300"),
])  # fmt: skip
def test_fields_that_do_not_go_together_or_do_not_fit(spec, message):
    refuses(message, lambda: parse(spec).approximate(np.ones((4, 2)), np.ones((4, 2))))


@pytest.mark.parametrize("spec", [None, 3, b"zero()", ["zero()"], METHODS["zero"]])
def test_what_is_no_text(spec):
    with pytest.raises(TypeError, match="a spec is text"):
        parse(spec)


@pytest.mark.parametrize("spec", [
    "__import__('os').system('touch {path}')",
    "__import__('os')",
    "positive(m=__import__('os').system('touch {path}'))",
    "(lambda: open('{path}', 'w'))()",
    "positive(m=open('{path}', 'w'))",
    "positive(m=[open('{path}', 'w') for _ in (1,)])",
    "positive(m=(x := open('{path}', 'w')))",
    "positive.__class__.__mro__[1].__subclasses__()",
    "positive(m=f\"{{open('{path}', 'w')}}\")",
    "eval(\"open('{path}', 'w')\")",
    "parse('zero()')",
    "METHODS['zero']()",
])  # fmt: skip
def test_nothing_is_evaluated(spec, tmp_path):
    path = tmp_path / "made"
    refuses(r"unknown method|is not a literal", parse, spec.format(path=path))
    assert not path.exists()


# A method of one's own


def test_a_method_of_ones_own(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Half(METHODS["one"]):
        name = "half"
        sized_by = Size("rank")
        rank: int | None = None
        scale: float = 0.5
        _price, _affordable = Method._price, Method._affordable  # not those of a baseline

    monkeypatch.setitem(METHODS, "half", Half)
    method = parse("half(scale=0.25)")
    assert method == Half(scale=0.25)
    assert_round_trip(method)
    refuses("unknown method 'haf', did you mean 'half'", parse, "haf")
    refuses(r"half\(scale=0.25\) is a template: give rank", method.approximate, [[1.0]], [[1.0]])
    # columns of both factors: rank·(n + l)/n
    filled = method.within(9, n=10, l=20, d=4)
    assert filled == Half(rank=3, scale=0.25)
    assert math.isclose(filled.price(n=10, l=20, d=4).stored, 9)


def test_arrays_of_an_own_method_are_told_apart_to_the_last_bit():
    @dataclasses.dataclass(frozen=True)
    class Weighted(Method):
        w: np.ndarray
        name = "weighted"

        def evaluate(self, q, k, mask, rng):
            raise NotImplementedError

    one, other = (str(Weighted(np.array([1.0, x]))) for x in (2.0, np.nextafter(2.0, 3.0)))
    assert one != other  # a sweep seeds and names cells by it
    assert one == str(Weighted(np.array([[1.0, 0.0], [2.0, 0.0]])[:, 0]))
    assert "\n" not in str(Weighted(np.arange(10_000.0)))


@pytest.mark.parametrize("name", METHODS)
def test_a_docstring_names_every_field_a_cost_and_a_source(name):
    doc = NumpyDocString(inspect.getdoc(METHODS[name]))
    named = [one for entry in doc["Parameters"] for one in entry.name.split(", ")]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(METHODS[name]))
    notes = "\n".join(doc["Notes"])
    assert "Cost: " in notes
    assert bool(doc["References"]) != ("Source: " in notes)  # published, or all said on the page
    assert doc["Examples"]


def test_a_projection_is_known_by_its_name():
    assert Positive(m=4, projection=IID()) == Positive(m=4)
    assert parse(str(Positive(m=4, projection=IID()))) == Positive(m=4)


# Names of a package that are imported when they are asked for


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
