"""The profile of a run: its inputs, temperatures, budget and trials."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVarTuple

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.costs.budget import KEYS, price_of_keys
from analysis.inputs import Head, Heads
from analysis.runs import engines, tasks
from analysis.runs.seeds import seed_sequence
from analysis.runs.tasks import Application
from analysis.sweeps.sweep import COLUMNS, sweep
from analysis.sweeps.table import Row
from approx import Method, checks, parse
from approx.estimate import exact
from approx.method.prices import low_rank

Ts = TypeVarTuple("Ts")


def nearest_to_one(temperatures: Iterable[float]) -> float:
    """Return the temperature nearest 1 by ratio, the colder of two."""
    return float(min(temperatures, key=lambda t: (abs(np.log(t)), t)))


@dataclasses.dataclass(frozen=True)
class Profile:
    """The size of a run.

    Parameters
    ----------
    name : str
    inputs : tuple of Head
        Single heads.
    temperatures : tuple of float
    budget : float
        What a query row may cost.
    trials, draws : int
        Of a random method in a sweep; in a Monte Carlo study of one pair.
    seed, jobs : int
    progress : bool
        Bars on stderr.
    currency : {"stored", "reads", "multiply_adds", "bytes"}
        What the budget is counted in, by default stored values per query row.
    advised : tuple of Head
        The user's heads on which the advisor is asked, more than are in ``inputs``.
    given : tuple of int
        How many heads there are, and how many queries one has, where some may be left out.
    """

    name: str
    inputs: tuple[Head, ...]
    temperatures: tuple[float, ...]
    budget: float
    trials: int
    draws: int
    seed: int = 0
    jobs: int = 1
    progress: bool = False
    currency: str = "stored"
    advised: tuple[Head, ...] = ()
    given: tuple[int, int] = (0, 0)

    @property
    def key(self) -> str:
        """A hash of all that decides the numbers of a study."""
        heads = (
            [(x.name, x.digest(), x.temperature) for x in some]
            for some in (self.inputs, self.advised)
        )
        size = self.name, self.temperatures, self.budget, self.currency, self.trials, self.draws
        return tasks.key(*size, self.seed, self.given, *heads)

    @property
    def grid(self) -> str:
        """Which grid a figure with one of its own takes: "quick" or "default"."""
        return "quick" if self.draws <= SIZES["quick"][-1] else "default"

    @property
    def main(self) -> Head:
        """The input of a figure that shows one: the middle real head, or else the middle input."""
        real = [x for x in self.inputs if x.name not in SYNTHETIC] or self.inputs
        return real[len(real) // 2]

    def causal(self, n: int) -> list[Head]:
        """Return the causal heads at t = 1, or else those of the bundled language model.

        Of each the first n queries are taken.
        """
        own = [x for x in self.inputs if x.mask.looks_back]
        heads = own or data.sample("smollm2").heads()
        return [x.first(n).at_temperature(1.0) for x in heads]

    def real_head(self, least: int, n: int) -> Head:
        """Return the first real head with so many different queries and keys, or a bundled one.

        Of it the first n queries are taken.
        """
        real = [x for x in self.inputs if x.name not in SYNTHETIC]
        heads = (x.first(min(n, x.n)) for x in [*real, *data.sample().heads()])
        return next(x for x in heads if min(len(np.unique(a, axis=0)) for a in (x.Q, x.K)) >= least)

    def sweep(
        self,
        specs: Iterable[str],
        inputs: tuple[Head, ...] = (),
        temperatures: tuple[float, ...] = (),
        **asked: Any,
    ) -> pd.DataFrame:
        """Run methods by their specs over inputs and temperatures, by default the profile's.

        The options are those of `analysis.sweeps.sweep.sweep`, by default the profile's, too.
        """
        own = {name: getattr(self, name) for name in ("trials", "seed", "jobs", "progress")}
        methods = [parse(spec) for spec in specs]
        grid = inputs or self.inputs, temperatures or self.temperatures
        return sweep(methods, *grid, **own | asked)

    def study(
        self,
        function: Callable[[*Ts], list[Row]],
        arguments: Sequence[tuple[*Ts]],
        label: str,
        columns: Sequence[str] = COLUMNS,
    ) -> pd.DataFrame:
        """Return the rows that a function gives for each tuple of arguments, each on one thread."""
        pieces = [Application(function, given) for given in arguments]
        results = engines.results(pieces, jobs=self.jobs, progress=self.progress, label=label)
        return pd.DataFrame([row for rows in results for row in rows], columns=list(columns))


def watch(profile: Profile) -> tuple[Profile, set[str]]:
    """Return a profile like another, and the names that have been read of it, a growing set."""
    names: set[str] = set()

    class Watched(Profile):
        def __getattribute__(self, name: str) -> Any:
            names.add(name)
            return super().__getattribute__(name)

    return Watched(**vars(profile)), names


SIZES = {  # n, temperatures, trials, draws
    "quick": (128, (0.25, 1.0, 4.0), 2, 200),
    "default": (512, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), 5, 1000),
    "full": (512, tuple(float(t) for t in 2.0 ** np.arange(-3, 4.5, 0.5)), 20, 10_000),
}
ADVISED = 8  # heads of a file on which the advisor is asked, at most, unless more are chosen
SYNTHETIC = ("gaussian", "sphere", "clustered", "clustered Q=K")
MOST_JOBS = 1024  # every process is started, so there is a limit


def profile(
    name: str = "default",
    *,
    path: str | Path | None = None,
    heads: list[tuple[int, int]] | None = None,
    budget: float | None = None,
    currency: str = "stored",
    seed: int = 0,
    jobs: int = 1,
    progress: bool = False,
) -> Profile:
    """Return a profile on real heads and synthetic inputs; on the user's heads alone, if given.

    Parameters
    ----------
    name : {"quick", "default", "full"}
    path : str or Path, optional
        The user's own tensors; the bundled sample otherwise.
    heads : list of (layer, head), optional
        Which of them; three by default, at the quartiles of the logits' range.
    budget : float, optional
        What a query row may cost; by default what 32 exact keys of the first real head cost, or
        what rank 1 costs if that is more, as it is for few queries of very many keys.
    currency : {"stored", "reads", "multiply_adds", "bytes"}
        What the budget is counted in.

    Raises
    ------
    ValueError
        An unknown name or currency; no such head; a budget ≤ 0.
    """
    checks.one_of("profile", name, tuple(SIZES))
    checks.integer("seed", seed, least=0)
    checks.integer("jobs", jobs, least=1, most=MOST_JOBS)
    n, temperatures, trials, draws = SIZES[name]
    real = data.sample() if path is None else data.load(path).require_no_sinks("a figure")
    if heads is not None:
        chosen = [real.at(layer, head) for layer, head in heads]
    else:
        chosen = list(real.heads()) if path is None else quartiles(real)
    own = path is not None
    cut = [x.first(n) for x in chosen]
    synthetic = [data.gaussian(n, 64, rng=seed)]
    if name == "full":
        synthetic += [
            data.sphere(n, 64, rng=seed),
            data.clustered(n, 64, rng=seed),
            data.clustered(n, 64, shared=True, rng=seed),
        ]
    paid = max(price_of_keys(KEYS, chosen[0], currency), rank_1_price(cut, currency))
    return Profile(
        name,
        tuple(cut if own else synthetic + cut),
        temperatures,
        paid if budget is None else checks.positive("budget", budget),
        trials,
        draws,
        seed,
        jobs,
        progress,
        currency,
        advised=tuple(x.first(n) for x in _some(real, chosen)) if own else (),
        given=(sum(1 for _ in real.heads()), max(x.n for x in chosen)),
    )


def rank_1_price(heads: Iterable[Head], currency: str) -> float:
    """Return the price of rank 1 on the dearest of some heads, with few queries for many keys."""
    return max(float(getattr(low_rank(1, x.shape), currency)) for x in heads)


def _some(inputs: Head | Heads, chosen: list[Head]) -> list[Head]:
    """Return the chosen heads with others evenly spaced among all, at most `ADVISED`, in order."""
    heads = list(inputs.heads())
    count = min(len(heads), max(ADVISED - len(chosen), 0))
    spaced = np.linspace(0, len(heads) - 1, count).round().astype(int)
    wanted = {(x.layer, x.head) for x in [*chosen, *(heads[i] for i in spaced)]}
    return [x for x in heads if (x.layer, x.head) in wanted]


def quartiles(inputs: Head | Heads) -> list[Head]:
    """Return the heads at the lower quartile, the median and the upper quartile of logit range."""
    heads = list(inputs.heads())
    order = np.argsort([_logit_range(x) for x in heads], kind="stable")
    places = dict.fromkeys(round(share * (len(heads) - 1)) for share in (0.25, 0.5, 0.75))
    return [heads[order[place]] for place in places]


def _logit_range(x: Head) -> float:
    Q, K, mask = x.Q, x.K, x.mask
    low, high = np.inf, -np.inf
    for rows in exact.stripes(x.n, x.l):
        cols = mask.span(rows)
        logits = Q[rows] @ K[cols].T
        # so that an unseen entry is neither the largest nor the least
        for fill in (-np.inf, np.inf):
            mask.hide(logits, rows, cols, fill)
            if fill < 0:
                high = max(high, logits.max())
        low = min(low, logits.min())
    return float(high - low)


def trials(
    method: Method, inputs: Head, count: int, seed: int
) -> Iterator[tuple[int, np.random.SeedSequence]]:
    """Yield (trial, seed) of independent draws, with the seeds that a sweep gives them.

    A deterministic method has one trial, called −1.
    """
    content, label = inputs.digest(), str(method)
    for trial in (-1,) if method.deterministic else range(count):
        yield trial, seed_sequence(seed, content, label, trial)
