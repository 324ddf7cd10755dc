"""The list of methods, well-known names for some, and the parser of specs."""

import ast
import dataclasses
import importlib
import warnings
from collections.abc import Iterator, MutableMapping
from typing import Any

from approx import checks
from approx.method import Method, name_hints


class Registry(MutableMapping[str, type[Method]]):
    """A mapping from names to classes; a class given as "module:Class" is imported at first use."""

    def __init__(self, **places: str) -> None:
        self._known: dict[str, str | type[Method]] = dict(places)

    def __getitem__(self, name: str) -> type[Method]:
        known = self._known[name]
        if isinstance(known, str):
            module, _, kind = known.partition(":")
            known = getattr(importlib.import_module(f"approx.{module}"), kind)
            self._known[name] = known
        return known

    def __setitem__(self, name: str, method: type[Method]) -> None:
        self._known[name] = method

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<{len(self)} methods: {', '.join(self)}>"


METHODS = Registry(
    zero="baselines:Zero",
    one="baselines:One",
    constant="baselines:Constant",
    uniform="baselines:Uniform",
    positive="random_features.positive:Positive",
    trigonometric="random_features.trigonometric:Trigonometric",
    random_phase="random_features.random_phase:RandomPhase",
    hyperbolic="random_features.hyperbolic:Hyperbolic",
    generalized_exponential="random_features.generalized_exponential:GeneralizedExponential",
    generalized_trigonometric="random_features.generalized_trigonometric:GeneralizedTrigonometric",
    shifted_positive="random_features.shifted_positive:ShiftedPositive",
    dense_exponential="random_features.dense_exponential:DenseExponential",
    poisson="random_features.poisson:Poisson",
    geometric="random_features.geometric:Geometric",
    angular_hybrid="random_features.angular_hybrid:AngularHybrid",
    regularized="random_features.regularized:RegularizedPositive",
    leverage="random_features.leverage:Leverage",
    taylor="polynomials.taylor:Taylor",
    tensor_power="polynomials.tensor_power:TensorPower",
    richardson="polynomials.richardson:Richardson",
    chebyshev="polynomials.chebyshev:Chebyshev",
    minimax="polynomials.minimax:Minimax",
    least_squares="polynomials.least_squares:LeastSquares",
    random_maclaurin="sketches.random_maclaurin:RandomMaclaurin",
    product_sketch="sketches.product_sketch:ProductSketch",
    tensor_sketch="sketches.tensor_sketch:TensorSketch",
    squared_sketch="sketches.squared_sketch:SquaredSketch",
    truncated_svd="low_rank.truncated_svd:TruncatedSVD",
    nystrom="low_rank.nystrom:Nystrom",
    coreset="low_rank.coreset:Coreset",
    projection="low_rank.projection:ColumnProjection",
    logit_svd="compressed_logits.logit_svd:LogitSVD",
    key_pca="compressed_logits.key_pca:KeyPCA",
    channels="compressed_logits.channels:Channels",
    key_channels="compressed_logits.key_channels:KeyChannels",
    quantised="compressed_logits.quantised:Quantised",
    qjl="compressed_logits.qjl:QJL",
    turboquant="compressed_logits.turboquant:TurboQuant",
    rounded_values="combinations.rounded_values:RoundedValues",
    exact="sparse.exact:Exact",
    top_k="sparse.top_k:TopK",
    projected_top_k="sparse.projected_top_k:ProjectedTopK",
    threshold="sparse.threshold:Threshold",
    top_p="sparse.top_p:TopP",
    columns="sparse.columns:Columns",
    pages="sparse.pages:Pages",
    vertical_slash="sparse.vertical_slash:VerticalSlash",
    sliding_window="sparse.sliding_window:SlidingWindow",
    sink_window="sparse.sink_window:SinkWindow",
    chunk="sparse.chunk:Chunk",
    strided="sparse.strided:Strided",
    random="sparse.random:Random",
    lsh="sparse.lsh:LSH",
    smyrf="sparse.smyrf:Smyrf",
    sorted_lsh="sparse.sorted_lsh:SortedLSH",
    reformer="sparse.reformer:Reformer",
    true_denominator="sparse.true_denominator:TrueDenominator",
    robust_pca="low_rank.robust_pca:RobustPCA",
    acc_alt_proj="low_rank.robust_pca:AccAltProj",
    stable_pca="low_rank.stable_pca:StablePCA",
    godec="low_rank.godec:GoDec",
    hierarchical="hierarchical.hierarchical:Hierarchical",
    scatterbrain="combinations.scatterbrain:Scatterbrain",
    sampled="combinations.sampled:Sampled",
    guarded="combinations.guarded:Guarded",
    centered="combinations.centred:Centered",
    elu="mechanisms.elu:Elu",
    relu="mechanisms.relu:Relu",
    cosformer="mechanisms.cosformer:CosFormer",
    rfa="mechanisms.rfa:Rfa",
    flowformer="mechanisms.flowformer:Flowformer",
    linformer="mechanisms.linformer:Linformer",
    nystromformer="mechanisms.nystromformer:Nystromformer",
    flash="mechanisms.flash:Flash",
    randomized_attention="mechanisms.randomized_attention:RandomizedAttention",
    lara="mechanisms.lara:Lara",
    eva="mechanisms.eva:Eva",
)

