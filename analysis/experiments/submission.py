"""A method of a user's file: whether it keeps the contract, and its row beside others."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import approx
from analysis.costs.budget import amount_text, match
from analysis.costs.candidates import why_not
from analysis.experiments.decomposition import COUNT, bias_and_variance
from analysis.inputs import Head
from analysis.sentences import Sentence
from analysis.sweeps.sweep import sweep
from analysis.sweeps.table import frame, head, numbers
from approx import Method, parse
from approx.checks import Array

BESIDE = (
    "uniform()", "positive", "nystrom", "sliding_window", "top_k",
    "truncated_svd(space='attention')",
)  # fmt: skip
N, PLACE = 48, 30  # queries of the checks, and the one after which inputs change
HOT, FAR = 1e4, 400.0  # logits that must not overflow; the norm of a later key
SEED = 5
CLOSE = 1e-9  # relative: far above the rounding of float64, far below what is looked for


class Check(NamedTuple):
    """Whether a method keeps one point of the contract, and what was seen."""

    name: Sentence
    holds: bool
    seen: Sentence


def load(path: Path) -> type[Method]:
    """Return the method that a Python file defines, known by its name from then on.

    The file is run: it is the user's own.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is no Python file, does not run, or defines no method, several, or one without a name of
        its own or that is no frozen dataclass.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module_name = f"_submitted_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"a method is a Python file, such as my_method.py, got {path.name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # where dataclasses look up annotations
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing beside the file
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        where = "" if line is None else f" (line {line})"
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path.name} does not import{where}: {what}") from None
    finally:
        sys.dont_write_bytecode = writes
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Method) and each.__module__ == module_name
    ]
    found = list(dict.fromkeys(found))
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found)
        raise ValueError(
            f"{path.name} must define one method, a subclass of approx.Method, got "
            + (f"{len(found)}: {names}" if found else "none")
        )
    method = found[0]
    if missing := sorted(method.__abstractmethods__):
        raise ValueError(f"{method.__name__} in {path.name} has no {', '.join(missing)}")
    if "__dataclass_params__" not in vars(method) or not method.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ValueError(
            f"{method.__name__} in {path.name} is no frozen dataclass: write "
            "@dataclasses.dataclass(frozen=True) above it"
        )
    for needed in ("name", "deterministic"):
        if not hasattr(method, needed):
            raise ValueError(f"{method.__name__} in {path.name} has no {needed}: give it one")
    known = approx.METHODS.get(method.name)
    if known is not None and not known.__module__.startswith("_submitted_"):
        raise ValueError(f"{method.name} is a method of expqk: give {method.__name__} another name")
    approx.METHODS[method.name] = method
    return method


def contract(method: Method) -> list[Check]:
    """Return what the contract asks of a method, on Gaussian inputs of 48 queries and keys."""
    checked = [
        _check(Sentence("one matrix, whatever is asked"), _one_matrix, method),
        _check(Sentence("the same seed, the same bits"), _same_bits, method),
        _check(Sentence("finite at logits of ±10⁴"), _hot, method),
    ]
    if method.refusal is not None:
        refused = Sentence("refused under a mask: {why}", why=method.refusal)
        return [*checked, Check(Sentence("autoregressive"), True, refused)]
    return [*checked, _check(Sentence("autoregressive"), _as_declared, method)]


def _check(
    name: Sentence, holds: Callable[[Method], bool | tuple[bool, Sentence]], method: Method
) -> Check:
    try:
        kept = holds(method)
    except (ArithmeticError, ValueError, TypeError, IndexError) as error:
        what = f"{type(error).__name__}: {error}"
        return Check(name, False, Sentence("it raises {what}", what=what))
    if isinstance(kept, tuple):
        return Check(name, *kept)
    return Check(name, kept, Sentence("yes") if kept else Sentence("no"))


