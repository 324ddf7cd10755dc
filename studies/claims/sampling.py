"""vAttention, MagicPIG, HyperAttention, KDEformer: some keys exact, the rest drawn and weighted."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import norm

from analysis import inputs, moments
from analysis.claims.evidence import (
    Check,
    above,
    at_most,
    claim,
    difference,
    equal,
    gaussian,
    near,
    printed,
    sampled,
    without,
)
from approx import Mask, parse
from approx.checks import Array, required
from approx.combinations.sampled import Sampled, Sizes
from approx.estimate import exact
from approx.sparse import sorted_lsh
from approx.sparse.sink_window import SinkWindow
from approx.sparse.top_k import TopK
from studies.claims.heads import causal_heads, covered

V_ATTENTION = "vAttention (arXiv 2510.05688)"
HUB = "skylight-org/sparse-attention-hub f5abf91"
MAGIC_PIG = "MagicPIG (arXiv 2410.16179)"
MAGIC_PIG_CODE = "Infini-AI-Lab/MagicPIG ac9aa36"
HYPER = "HyperAttention (arXiv 2310.05869)"
HYPER_CODE = "insuhan/hyper-attn 68b91e9"
KDE = "KDEformer (arXiv 2302.02451)"
KDE_CODE = "majid-daliri/kdeformer 427df2d"
TRIALS = 300  # rows with one query, each with draws of its own


def _trials(
    spec: str, query: Array, keys: Array, values: Array, count: int = TRIALS
) -> tuple[Array, Array, Array]:
    """Return relative errors of sums and of outputs, and how many keys are read, of every row."""
    mask = _rows_of(count, len(keys))
    estimate = parse(spec).approximate(np.tile(query, (count, 1)), keys, mask=mask, rng=0)
    total = exact.log_row_sums(query[None], keys)
    sums = estimate.block(slice(None), shift=np.repeat(total, count)).sum(axis=1)
    truth = exact.attention(query[None], keys, values)[0]
    off = np.linalg.norm(estimate.attend(values) - truth, axis=1) / np.linalg.norm(truth)
    return np.abs(sums - 1), off, np.diff(required(estimate.sparse).indptr)


def _rows_of(count: int, l: int) -> Mask:
    """Return the mask of so many rows that all see l keys."""
    return Mask(np.zeros(count, int), np.full(count, l), l, True)


def _late_rows(place: int = 500) -> list[tuple[Array, Array, Array]]:
    """Return a query of each head of SmolLM2, and the keys and values that it sees."""
    stop = place + 1
    rows = []
    for head in inputs.sample("smollm2").heads():
        rows.append((head.Q[place], head.K[:stop], required(head.V)[:stop]))
    return rows


# vAttention


@claim("VA-1", V_ATTENTION + ", abstract: (ε, δ) guarantees")
def coverage() -> Iterator[Check]:
    """If the deviation of a pilot sets the number of draws, a sum is within ε with probability 1 −
    δ for Gaussian weights. For lognormal weights of deviation 2, the pilot sees too little of the
    tail."""
    rng = np.random.default_rng(0)
    gaussian = np.log(np.clip(1 + 0.3 * rng.standard_normal(1024), 0.01, None))
    lognormal = 2 * rng.standard_normal(1024)
    one, values = np.ones(1), np.ones((1024, 1))
    for logits, error, failure, kind, wrap in (
        (gaussian, 0.05, 0.05, "Gaussian", None), (lognormal, 0.2, 0.2, "lognormal", without),
    ):  # fmt: skip
        spec = f"sampled(k=32, epsilon={error}, delta={failure})"
        off, _, _ = _trials(spec, one, logits[:, None], values)
        count = int((off <= error).sum())
        check = covered(f"coverage, {kind} weights", 1 - failure, count, TRIALS)
        yield wrap(check) if wrap else check


@claim("VA-2", V_ATTENTION + ", abstract: top-k and sampling are complementary")
def coverage_of_real_rows() -> Iterator[Check]:
    """On rows of real heads, sums are within ε with probability 1 − δ if the heavy keys are kept
    exactly. If only sinks and a window are kept, they need not be."""
    least = {"top_k(k=32)": TRIALS, "sink_window(k=32, sinks=4)": TRIALS}
    for query, keys, values in _late_rows():
        for support in least:
            spec = f"sampled(sparse={support}, k=32, epsilon=0.1, delta=0.1)"
            off, _, _ = _trials(spec, query, keys, values)
            least[support] = min(least[support], int((off <= 0.1).sum()))
    heavy, first_and_last = least.values()
    yield covered("least coverage of 4 heads, the 32 heaviest held", 0.9, heavy, TRIALS)
    yield without(covered("least coverage, sinks and window held", 0.9, first_and_last, TRIALS))


@claim("VA-3", V_ATTENTION + "; " + HYPER + "; " + KDE + "; their weights 1/π")
def unbiased_designs() -> Iterator[Check]:
    """Every sampling design is unbiased for exp(q·k): without replacement, systematic, independent,
    or with replacement and repeats added. This holds with or without sizes, and with or without a
    support."""
    x = gaussian(12)
    mask = Mask(np.zeros(800, int), np.full(800, 12), 12, True)
    queries, truth = np.tile(x.Q[:1], (800, 1)), exact.kernel(x.Q[:1], x.K)
    sizes = Sizes(np.linspace(1, 3, 12))
    methods = [
        Sampled(k=4),
        Sampled(sparse=SinkWindow(k=3), k=3),
        *(
            Sampled(design=name, k=4, sizes=sizes)
            for name in ("systematic", "poisson", "multinomial")
        ),
    ]
    scores = [
        _largest_z(method.approximate(queries, x.K, mask=mask, rng=0).to_dense() / truth)
        for method in methods
    ]
    columns = Sampled(design="multinomial", k=4, shared=True, sizes=sizes)
    draws = [columns.approximate(x.Q[:1], x.K, rng=seed).to_dense()[0] for seed in range(200)]
    yield equal("designs that draw for each row", 5, len(scores))
    yield at_most("largest |z| of theirs", 5.0, max(scores))
    yield at_most("largest |z|, columns", 5.0, _largest_z(np.array(draws) / truth))


def _largest_z(ratios: Array) -> float:
    """Return max |mean − 1| over its standard error, of what varies."""
    error = ratios.std(axis=0, ddof=1) / math.sqrt(len(ratios))
    return float((np.abs(ratios.mean(axis=0) - 1) / np.where(error > 0, error, 1)).max())


def _inside_normal_intervals(query: Array, keys: Array) -> int:
    """Return how many of so many sums are in their normal intervals of level 90 %.

    The 32 largest weights are held, and 32 of the N others are drawn without replacement.
    """
    drawn, rest = 32, len(keys) - 32
    method = Sampled(sparse=TopK(k=32), k=drawn)
    estimate = method.approximate(
        np.tile(query, (TRIALS, 1)), keys, mask=_rows_of(TRIALS, len(keys)), rng=0
    )
    weights = np.exp(keys @ query - exact.log_row_sums(query[None], keys))
    read = required(estimate.sparse).indices.reshape(TRIALS, 64)
    held = np.argsort(-weights, kind="stable")[:32]
    values = weights[read[~np.isin(read, held)].reshape(TRIALS, drawn)]
    off = rest * values.mean(axis=1) - weights.sum() + weights[held].sum()
    deviation = rest * values.std(axis=1, ddof=1) * math.sqrt((1 - drawn / rest) / drawn)
    return int((np.abs(off) <= norm.ppf(0.95) * deviation).sum())


@claim(
    "VA-5", V_ATTENTION + ", abstract: verified; its sizes are those of the central limit theorem"
)
def intervals() -> Iterator[Check]:
    """At a fixed number of draws, normal intervals of sums reach their level for Gaussian weights,
    and miss it on rows of real heads, even if the heavy keys are kept."""
    logits = np.log(np.clip(1 + 0.3 * np.random.default_rng(0).standard_normal(501), 0.01, None))
    even = _inside_normal_intervals(np.ones(1), logits[:, None])
    least = min(_inside_normal_intervals(query, keys) for query, keys, _ in _late_rows())
    yield covered("coverage, Gaussian weights", 0.9, even, TRIALS)
    yield without(covered("least coverage of 4 heads", 0.9, least, TRIALS))


def _assigned(keys: int, draws: int, rng: np.random.Generator) -> Array:
    """Return weights of keys drawn with replacement, where repeated draws are assigned."""
    weights = np.zeros(keys)
    weights[rng.integers(keys, size=draws)] = keys / draws
    return weights


@claim("VA-Ea", HUB + ", mask_attention_utils.py:156 and mask.py:606")
def repeats() -> Iterator[Check]:
    """Add up the weights of a key that is drawn repeatedly. If a repeated draw is only assigned,
    the mean of a sum is (1 − (1 − 1/N)^b)·N/b times the sum, for b draws from N keys."""
    keys, trials = 500, 400
    for draws in (10, 50, 250):
        rng = np.random.default_rng(draws)
        means = [_assigned(keys, draws, rng).mean() for _ in range(trials)]
        error = float(np.std(means, ddof=1)) / trials**0.5
        mean = float(np.mean(means))
        predicted = -math.expm1(draws * math.log1p(-1 / keys)) * keys / draws
        yield sampled(f"mean weight, {draws} draws of 500", predicted, mean, error)
    yield printed(sampled("mean weight, 250 draws, as printed", 1.0, mean, error))


def _gaussian_sums(spec: str) -> Array:
    """Return relative errors of 2000 sums of 1024 numbers of mean 1 and deviation .3."""
    rng = np.random.default_rng(0)
    logits = np.log(np.clip(1 + 0.3 * rng.standard_normal(1024), 0.01, None))
    return _trials(spec, np.ones(1), logits[:, None], np.ones((1024, 1)), 2000)[0]


@claim("VA-Eb", HUB + ", adaptive_sampling.py:181")
def one_side() -> Iterator[Check]:
    """Use the quantile of 1 − δ/2, because |error| ≤ ε has two sides. The code uses the quantile of
    1 − δ, so that a sum fails with probability 2δ."""
    counts = {}
    for failure in (0.05, 0.1):
        spec = f"sampled(k=64, epsilon=0.05, delta={failure})"
        off = _gaussian_sums(spec)
        counts[failure] = int((off <= 0.05).sum())
    yield covered("coverage, two sides", 0.95, counts[0.05], 2000)
    yield printed(covered("coverage, one side", 0.95, counts[0.1], 2000))
    yield covered("coverage, one side, against 1 − 2δ", 0.9, counts[0.1], 2000)


@claim("VA-Ec", HUB + ", adaptive_sampling.py:282")
def sum_or_output() -> Iterator[Check]:
    """Do not choose the number of draws by the sum alone. A sum within ε does not put the output
    within ε, because the values differ."""
    least = [TRIALS, TRIALS]
    for row in _late_rows():
        sums, outputs, _ = _trials(
            "sampled(sparse=top_k(k=32), k=32, epsilon=0.1, delta=0.1)", *row
        )
        found = [int((off <= 0.1).sum()) for off in (sums, outputs)]
        least = [min(pair) for pair in zip(least, found)]
    yield covered("least coverage of sums, 4 heads", 0.9, least[0], TRIALS)
    yield printed(covered("least coverage of outputs, 4 heads", 0.9, least[1], TRIALS))


# MagicPIG


def _angles(*degrees: float) -> tuple[Array, Array]:
    """Return a query and keys at these angles to it."""
    theta = np.radians(degrees)
    return np.array([[1.0, 0.0]]), np.column_stack([np.cos(theta), np.sin(theta)])


def _inclusion(collisions: int, q: Array, k: Array, transform: str = "none") -> Array:
    """Return π of keys by 10 hashes and 150 tables, from the variance (1 − π)/π of a weight."""
    method = Sampled(
        design="lsh", hashes=10, tables=150, collisions=collisions, transform=transform
    )
    known = required(method.moments(q, k))
    return np.asarray(1 / (1 + np.exp(known.log_relative_variance)))


@claim(
    "MP-1",
    MAGIC_PIG_CODE + ", lsh.cc:279 and sparse_attention.cc:181; " + HUB + ", magic_pig.py:401",
)
def unbiased_collisions() -> Iterator[Check]:
    """Keys that collide in at least two of L tables give an unbiased estimate with weights 1/P[≥
    2]. Keys that collide in at least one table do so with weights 1/P[≥ 1]."""
    q, k = _angles(30, 60, 75, 90, 105)
    for least in (2, 1):
        method = Sampled(design="lsh", hashes=3, tables=8, collisions=least)
        sample = moments.monte_carlo(method, q, k, draws=200, rng=0)
        yield at_most(f"largest |z|, {least} collisions", 5.0, float(np.abs(sample.z).max()))


@claim("MP-3", MAGIC_PIG_CODE + ", models/attnserver.py:142")
def centring() -> Iterator[Check]:
    """Subtracting the mean key does not change attention. On four heads of SmolLM2 it makes the
    shares of keys read similar, 2 to 6 %; without it they range from below .1 % to above 9 %."""
    worst = 0.0
    shares: dict[str, list[float]] = {"none": [], "center": []}
    for query, keys, _ in _late_rows(255):
        q, centred = query[None], keys - keys.mean(axis=0)
        worst = max(worst, difference(exact.softmax(q, centred), exact.softmax(q, keys)))
        for transform, found in shares.items():
            found.append(float(_inclusion(2, q, keys, transform).mean()))
    yield at_most("largest difference of softmax rows", 1e-10, worst)
    yield above("least share, centred", 0.02, min(shares["center"]))
    yield at_most("largest share, centred", 0.06, max(shares["center"]))
    yield above("largest share, not centred", 0.09, max(shares["none"]))
    yield without(above("least share, not centred", 0.001, min(shares["none"])))


@claim(
    "MP-4",
    MAGIC_PIG + ", abstract: TopK suffers because attention is not always as sparse as expected",
)
def drawn_or_largest() -> Iterator[Check]:
    """Where attention is broad, sampled keys give a better output than the largest keys. With 64
    keys, half of them sampled, the error is half of top-k's on the broadest heads of SmolLM2 and
    MiniLM. On the five other heads top-k is better."""
    ratios = {}
    for head in [*causal_heads(512), *(head.first(512) for head in inputs.sample().heads())]:
        largest = head.compare(head.approximate(parse("top_k(k=64)")))
        squares = [
            head.compare(head.approximate(parse("sampled(sparse=top_k(k=32), k=32)"), rng=seed))[
                "output_relative_error"
            ]
            ** 2
            for seed in range(3)
        ]
        ratios[head.name] = math.sqrt(np.mean(squares)) / largest["output_relative_error"]
    broad = [ratios.pop(name) for name in ("SmolLM2 broad", "MiniLM easy")]
    yield at_most("error over that of top-k, larger of two broad heads", 0.5, max(broad))
    yield without(at_most("error over that of top-k, least of 5 others", 1.0, min(ratios.values())))


@claim("MP-Ea", MAGIC_PIG_CODE + ", sparse_attention.cc:182")
def floored_weights() -> Iterator[Check]:
    """Weight a drawn key by 1/π. With the code's 1/(π + 10⁻⁴) the mean of an entry is π/(π + 10⁻⁴)
    of it: only 3 % is left at an angle of 120° with 10 hashes and 150 tables."""
    near_key, far_key = _inclusion(2, *_angles(60, 120))[0]
    yield near("mean as coded, 60°", 1.0, near_key / (near_key + 1e-4), 1e-3)
    yield printed(near("mean as coded, 120°", 1.0, far_key / (far_key + 1e-4), 0.5))


# HyperAttention


def _mean_of_sums(
    draw: Callable[[int], Array], truth: Array, count: int = 200
) -> tuple[float, float]:
    """Return the mean of row sums over the true ones, and its standard error, over seeds."""
    found = [float((draw(seed) / truth).mean()) for seed in range(count)]
    return float(np.mean(found)), float(np.std(found, ddof=1)) / math.sqrt(count)


def _sums(spec: str, x: inputs.Head, seed: int) -> Array:
    return np.asarray(parse(spec).approximate(x.Q, x.K, rng=seed).to_dense().sum(axis=1))


@claim("HA-2", HYPER + ", abstract: the max column norm in the normalised attention matrix")
def largest_column() -> Iterator[Check]:
    """Sampled columns suffice if no column of the attention matrix is large. At n = 512, n·max_j
    |column j|² is below 32 for Gaussian inputs, but above n on heads of SmolLM2; it can be n²."""
    # n·max_j Σ_i P_ij² is 1 for uniform attention, n² where one key has all of it
    n = 512

    def alpha(x: inputs.Head) -> float:
        return n * float(np.square(exact.softmax(x.Q, x.K, x.mask)).sum(axis=0).max())

    yield at_most("n·max |column|², Gaussian", 32.0, alpha(inputs.gaussian(n, 64, rng=0)))
    real = [alpha(head) for head in causal_heads(n)]
    yield without(at_most("n·max |column|², least of 4 heads", n, min(real)))


@claim("HA-Ea", HYPER_CODE + ", hyper_attn.py:171; models/attention/utils.py:58")
def counted_twice() -> Iterator[Check]:
    """Draw the weighted columns outside the blocks only. On CUDA, and in 32 or 64 bits, the code
    draws them everywhere and so counts the blocks twice."""
    x = gaussian(64, 8)
    truth = exact.kernel(x.Q, x.K).sum(axis=1)
    blocks = "sorted_lsh(size=16, hashes=4)"
    columns = "sampled(design='multinomial', shared=True, k=16)"
    mean, error = _mean_of_sums(
        lambda seed: _sums(blocks, x, seed) + _sums(columns, x, seed + 1000), truth
    )
    share = _mean_of_sums(lambda seed: _sums(blocks, x, seed), truth)[0]
    yield sampled(
        "mean row sum over exact, as coded, against 1 + share of blocks", 1 + share, mean, error
    )
    yield printed(sampled("mean row sum over exact, as coded", 1.0, mean, error))


def _gray_entries(words: Array) -> Array:
    """Return w ⊕ ⌊w/2⌋, the entry of the Gray code at w, bit 0 the least: the code's sort key."""
    codes = words @ (1 << np.arange(words.shape[1]))
    return np.asarray(codes ^ (codes >> 1))


