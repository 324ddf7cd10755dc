"""The list of methods, the familiar names of some, and the reader of their specs."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from approx import checks
from approx.baselines import Constant, One, Uniform, Zero
from approx.combinations.centred import Centered
from approx.combinations.sampled import Sampled
from approx.combinations.scatterbrain import Scatterbrain
from approx.compressed_logits.channels import Channels
from approx.compressed_logits.key_pca import KeyPCA
from approx.compressed_logits.logit_svd import LogitSVD
from approx.compressed_logits.quantised import Quantised
from approx.hierarchical.hierarchical import Hierarchical
from approx.low_rank.coreset import Coreset
from approx.low_rank.godec import GoDec
from approx.low_rank.nystrom import Nystrom
from approx.low_rank.robust_pca import AccAltProj, RobustPCA
from approx.low_rank.stable_pca import StablePCA
from approx.low_rank.truncated_svd import TruncatedSVD
from approx.mechanisms.cosformer import CosFormer
from approx.mechanisms.elu import Elu
from approx.mechanisms.eva import Eva
from approx.mechanisms.flash import Flash
from approx.mechanisms.flowformer import Flowformer
from approx.mechanisms.lara import Lara
from approx.mechanisms.linformer import Linformer
from approx.mechanisms.nystromformer import Nystromformer
from approx.mechanisms.randomized_attention import RandomizedAttention
from approx.mechanisms.relu import Relu
from approx.mechanisms.rfa import Rfa
from approx.method import Method, name_hints
from approx.polynomials.chebyshev import Chebyshev
from approx.polynomials.least_squares import LeastSquares
from approx.polynomials.minimax import Minimax
from approx.polynomials.richardson import Richardson
from approx.polynomials.taylor import Taylor
from approx.polynomials.tensor_power import TensorPower
from approx.random_features.angular_hybrid import AngularHybrid
from approx.random_features.dense_exponential import DenseExponential
from approx.random_features.generalized_exponential import GeneralizedExponential
from approx.random_features.generalized_trigonometric import GeneralizedTrigonometric
from approx.random_features.geometric import Geometric
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.leverage import Leverage
from approx.random_features.poisson import Poisson
from approx.random_features.positive import Positive
from approx.random_features.random_phase import RandomPhase
from approx.random_features.regularized import RegularizedPositive
from approx.random_features.shifted_positive import ShiftedPositive
from approx.random_features.trigonometric import Trigonometric
from approx.sketches.product_sketch import ProductSketch
from approx.sketches.random_maclaurin import RandomMaclaurin
from approx.sketches.squared_sketch import SquaredSketch
from approx.sketches.tensor_sketch import TensorSketch
from approx.sparse.chunk import Chunk
from approx.sparse.columns import Columns
from approx.sparse.exact import Exact
from approx.sparse.lsh import LSH
from approx.sparse.pages import Pages
from approx.sparse.projected_top_k import ProjectedTopK
from approx.sparse.random import Random
from approx.sparse.reformer import Reformer
from approx.sparse.sink_window import SinkWindow
from approx.sparse.sliding_window import SlidingWindow
from approx.sparse.smyrf import Smyrf
from approx.sparse.sorted_lsh import SortedLSH
from approx.sparse.strided import Strided
from approx.sparse.threshold import Threshold
from approx.sparse.top_k import TopK
from approx.sparse.top_p import TopP
from approx.sparse.true_denominator import TrueDenominator
from approx.sparse.vertical_slash import VerticalSlash

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Zero,
        One,
        Constant,
        Uniform,
        Positive,
        Trigonometric,
        RandomPhase,
        Hyperbolic,
        GeneralizedExponential,
        GeneralizedTrigonometric,
        ShiftedPositive,
        DenseExponential,
        Poisson,
        Geometric,
        AngularHybrid,
        RegularizedPositive,
        Leverage,
        Taylor,
        TensorPower,
        Richardson,
        Chebyshev,
        Minimax,
        LeastSquares,
        RandomMaclaurin,
        ProductSketch,
        TensorSketch,
        SquaredSketch,
        TruncatedSVD,
        Nystrom,
        Coreset,
        LogitSVD,
        KeyPCA,
        Channels,
        Quantised,
        Exact,
        TopK,
        ProjectedTopK,
        Threshold,
        TopP,
        Columns,
        Pages,
        VerticalSlash,
        SlidingWindow,
        SinkWindow,
        Chunk,
        Strided,
        Random,
        LSH,
        Smyrf,
        SortedLSH,
        Reformer,
        TrueDenominator,
        RobustPCA,
        AccAltProj,
        StablePCA,
        GoDec,
        Hierarchical,
        Scatterbrain,
        Sampled,
        Centered,
        Elu,
        Relu,
        CosFormer,
        Rfa,
        Flowformer,
        Linformer,
        Nystromformer,
        Flash,
        RandomizedAttention,
        Lara,
        Eva,
    )
}

# Names that people know. Each stands for a spec, whose other fields can be given with the name:
# `performer(m=8)` is `positive(m=8, projection='orthogonal')`.
MOST_LEVELS = 24  # of a spec's syntax tree, two for each method in a method: costs may double there
ALIASES: dict[str, str] = {
    "performer": "positive(projection='orthogonal')",
    "rff": "trigonometric()",
    "streaming_llm": "sink_window(sinks=4)",
    "wildcat": "coreset(tau='radii')",
    "thinformer": "coreset(pivots='thinning', weights='equal')",
    "kq_svd": "logit_svd()",
    "kivi": "quantised(bits=2, per='channel', group=32, recent=32)",
    "loki": "projected_top_k(by='pca')",
    "sparq": "projected_top_k(by='channels')",
    "quest": "pages(by='box', current=True)",
    "longformer": "sink_window()",
    "bigbird": "sampled(sparse=sink_window(sinks=2), weighted=False)",
    "magicpig": (
        "sampled(sparse=sink_window(k=68, sinks=4), design='lsh', hashes=10, tables=150, "
        "transform='center')"
    ),
    "vattention": "sampled(sparse=sink_window(), epsilon=0.1, delta=0.1)",
    "hyper_attention": "sampled(sparse=sorted_lsh(), design='multinomial', shared=True)",
    "kdeformer": "sampled(sparse=sorted_lsh(), design='multinomial', shared=True)",
    "h2o": "columns(by='h2o', recent=16)",
    "snapkv": "columns(by='snapkv', recent=16, window=16)",
    "keydiff": "columns(by='key_diff', block=8)",
    "knorm": "columns(by='key_norm')",
    "expected_attention": "columns(by='expected', sinks=4)",
    "minference": "vertical_slash(by='last')",
}


def parse(spec: str) -> Method:
    """Return the method that a spec names; literals and registered names only.

    Parameters
    ----------
    spec : str
        Such as ``"positive(m=128)"``; a bare name is a template. A name of ALIASES stands for its
        spec, with the fields that are given. ``str(method)`` writes a spec, without aliases, unless
        the method holds arrays, as `projections.Fixed` does.

    Raises
    ------
    ValueError
        The text is not a spec, a name or field is unknown (the message suggests one), or a value
        is out of range.

    Examples
    --------
    >>> str(parse("scatterbrain(sparse=top_k(k=8))"))
    'scatterbrain(sparse=top_k(k=8))'
    >>> str(parse("performer(m=64)"))
    "positive(m=64, projection='orthogonal')"
    >>> parse("postive(m=8)")
    Traceback (most recent call last):
    ValueError: unknown method 'postive', did you mean 'positive' or 'shifted_positive'? ...
    """
    if not isinstance(spec, str):
        raise TypeError(f"a spec is text such as positive(m=128), got {checks.shown(spec)}")
    try:
        tree = ast.parse(spec.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{checks.shown(spec)} is not a spec such as positive(m=128)") from None
    except (MemoryError, RecursionError):
        tree = None
    if tree is None or _deeper(tree, MOST_LEVELS):
        raise ValueError("the spec is nested too deeply to be read: simplify it")
    method = _value(tree, spec)
    if not isinstance(method, Method):
        raise ValueError(f"{checks.shown(spec)} is not a spec such as positive(m=128)")
    return method


def _deeper(tree: ast.AST, levels: int) -> bool:
    """Return whether a tree has more levels than so many."""
    level = [tree]
    for _ in range(levels):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)


def _value(node: ast.expr, spec: str) -> Any:
    if isinstance(node, ast.Name):
        return _named(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        method = _named(node.func.id)
        names = [f.name for f in dataclasses.fields(method)]  # type: ignore[arg-type]
        if len(node.args) > len(names):
            raise ValueError(
                f"{node.func.id} takes {', '.join(names) or 'nothing'}, got {checks.shown(spec)}"
            )
        given = dict(zip(names, (_value(a, spec) for a in node.args)))
        for keyword in node.keywords:
            if keyword.arg not in names:
                listed = f"`expqk methods {node.func.id}` lists all {len(names)}"
                raise ValueError(
                    checks.unknown(f"field of {node.func.id}", str(keyword.arg), names, listed)
                )
            if keyword.arg in given:
                raise ValueError(f"{keyword.arg} is given twice in {checks.shown(spec)}: give one")
            given[keyword.arg] = _value(keyword.value, spec)
        return dataclasses.replace(method, **given)  # type: ignore[type-var]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ValueError(
            f"{checks.shown(ast.unparse(node))} in {checks.shown(spec)} is not a literal: "
            "write a number, a name in quotes, or a method"
        ) from None


def _named(name: str) -> Method:
    """Return the method of a name, with the defaults of its fields."""
    if name in ALIASES:
        return parse(ALIASES[name])
    if name not in METHODS:
        listed = f"`expqk methods` lists all {len(METHODS)}"
        raise ValueError(name_hints.unknown(name, [*METHODS, *ALIASES], listed))
    return METHODS[name]()