def _inputs(scale: float = 1.0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    Q, K, V = (rng.normal(size=(N, 4)) for _ in range(3))
    return scale * Q, K, V


def _one_matrix(method: Method) -> bool:
    Q, K, V = _inputs()
    A = method.approximate(Q, K, rng=1)
    dense = A.to_dense()
    rows = np.vstack([A.block(np.array([i])) for i in range(N)])
    size = np.abs(dense).max()
    gaps = (dense @ V - A @ V, dense.T @ V - A.T @ V, dense - rows)
    return all(np.abs(gap).max() <= CLOSE * max(size, 1.0) * N for gap in gaps)


def _same_bits(method: Method) -> bool:
    Q, K, V = _inputs()
    first, second = (method.approximate(Q, K, rng=7).attend(V) for _ in range(2))
    return bool(np.array_equal(first, second))


def _hot(method: Method) -> bool:
    with np.errstate(all="ignore"):
        Q, K, V = _inputs()
        Q = HOT / np.abs(Q @ K.T).max() * Q
        return bool(np.isfinite(method.approximate(Q, K, rng=1).attend(V)).all())


def _as_declared(method: Method) -> tuple[bool, Sentence]:
    """Return whether a row follows from the past alone if that is declared, and what is seen."""
    with np.errstate(all="ignore"):
        free = not looks_ahead(method)
    if free == method.autoregressive:
        return True, Sentence("yes, as declared") if free else Sentence("no, as declared")
    if free:
        return True, Sentence(
            "yes, by test: declare it, autoregressive = True, to run it in a model"
        )
    return False, Sentence("no, though declared: a row changes with later tokens")


def looks_ahead(method: Method) -> bool:
    """Return whether rows under a causal mask change with what their queries do not see.

    What comes after one query is cut off, replaced, and replaced with a key of norm 400 among it;
    the random numbers are the same. Rows may differ by rounding, 10⁻⁹ of their largest entry.
    """
    before, seen = _inputs(), PLACE + 1
    shift = method.approximate(*before[:2], mask="causal", rng=SEED).row_log(np.array([PLACE]))
    whole = _row(method, shift, *before)
    changes = [tuple(x[:seen] for x in before)]
    for norm in (1.0, FAR):
        later = [np.r_[x[:seen], -x[seen:]] for x in before]
        later[1][seen] *= norm / np.linalg.norm(later[1][seen])
        changes.append(tuple(later))
    try:
        rows = [_row(method, shift, *each) for each in changes]
    except (OverflowError, ValueError):  # as many keys as the size asks for are not there
        return True
    return any(
        not np.abs(a - b).max() <= CLOSE * max(np.abs(a).max(), 1e-300)
        for row in rows
        for a, b in zip(whole, row)
    )


def _row(method: Method, shift: Array, Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Return the row after which inputs change, at a scale e^shift of its own, and its output."""
    A = method.approximate(Q, K, mask="causal", rng=SEED)
    entries = A.block(np.array([PLACE]), slice(0, PLACE + 1), shift=shift)[0]
    return entries, A.attend(V)[PLACE]


def checkable(method: Method) -> Method:
    """Return a method with sizes that suit the inputs of `contract`."""
    if not method.is_template:
        return method
    filled = method.within(8, n=N, l=N, d=4) if method.fillable else None
    return filled or method.with_sizes()


def submit(
    method: Method,
    heads: Sequence[Head],
    *,
    budget: float,
    beside: Sequence[str] = BESIDE,
    temperature: float = 1.0,
    trials: int = 5,
    seed: int = 0,
    progress: bool = False,
) -> pd.DataFrame:
    """Return the tidy table of a method and of others at the same price.

    Parameters
    ----------
    method : Method
        A template is filled to the budget.
    heads : sequence of Head
    budget : float
        Stored values per query row.
    beside : sequence of str
        Specs of the other methods; those of which nothing fits are absent.
    temperature : float
    trials, seed : int
        Draws of a random method.

    Returns
    -------
    DataFrame
        As `sweep` returns it: every error, ``rank``, ``nnz`` and ``values_per_row``; and, of
        estimates of exp(q·k) and over ‖exact‖²_F, ``log_squared_bias`` and ``log_variance`` of the
        first 256 queries and keys, see `analysis.experiments.decomposition.bias_and_variance`.

    Raises
    ------
    ValueError
        The method refuses the mask of a head, or nothing of it fits the budget there.
    """
    rows, specs = [], [method, *map(parse, beside)]
    for x in heads:
        if (reason := why_not(method, x.mask)) is not None:
            raise ValueError(f"{method.name} cannot be measured on {x.name}: {reason}")
        at, some = x.at_temperature(temperature), x.first(COUNT).at_temperature(temperature)
        fitting = match(specs, budget, x).fitting
        if method.name not in {each.name for each in fitting}:
            paid = amount_text(budget, "stored")
            raise ValueError(f"nothing of {method} fits {paid} on {x.name}: raise the budget")
        for each in fitting:
            if each.space == "kernel":
                rows += numbers(head(at, each, budget), **bias_and_variance(each, some, seed))
    table = sweep(
        specs, heads, [temperature], trials=trials, seed=seed, budget=budget, progress=progress
    )
    return pd.concat([table, frame(rows)], ignore_index=True)