@claim("HA-Ec", HYPER_CODE + ", angular_lsh.py:27; " + KDE_CODE + ", KDEformer.py:76")
def neighbours() -> Iterator[Check]:
    """Sort hashes by their positions in the Gray code, where neighbours differ in one sign. The
    code sorts by the entries of the Gray code, and neighbours differ in up to 4 of 7 signs."""
    words = (np.arange(2**7)[:, None] >> np.arange(7)) & 1
    by_places, by_entries = (
        int(np.abs(np.diff(words[np.argsort(of(words))], axis=0)).sum(axis=1).max())
        for of in (sorted_lsh.gray_places, _gray_entries)
    )
    yield equal("most signs that differ, by places", 1, by_places)
    yield equal("most signs that differ, by entries", 4, by_entries)
    yield printed(equal("most signs that differ, by entries, as coded", 1, by_entries))


# KDEformer


def _head_with_ones(head: inputs.Head) -> tuple[Array, Array]:
    """Return softmax rows, and the values beside a column of ones."""
    values = np.column_stack([required(head.V), np.ones(head.l)])
    return exact.softmax(head.Q, head.K, head.mask), values


def _expected_square(weights: Array, values: Array, shares: Array) -> float:
    """Return E|AV − estimate|²_F of one column drawn with these probabilities."""
    columns, rows = np.square(weights).sum(axis=0), np.square(values).sum(axis=1)
    return float((columns * rows / shares).sum() - np.square(weights @ values).sum())


