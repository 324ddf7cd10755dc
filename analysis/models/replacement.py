"""A text read by a causal language model whose heads can be replaced by methods.

`Passage` stores the model's own states at each layer and its logits. It computes some or all heads
by methods of `approx` and measures the effect: KL(model ‖ replaced) of the next token at every
position, next-token agreement, perplexity, the error of the residual stream, and the errors of the
heads themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from analysis.inputs import Head, Heads
from analysis.models.attention_hook import Call
from analysis.models.head_caches import EXACT, after_prompt, prompt_length
from analysis.models.language_model import HOOKED, HeadIndex, LanguageModel
from analysis.runs import engines, tasks
from analysis.runs.seeds import seed_sequence
from analysis.runs.threads import in_threads
from approx import Mask, Method, checks
from approx.checks import Array
from approx.estimate import memory
from approx.method.prices import Shape
from approx.method.tags import DRAWS_BY_ROW, ROW_LOCAL

SKIP = 64  # first positions that do not count: there every method sees most of the text
ROWS = 32  # positions whose logits are computed at once
CACHED = 8  # rows of logits in float64 that stay in a core's cache
COMPUTING = "torch", "transformers"  # which compute a pass beside our code
BLOCK = 32  # positions per block of a standard error
FEWEST = 4  # blocks; with fewer, a standard error is too uncertain
ERRORS = ("attention_tv", "output_relative_error")

Replacements = Mapping[HeadIndex, Method]


class Likeliest(NamedTuple):
    """The likeliest next token of each position, and its probability; NaN if logits overflowed."""

    token: Array
    probability: Array


class Estimated(NamedTuple):
    """A mean over positions and its standard error."""

    mean: float
    stderr: float

    @classmethod
    def from_positions(cls, x: Array) -> Estimated:
        """Return the mean of x, with a standard error from the means of blocks of `BLOCK`.

        Neighbouring positions are correlated, so that a standard error from single positions would
        be too small. It is NaN for fewer than four blocks, and inf if the mean is not finite.

        Examples
        --------
        >>> Estimated.from_positions(np.repeat([0.0, 3.0, 0.0, 3.0], BLOCK))
        Estimated(mean=1.5, stderr=0.8660254037844386)
        """
        mean = float(x.mean())
        count = len(x) // BLOCK
        if count < FEWEST or not math.isfinite(mean):
            return cls(mean, math.nan if math.isfinite(mean) else math.inf)
        means = np.array([part.mean() for part in np.array_split(x, count)])
        return cls(mean, float(means.std(ddof=1) / math.sqrt(count)))


@dataclass(frozen=True, eq=False)
class Replaced:
    """The result of a pass with some heads computed by methods.

    Attributes
    ----------
    kl : (positions,)
        KL(model ‖ replaced) of the next token; inf if the replaced model overflows.
    own, likeliest : Likeliest
        The likeliest next token of the model itself and of the replaced model.
    surprisal : (positions − 1,)
        −log of the probability of the following token, for all positions except the last.
    residual : (layers + 1,)
        ‖state − own state‖_F/‖own state‖_F, where the model's own state enters each layer and, as
        the last entry, leaves the last layer; over the same positions.
    errors : dict of (layer, head) to dict
        ``attention_tv`` and ``output_relative_error`` of `analysis.errors.metrics.compare` for each
        replaced head at its inputs in this pass, over the same positions, if requested.
    state : tensor (1, n, width)
        The state after the last layer.
    """

    kl: Array
    own: Likeliest
    likeliest: Likeliest
    surprisal: Array
    residual: Array
    errors: Mapping[HeadIndex, Mapping[str, float]]
    state: Any

    @property
    def same_top(self) -> Array:
        """Whether both models have the same likeliest next token, (positions,) bool."""
        return np.asarray((self.own.token == self.likeliest.token) & np.isfinite(self.kl))


@dataclass(frozen=True, eq=False)
class Pass(tasks.Task):
    """A pass through the model with some heads replaced; subclasses say what is kept of it.

    The shared object is the passage, and ``text`` its `Passage.digest`. A pass uses as many threads
    on a cluster as here, so that its bits are the same.
    """

    libraries = COMPUTING
    single_thread = False

    text: str
    heads: Replacements

    @property
    def key(self) -> str:
        """The hash of everything that decides the outcome."""
        about = {**vars(self), "heads": sorted((*x, str(m)) for x, m in self.heads.items())}
        return tasks.key(type(self).__qualname__, *about.values())


def outcomes(
    passes: Sequence[Pass], passage: Passage, *, scheduler: Any = None, **how: Any
) -> list[Any]:
    """Return the outcomes of passes in their order, by `engines.results`; equal ones run once.

    Each worker of the Dask cluster ``scheduler`` gets the passage once.
    """
    unique = {one.key: one for one in passes}
    jobs = passage.jobs if scheduler else 1
    found = engines.results(
        unique.values(), [passage], jobs=jobs, scheduler=scheduler, copied=True, label="passes",
        **how,
    )  # fmt: skip
    every = dict(zip(unique, found))
    return [every[one.key] for one in passes]


def perplexity(surprisal: Array) -> float:
    """Return the exponential of the mean surprisal; inf if it is above 1.8e308.

    Examples
    --------
    >>> perplexity(np.log([2.0, 8.0]))
    4.0
    """
    mean = float(surprisal.mean())
    return math.exp(mean) if mean < 709 else math.inf


class Passage:
    """A text read by a causal language model whose heads can be replaced by methods.

    Parameters
    ----------
    model : LanguageModel
    ids : (n,)
        The tokens, n ≥ 2.
    skip : int, optional
        The first position that counts; earlier ones are only computed. Position i predicts token
        i + 1. By default 64, or the first position after the prompt.
    setting : {"rows", "prompt"}
        Whether methods compute all rows, or those after a prompt; see `head_caches`.
    prompt_tokens : int, optional
        The length of the prompt; by default half of the tokens.
    seed : int
        The root of the seeds of random methods; each (layer, head) has its own seed.
    jobs : int, optional
        Threads of torch, threads that share the heads of a layer, and processes of `curves`; by
        default one for each core.
    heads : mapping of (layer, head) to Method, optional
        Heads that methods compute in the reference model. "The model itself" below means the model
        with these heads in place; it determines states, inputs of heads and gradients. Gradients
        pass through such a head as if it were exact at its inputs.

    Attributes
    ----------
    states : list of tensors (1, n, width)
        The states that enter each layer of the model itself, and the state after the last layer.
    surprisal : (positions − 1,)
        The surprisal of the model itself, as in `Replaced`.
    shapes : list of Shape
        The shape of the heads of each layer, which determines prices: n, l, d, c and the mask.
    ids, positions : (n,), (n − skip,)
        The tokens, and the positions that count, for every number.
    prompt : int
        The number of first tokens whose rows are exact; 0 in the setting ``rows``.

    Raises
    ------
    ValueError
        There is no position after ``skip``.
    ResourceLimitError
        The logits would not fit.

    Notes
    -----
    Memory: the states, (layers + 1)·n·width numbers, and the logits, (n − skip)·vocabulary numbers
    of the model's dtype; after a prompt, also q, k and v of each layer, so that `replace` computes
    only later positions. n × l matrices exist for one layer at a time, ``jobs`` heads at once.

    All positions are computed at once here. So a method that is not autoregressive under the mask
    reads later tokens, and no model could run it token by token. Its KL is a reference: it shows
    what its class reaches with all logits. `Approximation.obstacle` says why.
    """

    def __init__(
        self,
        model: LanguageModel,
        ids: Sequence[int] | Array,
        *,
        skip: int | None = None,
        setting: str = "rows",
        prompt_tokens: int | None = None,
        seed: int = 0,
        jobs: int | None = None,
        heads: Replacements | None = None,
    ) -> None:
        import torch

        self.heads = {} if heads is None else heads
        self.model, self.ids = model, np.asarray(ids, np.int64)
        n = len(self.ids)
        self.setting = setting
        self.prompt = prompt_length(setting, prompt_tokens, n - 2, n // 2)
        first = (self.prompt or SKIP) if skip is None else skip
        self.skip = checks.integer("skip", first, least=self.prompt, most=n - 2)
        self.seed = checks.integer("seed", seed, least=0)
        every = os.cpu_count() or 1
        self.jobs = checks.integer("jobs", every if jobs is None else jobs, least=1)
        memory.keep()
        self.positions = np.arange(self.skip, n)
        self._step: Callable[[], None] = _no_step
        self.states: list[Any] = []
        self.shapes: list[Shape] = []
        self._own: list[tuple[Any, ...]] = []  # after a prompt: q, k, v and the mask of each layer
        self._first = self.prompt  # the first position that `replace` computes
        self.check(self.heads)
        with self._computing():
            model.states(self.ids, self._measured, watch=lambda _, state: self.states.append(state))
            vocabulary = model.logits(self.ids, self.states[-1], [0]).shape[1]
            dtype = self.states[-1].dtype
            size = len(self.positions) * vocabulary * dtype.itemsize
            memory.reserve(size, "the logits", "max_tokens, or raise skip")
            self._logits = torch.empty(len(self.positions), vocabulary, dtype=dtype)
            self._log_sums = torch.empty(len(self.positions), dtype=torch.float64)
            for at, logits in self._next(self.states[-1]):
                self._logits[at], self._log_sums[at] = logits, logits.double().logsumexp(1)
            self._likeliest = _likeliest(self._logits, self._log_sums)
            own = self.states[-1]
            rounding = torch.finfo(dtype).eps ** 0.5 * own.norm()
            if self.prompt and not (self._end({}, 0) - own).norm() < rounding:
                self._first = 0  # a layer reads earlier tokens in another way than by attention
        self.surprisal = self._surprisal(slice(0, None), self._logits, self._log_sums.numpy())

    @contextmanager
    def watched(self, step: Callable[[], None]) -> Iterator[None]:
        """Call a function with each layer of a pass with replaced heads, or of errors of heads."""
        self._step, before = step, self._step
        try:
            yield
        finally:
            self._step = before

    def with_heads(self, heads: Replacements) -> Passage:
        """Return a passage of the same text with these heads in place; without heads, self."""
        if not heads:
            return self
        return Passage(
            self.model, self.ids, skip=self.skip, setting=self.setting,
            prompt_tokens=self.prompt or None, seed=self.seed, jobs=self.jobs, heads=heads,
        )  # fmt: skip

    def inputs(self, layer: int) -> Heads:
        """Return Q, K, V of all heads of a layer as the model itself computes them.

        Examples
        --------
        ``passage.inputs(3).at(3, 1)`` is head 1 of layer 3.
        """
        checks.integer("layer", layer, least=0, most=self.model.layers - 1)
        with self._computing():
            try:
                self.model.states(self.ids, _stop, start=layer, state=self.states[layer])
            except _Stopped as stopped:
                return stopped.call.inputs(self.model.name)
        raise AssertionError("a layer was not called")  # states refuses such a model

    def everywhere(self, method: Method, heads: Sequence[HeadIndex] | None = None) -> Replacements:
        """Return {(layer, head): method} for all heads, or for some."""
        layers, count = range(self.model.layers), range(self.model.heads)
        every = [(i, j) for i in layers for j in count] if heads is None else heads
        self.check(found := dict.fromkeys(every, method))
        return found

    def replace(self, heads: Replacements, *, errors: bool = False) -> Replaced:
        """Return the result of a pass with some heads computed by methods.

        Parameters
        ----------
        heads : mapping of (layer, head) to Method
            Layers before the first of these are not run again.
        errors : bool
            Whether to measure the errors of these heads at their inputs in this pass.

        Raises
        ------
        ValueError
            The model lacks a head, or a method is a template or cannot be used under the mask.
        """
        self.check(heads)
        found: dict[HeadIndex, dict[str, float]] = {}
        start = min((layer for layer, _ in heads), default=self.model.layers)
        residual = np.zeros(self.model.layers + 1)

        def watch(layer: int, state: Any) -> None:
            if layer < self.model.layers:
                self._step()
            own = self.states[layer][0, self.skip :].cpu().double()  # mps has no float64
            other = state[0, self.skip - self._first :].cpu().double()
            residual[layer] = (other - own).norm() / own.norm()

        with self._computing():
            state = self._end(heads, start, found if errors else None, watch)
            return Replaced(*self.compare(state), residual, found, state)

    def _end(
        self,
        heads: Replacements,
        start: int,
        found: dict[HeadIndex, dict[str, float]] | None = None,
        watch: Callable[[int, Any], None] | None = None,
    ) -> Any:
        """Return the state after the last layer; earlier positions have the model's own q, k, v."""
        import torch

        heads, first = {**self.heads, **heads}, self._first

        def attention(call: Call) -> Any:
            mine = {head: m for (layer, head), m in heads.items() if layer == call.layer}
            if first:
                *own, mask = self._own[call.layer]
                pairs = zip(own, (call.q, call.k, call.v))
                q, k, v = (torch.cat([x[:, :, :first], y], dim=2) for x, y in pairs)
                call = dataclasses.replace(call, q=q, k=k, v=v, mask=mask)
            return self._output(call, mine, found, first)

        given = {"start": start, "state": self.states[start][:, first:], "first": first}
        state = self.model.states(self.ids[first:], attention, watch=watch, **given)
        return torch.cat([self.states[-1][:, :first], state], dim=1)

    def own_errors(self, heads: Replacements) -> dict[HeadIndex, dict[str, float]]:
        """Return the errors of methods at the heads' inputs in the model itself, by head.

        The draws are those of `replace`.
        """
        self.check(heads)
        found: dict[HeadIndex, dict[str, float]] = {}
        for layer in sorted({layer for layer, _ in heads}):
            self._step()
            x = self.inputs(layer)
            mine = {pair: method for pair, method in heads.items() if pair[0] == layer}
            for pair, (_, error) in self._computed(x, mine, errors=True).items():
                found[pair] = error
        return found

    def gradients(self, several: Sequence[Sequence[int] | Array]) -> list[list[Array]]:
        """Return gradients of the summed surprisal with respect to heads' outputs.

        Parameters
        ----------
        several : sequence of (positions,) or (positions − 1,)
            The tokens whose surprisal counts, from one forward pass for all. Tokens drawn from the
            model itself give the gradients of Fisher's information.

        Returns
        -------
        list of list of ndarray
            For each of these and each layer (heads, n, c): the derivative of Σ −log p(target) with
            respect to each head's output, before the output projection, in the model itself.
        """
        import torch

        texts = [torch.as_tensor(np.asarray(ids, np.int64)) for ids in several]
        rows = self.positions[: len(texts[0])]
        leaves: list[Any] = []

        def attention(call: Call) -> Any:
            output = self._in_place(call)
            leaf = torch.zeros_like(output, requires_grad=True)
            leaves.append(leaf)
            return output + leaf

        with self._computing(gradients=True):
            state = self.model.states(self.ids, attention)
            logits = self.model.logits(self.ids, state, rows)
            found = []
            for ids in texts:
                loss = torch.nn.functional.cross_entropy(logits, ids, reduction="sum")
                by_layer = torch.autograd.grad(loss, leaves, retain_graph=ids is not texts[-1])
                found.append([x[0].transpose(0, 1).cpu().numpy() for x in by_layer])
        return found

    def sampled(self, rng: np.random.Generator) -> Array:
        """Return a token for each position, drawn from the model's own next-token distribution."""
        found = []
        for logits in self._logits.split(CACHED):
            gumbel = -np.log(-np.log(1 - rng.random(tuple(logits.shape))))
            found.append((logits.double().numpy() + gumbel).argmax(axis=1))
        return np.concatenate(found)

    def compare(self, state: Any) -> tuple[Array, Likeliest, Likeliest, Array]:
        """Return kl, own, likeliest and surprisal, as in `Replaced`, from a last layer's state.

        Notes
        -----
        KL is Σ p (x − y) + log Σ e^y − log Σ e^x in float64, for logits x of the model and y of the
        replaced model. It is exactly 0 if these are equal.
        """
        kl, tops, surprisal = np.empty(len(self.positions)), [], []
        with self._computing():
            for at, other in self._next(state):
                x, y, log_sums = self._logits[at].double(), other.double(), self._log_sums[at]
                sums = y.logsumexp(1)
                p = (x - log_sums[:, None]).exp_()  # a copy: x may be the logits
                kl[at] = (p.mul_(x - y).sum(1) + (sums - log_sums)).numpy()
                tops.append(_likeliest(other, sums))
                surprisal.append(self._surprisal(at, other, sums.numpy()))
        kl[~np.isfinite(kl)] = np.inf
        likeliest = Likeliest(*map(np.concatenate, zip(*tops)))
        return kl, self._likeliest, likeliest, np.concatenate(surprisal)

    def __sizeof__(self) -> int:
        """Return the bytes of states and weights: Dask pickles what is large in another thread.

        In the thread that answers the scheduler, waiting for the end of a pass would seem its end.
        """
        tensors = [*self.states, *self.model.model.parameters()]
        return sum(x.numel() * x.element_size() for x in tensors)

    def check(self, heads: Replacements) -> None:
        """Raise ValueError or TypeError unless these are heads of the model, with methods."""
        checks.instance("heads", heads, Mapping, "a mapping of (layer, head) to a method")
        for (layer, head), method in heads.items():
            if not (0 <= layer < self.model.layers and 0 <= head < self.model.heads):
                raise ValueError(
                    f"{self.model.name} has no head {layer}.{head}: its layers are 0 to "
                    f"{self.model.layers - 1}, and their heads 0 to {self.model.heads - 1}"
                )
            checks.instance(f"the method of head {layer}.{head}", method, Method, "a method")

    @contextmanager
    def _computing(self, *, gradients: bool = False) -> Iterator[None]:
        """Let torch use as many threads as heads do, in one pass at a time.

        With other busy processes, more threads would wait. Their number is that of the process.
        """
        import torch

        with HOOKED:
            before = torch.get_num_threads()
            torch.set_num_threads(self.jobs)
            try:
                with torch.inference_mode(not gradients):
                    yield
            finally:
                torch.set_num_threads(before)

    def _measured(self, call: Call) -> Any:
        """Return the output of a layer of the model itself, and store its shape and inputs."""
        self.shapes.append(call.shape)
        if self.prompt:
            self._own.append((call.q, call.k, call.v, call.mask))
        return self._in_place(call)

    def _in_place(self, call: Call) -> Any:
        """Return the outputs of a layer of the model itself, with the gradients of exact heads."""
        import torch

        mine = {head: m for (layer, head), m in self.heads.items() if layer == call.layer}
        if not (mine and torch.is_grad_enabled()):
            return self._output(call, mine, None)
        exactly = call.output()
        with torch.no_grad():
            output = self._output(call, mine, None)
        return output + (exactly - exactly.detach())

    def _output(
        self,
        call: Call,
        mine: Mapping[int, Method],
        found: dict[HeadIndex, dict[str, float]] | None,
        first: int = 0,
    ) -> Any:
        """Return the outputs of a layer with some heads replaced, (1, n − first, heads, c)."""
        import torch

        if not mine:
            return call.output(first)
        if not all(torch.isfinite(x).all() for x in (call.q, call.k, call.v)):
            return torch.full_like(call.output(first), torch.nan)  # an earlier layer overflowed
        x = call.inputs(self.model.name)
        if found is None:  # exact heads are those of the model
            mine = {head: method for head, method in mine.items() if method != EXACT}
        whole = len(mine) == self.model.heads
        output = (
            call.q.new_empty(1, x.n - first, len(x.q), x.v.shape[-1])
            if whole and x.v is not None and first == self.prompt
            else call.output(first)
        )
        every = {(call.layer, head): method for head, method in mine.items()}
        for (layer, head), (y, error) in self._computed(x, every, errors=found is not None).items():
            output[0, self.prompt - first :, head] = torch.from_numpy(y)
            if found is not None:
                found[layer, head] = error
        return output

    def _computed(
        self, x: Heads, heads: Replacements, *, errors: bool
    ) -> dict[HeadIndex, tuple[Array, dict[str, float]]]:
        """Return the output after the prompt and the errors of heads of one layer, by head."""

        def one(pair: HeadIndex) -> tuple[Array, dict[str, float]]:
            method, head, exactly = heads[pair], x.at(*pair), self.prompt
            if exactly:
                method = after_prompt(method, exactly)
                if ROW_LOCAL in method.tags and DRAWS_BY_ROW not in method.tags:
                    head, exactly = _last(head, exactly), 0
            estimate = head.approximate(method, rng=self.draws(*pair))
            counted = np.arange(self.skip - x.n, 0) + head.n
            found = head.compare(estimate, rows=counted) if errors else {}
            assert head.V is not None
            y = estimate.attend(head.V)[exactly:]
            return y, {name: found[name] for name in ERRORS if name in found}

        pairs = sorted(heads)
        return dict(zip(pairs, in_threads(one, pairs, self.jobs)))

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the text, of the model's states and surprisal, and of the draws."""
        states = [self.states[i].cpu().numpy() for i in (0, -1)]
        about = self.model.name, self.skip, self.seed, self.prompt
        return tasks.key(*about, self.ids, *states, self.surprisal)

    def draws(self, layer: int, head: int) -> np.random.SeedSequence:
        """Return the seed of a random method for a head; heads that share keys share it."""
        return seed_sequence(self.seed, "substitute", layer, head // self.shapes[layer].group)

    def _next(self, state: Any) -> Iterator[tuple[slice, Any]]:
        """Yield slices of `CACHED` positions and their logits, from a last layer's state."""
        for i, rows in enumerate(np.split(self.positions, range(ROWS, len(self.positions), ROWS))):
            for j, logits in enumerate(self.model.logits(self.ids, state, rows).split(CACHED)):
                first = i * ROWS + j * CACHED
                yield slice(first, first + len(logits)), logits

    def _surprisal(self, rows: slice, logits: Any, log_sums: Array) -> Array:
        """Return −log p of the next token for each position of a stripe that has a next token."""
        following = self.ids[self.skip + 1 :][rows]
        chosen = logits[np.arange(len(following)), following].double().numpy()
        found: Array = log_sums[: len(following)] - chosen
        return np.where(np.isfinite(found), found, np.inf)


def _likeliest(logits: Any, log_sums: Any) -> Likeliest:
    most, token = logits.max(1)
    return Likeliest(token.numpy(), (most.double() - log_sums).exp().numpy())


def _no_step() -> None:
    """Do nothing, which unlike a lambda can be pickled."""


def _last(head: Head, first: int) -> Head:
    """Return a head with the queries from ``first`` on, and all keys."""
    assert isinstance(head.mask, Mask)
    mask = head.mask.take(slice(first, None))
    return dataclasses.replace(head, q=head.q[first:], mask=mask)


class _Stopped(Exception):
    """An exception that ends a pass at its first layer and carries the call."""

    def __init__(self, call: Call) -> None:
        self.call = call


def _stop(call: Call) -> Any:
    raise _Stopped(call)