MOST_LEVELS = 24  # depth of a spec's syntax tree, two per nested method: each may double the cost
# Well-known names. Each stands for a spec; other fields can be added to the name:
# `performer(m=8)` is `positive(m=8, projection='orthogonal')`.
ALIASES: dict[str, str] = {
    "performer": "positive(projection='orthogonal')",
    "rff": "trigonometric()",
    "streaming_llm": "sink_window(sinks=4)",
    "wildcat": "coreset(tau='radii')",
    "thinformer": "coreset(pivots='thinning', weights='equal')",
    "kq_svd": "logit_svd()",
    "kivi": "quantised(bits=2, by='channel', group=32, recent=32)",
    "eden": "turboquant(form='eden')",
    "think": "key_channels(group=32)",
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
    "tova": "columns(by='tova')",
    "snapkv": "columns(by='snapkv', recent=16, window=16)",
    "criticalkv": "columns(by='critical', recent=16, window=16)",
    "keydiff": "columns(by='key_diff', block=8)",
    "knorm": "columns(by='key_norm')",
    "expected_attention": "columns(by='expected', sinks=4)",
    "minference": "vertical_slash(by='last')",
}


def parse(spec: str) -> Method:
    """Return the method that a spec describes; a spec has only literals and registered names.

    Parameters
    ----------
    spec : str
        Such as ``"positive(m=128)"``; a bare name is a template. A name in ALIASES stands for its
        spec, with the given fields changed. ``str(method)`` writes a spec, without aliases, unless
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
        raise TypeError(f"a spec is text such as positive(m=128), got {checks.display(spec)}")
    try:
        with warnings.catch_warnings():  # of Python, about 1if, which is no spec anyway
            warnings.simplefilter("ignore")
            tree = ast.parse(spec.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{checks.display(spec)} is not a spec such as positive(m=128)") from None
    except (MemoryError, RecursionError):
        tree = None
    if tree is None or _deeper(tree, MOST_LEVELS):
        raise ValueError("the spec is nested too deeply to be read: simplify it")
    method = _value(tree, spec)
    if not isinstance(method, Method):
        raise ValueError(f"{checks.display(spec)} is not a spec such as positive(m=128)")
    return method


def _deeper(tree: ast.AST, levels: int) -> bool:
    """Return whether a syntax tree has more than ``levels`` levels."""
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
                f"{node.func.id} takes {', '.join(names) or 'nothing'}, got {checks.display(spec)}"
            )
        given = dict(zip(names, (_value(a, spec) for a in node.args)))
        for keyword in node.keywords:
            if keyword.arg not in names:
                listed = f"`expqk methods {node.func.id}` lists all {len(names)}"
                raise ValueError(
                    checks.unknown(f"field of {node.func.id}", str(keyword.arg), names, listed)
                )
            if keyword.arg in given:
                raise ValueError(
                    f"{keyword.arg} is given twice in {checks.display(spec)}: give one"
                )
            given[keyword.arg] = _value(keyword.value, spec)
        return dataclasses.replace(method, **given)  # type: ignore[type-var]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ValueError(
            f"{checks.display(ast.unparse(node))} in {checks.display(spec)} is not a literal: "
            "write a number, a name in quotes, or a method"
        ) from None


SIZES = {"pyramidkv": "pyramid", "adakv": "ada"}  # rules for sizes, which are no methods


def _named(name: str) -> Method:
    if name in ALIASES:
        return parse(ALIASES[name])
    if name in SIZES:
        rule = f"expqk plan --sizes {SIZES[name]} --method h2o"
        raise ValueError(f"{name} is a rule for the sizes of a method: {rule}")
    if name not in METHODS:
        listed = f"`expqk methods` lists all {len(METHODS)}"
        known = [*METHODS, *ALIASES]
        hint = name_hints.meant(name, known) or ""
        raise ValueError(checks.unknown("method", name, known, listed, hint))
    return METHODS[name]()