@claim("KDE-1", KDE + ", abstract: subsampling-based fast matrix products")
def matrix_product() -> Iterator[Check]:
    """For m columns drawn with probabilities p, E|error of A V|²_F = (Σ |a_j|²|v_j|²/p_j −
    |AV|²_F)/m. This is least for p ∝ |a_j||v_j|."""
    x = gaussian(32)
    kernel = exact.kernel(x.Q, x.K)
    assert x.V is not None
    columns, rows = np.linalg.norm(kernel, axis=0), np.linalg.norm(x.V, axis=1)
    best = columns * rows / (columns * rows).sum()
    method = Sampled(design="multinomial", k=8, shared=True, sizes=Sizes(best))
    squares = [
        float(np.square(method.approximate(x.Q, x.K, rng=seed) @ x.V - kernel @ x.V).sum())
        for seed in range(400)
    ]
    expected = _expected_square(kernel, x.V, best) / 8
    error = float(np.std(squares, ddof=1)) / math.sqrt(len(squares))
    yield sampled(
        "mean squared error over expected",
        1.0,
        float(np.mean(squares)) / expected,
        error / expected,
    )
    uniform = _expected_square(kernel, x.V, np.full(32, 1 / 32)) / 8
    yield above("uniform over the best p", 1.0, uniform / expected)


