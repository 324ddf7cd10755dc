"""The keys with the largest compressed logits, exact: a top k that can be run."""

import dataclasses

import numpy as np

from approx import checks
from approx.checks import Array
from approx.compressed_logits.channels import Channels
from approx.compressed_logits.key_pca import Axes, KeyPCA
from approx.compressed_logits.logit_svd import LogitSVD
from approx.compressed_logits.method import CompressedLogits
from approx.decoding.cache import Cache
from approx.decoding.keys import ChosenKeys, WindowKeys
from approx.estimate.masks import Mask
from approx.method import Label, Size
from approx.method.fields import flag, instance, integer, one_of
from approx.method.filling import resized
from approx.method.prices import Numbers, Price, Shape
from approx.method.tags import BY_ROW, READS_VALUES, ROTATION, ROW_SHIFT, SCALE, SHIFT, collect
from approx.sparse.support import SupportMethod
from approx.sparse.top_k import TopK
from approx.supports.patterns import Pattern

SELECTORS: dict[str, type[CompressedLogits]] = {
    "pca": KeyPCA,
    "svd": LogitSVD,
    "channels": Channels,
}
SHARE = 4  # by default a query reads a quarter of the numbers of a key


@dataclasses.dataclass(frozen=True)
class ProjectedTopK(SupportMethod):
    """The k keys with the largest compressed logits, exact: Loki, and SparQ's selection.

    estimate_ij = exp(q_i·k_j) where x̃_ij is among the k largest that query i sees, else 0. The
    compressed logits x̃ read r numbers per key.

    Parameters
    ----------
    k : int, optional
        Entries per row; None is a template.
    r : int, optional
        Numbers of a key that are read to choose, 1 ≤ r ≤ d; by default a quarter of d, as in Loki.
    by : {"pca", "svd", "channels"}
        The compressed logits: `key_pca`, `logit_svd` or `channels`.
    centred : bool
        For "pca": whether the axes are those of the covariance, as in Loki, or those of KᵀK.
    axes : Axes, optional
        For "pca": axes that are given instead, as in `key_pca`.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Its total
    variation from exact attention is the attention off the support, which is never less than for
    `top_k`; at r = d both are the same. The support is not autoregressive with axes fitted to all
    keys; with given axes or channels it is.
    A single key apart from all others, such as an attention sink, hardly changes the covariance, so
    centred axes may lose it. On the bundled sink head of SmolLM2 at k = 32 and r = 8, the total
    variation is 0.70 with centred axes, 0.056 with those of KᵀK, 0.039 with channels and 0.011 for
    `top_k`.
    Cost: n·l·r operations to choose and 2·n·k·d for the entries. A new query reads r numbers of
    every key, so k = 32 of l keys take l·r + k·(d + c) numbers, and d·r for the axes.

    Loki's code takes the axes from calibration data, and k as a share of the keys that a query
    sees. SparQ's code can also keep the last keys and give the rest of the weight to the mean of
    all values; it chooses channels and keys for a group of heads at once.

    References
    ----------
    .. [1] P. Singhania, S. Singh, S. He, S. Feizi, A. Bhatele, "Loki: low-rank keys for efficient
       sparse attention", NeurIPS 2024, algorithm 1.
    .. [2] L. Ribar, I. Chelombiev, L. Hudlass-Galley, C. Blake, C. Luschi, D. Orr, "SparQ
       attention: bandwidth-efficient LLM inference", ICML 2024, algorithm 1.

    Examples
    --------
    The query is largest in its second channel, and there the second key is larger:

    >>> chosen = ProjectedTopK(k=1, r=1, by="channels")
    >>> chosen.approximate([[1.0, 2.0]], [[5.0, 0.0], [0.0, 1.0]]).to_dense().round(3)
    array([[0.   , 7.389]])
    """

    name = "projected_top_k"
    label = Label(
        "top-k of compressed logits",
        {
            "channel top-k (SparQ)": {"by": "channels"},
            "axis top-k (Loki)": {"by": "pca"},
        },
    )
    examples = (
        "projected_top_k()",
        "projected_top_k(r=1, by='channels')",
    )
    sized_by = Size("k", counts="entries")

    k: int | None = None
    r: int | None = integer()
    by: str = one_of("pca", tuple(SELECTORS))
    centred: bool = flag(True)
    axes: Axes | None = instance(None, Axes, "Axes")

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, given in (("centred=False", not self.centred), ("axes", self.axes is not None)):
            if given and self.by != "pca":
                raise ValueError(f"{field} belongs to by='pca', got {self.by!r}")

    @property
    def tags(self) -> frozenset[str]:
        tags = self.selector(1).tags
        chosen = collect(READS_VALUES, bool(tags & {SHIFT, ROW_SHIFT}) and SHIFT)
        return tags & (BY_ROW | {ROTATION, SCALE}) | chosen

    def selector(self, d: int) -> CompressedLogits:
        """Return the method whose logits choose the keys, at width d."""
        r = self.r or max(1, d // SHARE)
        if self.by == "pca":
            return KeyPCA(r, centred=self.centred, axes=self.axes)
        return resized(SELECTORS[self.by](), r)

    def _check(self, q: Array, k: Array) -> None:
        super()._check(q, k)
        if self.r is not None:
            checks.integer(f"{self}: r", self.r, least=1, most=q.shape[1])

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        left, right = self.selector(Q.shape[1]).factors(Q, K)
        return TopK(self.k).pattern(left, right, mask, rng)

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        if window:
            return WindowKeys(d, c, window, self, rng)
        selector = self.selector(d)
        if not isinstance(selector, Channels):
            return None
        r = int(selector.numbers(d).read)

        def scores(q: Array, K: Array) -> Array:
            channels = np.argsort(-np.abs(q), kind="stable")[:r]
            return np.asarray(K[:, channels] @ q[channels])

        assert self.k is not None
        return ChosenKeys(d, c, scores, self.k, looks=r)

    def selection(self, shape: Shape) -> Price:
        selector = self.selector(shape.d)
        cost, of_keys = selector.numbers(shape.d), isinstance(selector, Channels)
        work = float(shape.seen(shape.l) * cost.read + cost.fitted(shape))
        numbers = Numbers(float(shape.most * cost.read + cost.mapped))
        if of_keys:  # they are held anyway, and each query has its own channels
            numbers = numbers._replace(held=0.0, most=float(shape.most * shape.d))
        return Price.from_numbers(0.0, work, numbers)
