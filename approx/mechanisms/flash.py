"""The mixed chunk attention of FLASH as a method."""

import dataclasses

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate.low import Factors, Low
from approx.estimate.masked import Masked
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method, Size
from approx.method.prices import Numbers, Price, Shape, low_rank, price_at
from approx.method.tags import BY_ROW, POSITIONAL, ROTATION, SCALE
from approx.sketches.products import unit
from approx.sparse.chunk import Chunk
from approx.textbook import flash


@dataclasses.dataclass(frozen=True)
class Flash(Method):
    """FLASH mixed chunk attention: relu² within chunks plus global linear; biased, no softmax.

    estimate_ij = relu(q_i·k_j)²/size within a chunk + q_i·k_j/l everywhere.

    Under a mask that looks back, i is the position of the query. The second term is then only for
    keys of earlier chunks, divided by how many of them the query sees.

    Parameters
    ----------
    size : int, optional
        Keys per chunk, without a mask at most l; None is a template.

    Notes
    -----
    The rows are in attention space and used as they are: they do not sum to 1, and their entries
    may be negative. Nothing in the formula tends to softmax; the method is here to show its
    distance from softmax. It is deterministic.
    The paper learns scale and offset of two pairs of queries and keys. Here both pairs are the
    given Q and K, whose logits are already divided by √s. `approx.textbook.flash.mixed_chunk` is
    the causal form.
    Cost: 2·n·size·d + 2(n + l)·d·c operations, n·size + (n + l)·d numbers.

    References
    ----------
    .. [1] W. Hua, Z. Dai, H. Liu, Q. Le, "Transformer quality in linear time", ICML 2022,
       section 3.2.

    Examples
    --------
    >>> Flash(size=1).approximate([[1.0], [1.0]], [[1.0], [2.0]]).to_dense()
    array([[1.5, 1. ],
           [0.5, 5. ]])
    """

    name = "flash"
    label = "FLASH mixed chunks"
    tags = BY_ROW | {POSITIONAL, ROTATION, SCALE}
    space = "attention"
    sized_by = Size("size", counts="entries")

    size: int | None = None

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        size = self.size or 0
        indptr, indices = Chunk(size).pattern(q, k, mask, rng)
        zeros = np.zeros(len(indices), q.dtype)
        block = scipy.sparse.csr_array((zeros, indices, indptr), shape=mask.shape)
        # a causal row is that of a longer prompt, so it keeps its divisor
        divisor = size if mask.looks_back else min(size, len(k))
        local = flash.relu_squared(q, k, block, divisor)
        if not mask.looks_back:
            left = q / mask.counts.astype(q.dtype)[:, None]
            low: Low = Factors(left, k, np.zeros(len(q), q.dtype))
            return Parts(low, local, space="attention")
        begin = mask.positions // size * size
        count = np.maximum(begin - mask.first, 0)
        left = np.where(count[:, None] > 0, q / np.maximum(count, 1)[:, None], 0).astype(q.dtype)
        # a query in its first chunk sees no earlier key: its row is 0 for any key in the mask
        earlier = Mask(mask.first, np.maximum(begin, mask.first + 1), len(k))
        (phi, row_logs), (psi, key_logs) = unit(left), unit(k)
        low = Masked(Factors.by_key(phi, psi, row_logs, key_logs), earlier)
        return Parts(low, local, space="attention")

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of d columns and of the entries of the query's chunk.

        Rows are not normalised. Under a mask that looks back the state is that of earlier chunks.
        """
        local = price_at(Chunk(self.size), shape)
        if local is None:
            return None
        l, n, state = shape.l, shape.n, shape.d * shape.c
        stored = low_rank(shape.d, shape).stored + local.stored
        reads, work = (
            self._before(mask) * state + self._near(mask) * (shape.d + shape.c)
            for mask in (shape.decoding, shape.rows)
        )
        of_keys = state * l / n
        numbers = Numbers(float(reads.max()))
        total = float(work.mean() + of_keys)
        return Price.from_numbers(stored, total, numbers, entry_work=shape.d)

    def _near(self, mask: Mask) -> Array:
        """Return how many keys of its chunk each query sees."""
        held = Chunk(self.size).held(mask)
        assert held is not None
        return held

    def _before(self, mask: Mask) -> Array:
        """Return whether each query has a state: of all keys, or of earlier chunks."""
        if not mask.looks_back:
            return np.ones(mask.n, bool)
        return np.asarray(mask.positions // (self.size or 1) * (self.size or 1) > mask.first)