def _shares(values: Array) -> Array:
    """Return the code's probabilities, ∝ |v_j|/|V|² + 1/l, of values beside a column of ones."""
    sizes = np.linalg.norm(values, axis=1) / np.linalg.norm(values, 2) ** 2 + 1 / len(values)
    return np.asarray(sizes / sizes.sum())


@claim("KDE-Ea", KDE_CODE + ", KDEformer.py:94")
def without_queries_or_keys() -> Iterator[Check]:
    """Draw columns by estimates of their norms in attention. The code uses |v_j|/|V|² + 1/l,
    without queries or keys: on three heads of SmolLM2 this is worse than uniform, with up to 8
    times the least error."""
    coded, uniform = [], []
    for head in causal_heads(512):
        weights, values = _head_with_ones(head)
        norms = np.linalg.norm(weights, axis=0) * np.linalg.norm(values, axis=1)
        least = _expected_square(weights, values, norms / norms.sum())
        shares = _shares(values)
        coded.append(_expected_square(weights, values, shares) / least)
        uniform.append(_expected_square(weights, values, np.full(head.l, 1 / head.l)) / least)
    yield at_most("least over uniform, largest of 4 heads", 1.0, 1 / min(uniform))
    worse = sum(a > b for a, b in zip(coded, uniform))
    yield equal("heads of 4 where the code is worse than uniform", 3, worse)
    yield printed(at_most("the code over least, largest of 4 heads", 2.0, max(coded)))
