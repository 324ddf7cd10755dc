"""Growth of an error of the residual stream from layer to layer, and a bound of it by norms.

`trace` replaces heads of a language model and measures the error of the state layer by layer: how
each layer changes the error that enters it, and how much its own replaced heads add. `bound` is an
upper bound of the error after a layer of Llama's kind, for any incoming error of a given size. It
uses norms of the weights and the model's own activations. `jacobian_norm` estimates the largest
growth of a small error.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, svds

from analysis.compute.seeds import seed_sequence
from analysis.inputs import Head, Heads
from analysis.models.language_model import LanguageModel
from analysis.models.replacement import Passage, Replacements
from approx import checks
from approx.checks import Array
from approx.estimate import exact
from approx.method import Rng

SILU = 1.1  # its slope is at most 1.0998…
ALIKE = 1e-3  # allowed relative difference between a layer of the model and its recomputation
VECTORS = 8  # Lanczos vectors in memory
ACCURACY = 0.04  # of the square of a norm, so 2 percent of the norm
COLUMNS = ("error", "relative", "carried", "made", "left", "left_relative", "noise", "bound")


class Block(NamedTuple):
    """The weights of a layer of Llama's kind: y = x + A(N(x)), followed by y + M(N(y)).

    N(x) is x/√(mean x² + eps), A is softmax attention with rotated or plain queries and keys, and
    M(x) is down(silu(gate x)·up x). The gains of the norms are contained in the columns of the
    weights that follow.

    Attributes
    ----------
    q : (heads, d, width)
    k, v : (groups, d, width), (groups, c, width)
    o : (heads, width, c)
    gate, up : (inner, width)
    down : (width, inner)
    eps : float
    """

    q: Array
    k: Array
    v: Array
    o: Array
    gate: Array
    up: Array
    down: Array
    eps: float

    @classmethod
    def from_layer(cls, model: LanguageModel, layer: int) -> Self:
        """Return the weights of a layer of a torch model, in float64.

        Raises
        ------
        ValueError
            The layer lacks one of these weights.
        """
        checks.integer("layer", layer, least=0, most=model.layers - 1)
        block = model._blocks[layer]
        try:
            one, two = block.input_layernorm, block.post_attention_layernorm
            inside, outside = block.self_attn, block.mlp
            modules = (
                *(getattr(inside, f"{name}_proj") for name in "qkvo"),
                *(getattr(outside, f"{name}_proj") for name in ("gate", "up", "down")),
            )
            before, after = _weights(one), _weights(two)
            q, k, v, o, gate, up, down = map(_weights, modules)
            eps = float(one.variance_epsilon)
        except AttributeError as error:
            raise ValueError(
                f"layer {layer} of {model.name} is not of Llama's kind, for which alone there is "
                f"a bound: {error}"
            ) from None
        heads, width = model.heads, len(before)
        q = (q * before).reshape(heads, -1, width)
        k, v = ((x * before).reshape(-1, q.shape[1], width) for x in (k, v))
        o = o.reshape(width, heads, -1).swapaxes(0, 1)
        return cls(q, k, v, o, gate * after, up * after, down, eps)


def _weights(module: Any) -> Array:
    return np.asarray(module.weight.detach().double().numpy())


class Bounded(NamedTuple):
    """The result of `bound`.

    Attributes
    ----------
    sizes : (n,)
        An upper bound of ‖F(x + e)_i − F(x)_i‖ for each position.
    output : (n, width)
        F(x), the layer's own output for x.
    """

    sizes: Array
    output: Array


def bound(block: Block, inputs: Heads, x: Array, sizes: Array) -> Bounded:
    """Return an upper bound of the error after a layer F, for incoming errors of given sizes.

    Parameters
    ----------
    block : Block
    inputs : Heads
        q, k, v of all heads of this layer at x, with the scaling and the mask.
    x : (n, width)
        The state that enters the layer in the unmodified model.
    sizes : (n,)
        ‖e_i‖₂ of each position, ≥ 0. Nothing else about the error e is used.

    Returns
    -------
    Bounded

    Raises
    ------
    ValueError
        Shapes do not fit, or there is no v.

    Notes
    -----
    This is a bound in exact arithmetic for every e with these norms, however large, under any mask
    of intervals. It is in the Euclidean norm of each position; √Σ of squares gives the Frobenius
    norm.

    1. N maps x_i to √width times the direction of (x_i, √(width·eps)). This direction turns by at
       most asin t with t = ‖e_i‖/(√width ρ_i), ρ_i² = mean x_i² + eps. So N changes by at most
       r_i = √(2 width (1 − √(1 − t²))), and 2√width if t > 1.
    2. Up to a constant of the row, the logits of a head change by
       |δ_ij| ≤ m_ij = scaling (α_i ‖k_j − k̄‖ + ‖q_i‖ κ_j + α_i κ_j), with α = ‖W_q‖₂ r,
       κ = ‖W_k‖₂ r and any k̄, here the mean key. W_o v_j changes by at most ν_j = ‖W_o W_v‖₂ r_j.
       Rotations change no norm.
    3. The odds of any set of keys in a row of attention p change by a factor of at most
       e^(2 max_j m_ij), so that its total variation is at most θ_i = tanh(½ max_j m_ij). With
       D_ij = ‖W_o (v_j − Σ p v)‖, W_o times the output of the head changes by at most
       Σ_j p_ij ν_j + θ_i (max_j ν_j + 2 max_j D_ij), with maxima over visible keys.
    4. The state after the attention changes by s_i = ‖e_i‖ + Σ_heads of 3, its N by r′_i as in 1,
       and the MLP by
       ‖down‖₂ r′ (1.1 ‖gate‖₂ (max_c |up_c| + max_c ‖row_c of up‖ r′) + max_c |silu_c| ‖up‖₂),
       because silu has a slope of at most 1.1.

    Cost: O(n·l·(d + c)) per head, streamed by stripes of rows.
    """
    x, sizes = checks.array("x", x, ndim=2), checks.array("sizes", sizes, ndim=1)
    n, width = x.shape
    if len(sizes) != n or inputs.n != n or block.q.shape[::2] != (len(inputs.q), width):
        raise ValueError("x, sizes, inputs and block must be of the same positions and heads")
    if not (sizes >= 0).all():
        raise ValueError("sizes must be >= 0")
    if inputs.v is None:
        raise ValueError("what a layer makes of values needs V: give inputs that have it")
    turned = _turned(x, sizes, block.eps)
    state, moved = x.copy(), sizes.copy()
    group = len(block.q) // len(block.k)
    for head, one in enumerate(inputs.heads()):
        weights = block._replace(q=block.q[head], k=block.k[head // group], o=block.o[head])
        output, change = _attention(weights, block.v[head // group], one, turned)
        state += output
        moved += change
    turned = _turned(state, moved, block.eps)
    y = state / _rho(state, block.eps)[:, None]
    gate, up = y @ block.gate.T, y @ block.up.T
    with np.errstate(over="ignore"):
        silu = gate / (1 + np.exp(-gate))
    row = math.sqrt(float(np.einsum("ij,ij->i", block.up, block.up).max()))
    hidden = SILU * _norm(block.gate) * (np.abs(up).max(axis=1) + row * turned)
    hidden += _norm(block.up) * np.abs(silu).max(axis=1)
    return Bounded(moved + _norm(block.down) * hidden * turned, state + (silu * up) @ block.down.T)


def _rho(x: Array, eps: float) -> Array:
    return np.asarray(np.sqrt((x**2).mean(axis=1) + eps))


def _norm(x: Array) -> float:
    """Return ‖x‖₂ from the smaller Gram matrix, in a tenth of the time of all singular values."""
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    last = len(gram) - 1
    top = scipy.linalg.eigh(gram, eigvals_only=True, subset_by_index=(last, last))
    return math.sqrt(max(float(top[0]), 0.0))


def _turned(x: Array, sizes: Array, eps: float) -> Array:
    """Return r of `bound`, the largest change of N."""
    t = np.minimum(sizes / (math.sqrt(x.shape[1]) * _rho(x, eps)), 1.0)
    near = t / np.sqrt((1 + np.sqrt(1 - t**2)) / 2)  # √(2 − 2√(1 − t²)) without cancellation
    return math.sqrt(x.shape[1]) * np.where(t < 1, near, 2.0)


def _attention(block: Block, v: Array, x: Head, turned: Array) -> tuple[Array, Array]:
    """Return W_o times the output of a head, and its largest change, step 3 of `bound`."""
    x.require_no_sinks("the bound of a layer")
    Q, K, V = (np.asarray(y, np.float64) for y in (x.Q, x.K, x.V))
    root = math.sqrt(1 / math.sqrt(x.d) if x.scaling is None else x.scaling)
    alpha, kappa = root * _norm(block.q) * turned, root * _norm(block.k) * turned
    nu = _norm(block.o @ v) * turned
    queries = np.linalg.norm(Q, axis=1)
    keys = np.linalg.norm(K - K.mean(axis=0), axis=1)
    values = V @ scipy.linalg.qr(block.o, mode="r")[0][: V.shape[1]].T  # ‖W_o v‖ in c numbers
    output, change = np.empty((x.n, V.shape[1])), np.empty(x.n)
    for rows in exact.stripes(x.n, x.l):
        cols = x.mask.span(rows)
        p = exact.seen_logits(Q, K, x.mask, rows)
        p = np.exp(p - p.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        output[rows] = p @ V[cols]
        m = alpha[rows, None] * keys[cols] + (queries + alpha)[rows, None] * kappa[cols]
        away = _distances(p @ values[cols], values[cols])
        worst = np.broadcast_to(nu[cols], p.shape).copy()
        for seen in (m, away, worst):
            x.mask.hide(seen, rows, cols)
        theta = np.tanh(m.max(axis=1) / 2)
        change[rows] = p @ nu[cols] + theta * (worst.max(axis=1) + 2 * away.max(axis=1))
    return output @ block.o.T, change


def _distances(a: Array, b: Array) -> Array:
    """Return ‖a_i − b_j‖."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def largest(
    forwards: Callable[[Array], Array], backwards: Callable[[Array], Array], size: int
) -> float:
    """Return an estimate of ‖J‖₂ from below, by Lanczos with products of J and Jᵀ.

    Parameters
    ----------
    forwards, backwards : callable
        v ↦ J v and u ↦ Jᵀ u, of flat arrays of the same size.
    size : int

    Examples
    --------
    >>> round(largest(lambda v: 3 * v, lambda u: 3 * u, 20), 6)
    3.0
    """
    operator = LinearOperator((size, size), matvec=forwards, rmatvec=backwards, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    accuracy = math.sqrt(ACCURACY)  # svds squares it
    found = svds(operator, 1, ncv=VECTORS, tol=accuracy, v0=start, return_singular_vectors=False)
    return float(found[0])


def jacobian_norm(passage: Passage, layer: int) -> float:
    """Return ‖J‖₂ of a layer's Jacobian at the model's own state, estimated by `largest`.

    To first order, no error grows by more in the Frobenius norm over all positions. This is no
    bound: it is an estimate, and an error of finite size can grow by more.
    """
    import torch

    own = passage.states[layer].clone()  # outside of inference mode

    def step(state: Any) -> Any:
        return passage.model.step(passage.ids, layer, state)

    def flat(x: Any) -> Array:
        return np.asarray(x.detach().double().numpy().ravel())

    def shaped(x: Array) -> Any:
        return torch.as_tensor(x, dtype=own.dtype).reshape(own.shape)

    # Only the plain (math) attention has forward derivatives.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        _, pulled = torch.func.vjp(step, own)
        return largest(
            lambda v: flat(torch.func.jvp(step, (own,), (shaped(v),))[1]),
            lambda u: flat(pulled(shaped(u))[0]),
            own.numel(),
        )


def trace(passage: Passage, heads: Replacements, *, bounded: bool = True) -> pd.DataFrame:
    """Return the error of the residual stream layer by layer, from the first replaced head on.

    Parameters
    ----------
    passage : Passage
    heads : mapping of (layer, head) to Method
    bounded : bool
        Whether to compute `bound`; the layers must then be of Llama's kind.

    Returns
    -------
    DataFrame
        The table of `follow`, where the layers F̃ have these heads replaced.

    Raises
    ------
    ValueError
        There is no head, or a layer is not of Llama's kind.
    """
    if not heads:
        raise ValueError("heads must name a head: without one there is no error")
    passage.check(heads)

    def step(layer: int, x: Array, changed: bool) -> Array:
        given = passage.states[layer].new_tensor(x)[None]
        return _array(passage.step(layer, given, heads if changed else None))

    return follow(
        [_array(state) for state in passage.states],
        step,
        {layer for layer, _ in heads},
        skip=passage.skip,
        rng=np.random.default_rng(seed_sequence(passage.seed, "propagation")),
        above=(lambda layer, sizes: model_bound(passage, layer, sizes)) if bounded else None,
    )


def follow(
    own: Sequence[Array],
    step: Callable[[int, Array, bool], Array],
    replaced: Collection[int],
    *,
    skip: int = 0,
    rng: Rng = None,
    above: Callable[[int, Array], Array] | None = None,
) -> pd.DataFrame:
    """Return the growth of an error through a chain of layers, some of which add to it.

    Parameters
    ----------
    own : sequence of (n, width)
        The states x that enter each layer of the unmodified model, and the state after the last.
    step : callable
        ``step(layer, x, changed)`` returns the state after a layer: F(x), or F̃(x) if changed.
    replaced : collection of int
        The changed layers; the chain begins at the first of them with its own state.
    skip : int
        The number of first positions that the relative errors leave out.
    rng : int, Generator, ...
        For the noise.
    above : callable, optional
        ``above(layer, sizes)`` returns an upper bound of the error of each position after a layer,
        given the sizes of the error before it.

    Returns
    -------
    DataFrame
        One row per ``layer``. Norms are Frobenius norms over all positions, and x + e is the state
        that enters the layer in the changed chain:

        - ``error``: ‖e‖; ``relative``: ‖e‖/‖x‖ without the first ``skip`` positions
        - ``carried``: ‖F(x + e) − F(x)‖, the incoming error after the layer
        - ``made``: ‖F̃(x + e) − F(x + e)‖, the error that the layer adds
        - ``left``: ‖F̃(x + e) − F(x)‖, the error of the next layer; ``left_relative``
        - ``noise``: ‖F(x + z) − F(x)‖ for normal z with ‖z_i‖ = ‖e_i‖ at every position
        - ``bound``: an upper bound of ``carried`` and ``noise``
    """
    generator = np.random.default_rng(rng)
    first = min(replaced)
    x, rows = own[first], []
    for layer in range(first, len(own) - 1):
        before, behind = own[layer], own[layer + 1]
        e = x - before
        sizes = np.linalg.norm(e, axis=1)
        z = generator.standard_normal(e.shape)
        z *= (sizes / np.linalg.norm(z, axis=1))[:, None]
        carried = step(layer, x, False)
        x = step(layer, x, True) if layer in replaced else carried
        changes = {
            "error": e,
            "carried": carried - behind,
            "made": x - carried,
            "left": x - behind,
            "noise": step(layer, before + z, False) - behind,
            "bound": np.array([math.nan]) if above is None else above(layer, sizes),
        }
        row: dict[str, float] = {"layer": layer}
        row |= {name: float(np.linalg.norm(change)) for name, change in changes.items()}
        for name, change, whole in (("", e, before), ("left_", changes["left"], behind)):
            part = float(np.linalg.norm(change[skip:]))
            row[f"{name}relative"] = part / float(np.linalg.norm(whole[skip:]))
        rows.append(row)
    return pd.DataFrame(rows, columns=["layer", *COLUMNS])


def model_bound(passage: Passage, layer: int, sizes: Array) -> Array:
    """Return the sizes of `bound` at the model's own state.

    Raises
    ------
    ValueError
        The layer is not of Llama's kind, or has such weights but computes something else.
    """
    x, behind = (_array(passage.states[i]) for i in (layer, layer + 1))
    block, inputs = Block.from_layer(passage.model, layer), passage.inputs(layer)
    found = bound(block, inputs, x, sizes)
    if not _rotated(passage.model, layer, block, inputs, x) or (
        np.linalg.norm(found.output - behind) > ALIKE * np.linalg.norm(behind)
    ):
        raise ValueError(
            f"layer {layer} of {passage.model.name} has weights of Llama's kind and computes "
            "something else, of which there is no bound"
        )
    return found.sizes


def _rotated(model: LanguageModel, layer: int, block: Block, inputs: Heads, x: Array) -> bool:
    """Return whether queries and keys have the lengths of W_q N(x) and W_k N(x).

    Other lengths come from norms of queries and keys or from rotations that scale. The bound does
    not allow for them, and the layer's output, recomputed from the same q and k, does not show
    them.
    """
    y = x / _rho(x, block.eps)[:, None]
    inside = model._blocks[layer].self_attn
    for name, weights, own in (("q", block.q, inputs.q), ("k", block.k, inputs.k)):
        made = y @ weights.swapaxes(1, 2)
        if (bias := getattr(inside, f"{name}_proj").bias) is not None:
            made += np.asarray(bias.detach().double().numpy()).reshape(len(weights), 1, -1)
        lengths, other = (np.linalg.norm(z, axis=2) for z in (made, own))
        if lengths.shape != other.shape:
            return False
        if np.linalg.norm(lengths - other) > ALIKE * np.linalg.norm(other):
            return False
    return True


def _array(state: Any) -> Array:
    return np.asarray(state[0].double().numpy())


def growth(table: pd.DataFrame, after: str = "carried", before: str = "error") -> pd.DataFrame:
    """Return the factor by which each layer multiplies its incoming error, and the mean factor.

    Parameters
    ----------
    table : DataFrame
        Rows of `trace`, of one or more runs.
    after, before : str
        The columns to compare, such as "noise", or "left_relative" and "relative".

    Returns
    -------
    DataFrame
        One row per ``layer``, and a row with layer −1 for the mean over layers: ``growth``, the
        geometric mean of after/before over runs (for −1 over layers); ``stderr``, its standard
        error to first order, from the differences between runs (for −1 between layers); ``runs``,
        the number of runs (for −1 of layers). Rows with before = 0 are left out. If after = 0 in a
        run, the growth of its layer and of layer −1 is 0, with the standard error NaN.
    """
    some = table[table[before] > 0]
    with np.errstate(divide="ignore", invalid="ignore"):  # the logarithm of 0, and its deviation
        log = pd.Series(np.log(some[after] / some[before]))
        each = log.groupby(some.layer).agg(["mean", "sem", "size"])
        whole = pd.DataFrame(
            {"mean": each["mean"].mean(), "sem": each["mean"].sem(), "size": len(each)}, index=[-1]
        )
        both = pd.concat([each, whole])
        scale = np.exp(both["mean"])
        stderr = scale * both["sem"]
    return pd.DataFrame({
        "layer": both.index, "growth": scale, "stderr": stderr, "runs": both["size"],
    }).reset_index(drop=True)  # fmt: skip
