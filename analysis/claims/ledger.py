"""The ledger: all claims, in the order of the documents, and their verdicts."""

import dataclasses
import importlib
from collections.abc import Sequence
from types import ModuleType

from analysis.claims import attention, diet, flash, infinite_dimensional, scatterbrain
from analysis.claims.evidence import CONDITION, CORRECTED, FAILS, HOLDS, Claim, Entry
from analysis.runs import engines, tasks
from approx import checks

MODULES = (infinite_dimensional, scatterbrain, diet, attention, flash)
DOCUMENTS = {
    "ILA": "Infinite-dimensional linear attention",
    "SB": "Scatterbrain",
    "DIET": "Position encodings and rank (DIET)",
    "ATT": "The attention mechanism",
    "FL": "FLASH",
}
VERDICTS = (HOLDS, CONDITION, CORRECTED, FAILS)


def _entries(modules: Sequence[ModuleType]) -> dict[str, tuple[str, Entry]]:
    """Return every claim with the name of its module, in the order in which they stand there."""
    members = [(module.__name__, x) for module in modules for x in vars(module).values()]
    return {entry.id: (name, entry) for name, entry in members if isinstance(entry, Entry)}


def ids(modules: Sequence[ModuleType] = MODULES) -> list[str]:
    """Return the ids of all claims and errata.

    Examples
    --------
    >>> ids()[0], ids()[-1]
    ('ILA-1', 'FL-Ef')
    """
    return list(_entries(modules))


def check(
    *chosen: str,
    modules: Sequence[ModuleType] = MODULES,
    jobs: int = 1,
    progress: bool = False,
) -> list[Claim]:
    """Return the claims, checked.

    Parameters
    ----------
    *chosen : str
        Ids such as "FL-7", or beginnings of ids such as "FL" or "FL-E"; all by default. An id
        stands for itself only: "FL-1" does not choose "FL-10".
    modules : sequence of modules
        Where the claims are.
    jobs : int
        The number of processes.
    progress : bool
        Whether to show a bar on stderr.

    Raises
    ------
    ValueError
        There is no such claim.

    Notes
    -----
    Every random check has a fixed seed, and BLAS runs on one thread: the same numbers each time.

    Examples
    --------
    >>> one = check("FL-Ea")[0]
    >>> one.verdict, one.observed["gain with the printed normaliser"]
    ('corrected', 64.0)
    """
    jobs = checks.integer("jobs", jobs, least=1)
    entries = _entries(modules)
    names = set(entries) if not chosen else {x for one in chosen for x in _named(one, entries)}
    wanted = [_ClaimTask(module, name) for name, (module, _) in entries.items() if name in names]
    return engines.results(wanted, jobs=jobs, progress=progress, label="claims")


@dataclasses.dataclass(frozen=True)
class _ClaimTask(tasks.Task):
    module: str
    name: str

    def run(self, shared: None) -> Claim:
        return _entries([importlib.import_module(self.module)])[self.name][1].judge()


def _named(given: str, entries: dict[str, tuple[str, Entry]]) -> list[str]:
    known = {name.casefold(): name for name in entries}
    wanted = given.casefold()
    if wanted in known:
        return [known[wanted]]
    matching = [name for low, name in known.items() if low.startswith(wanted)]
    if matching:
        return matching
    documents = dict.fromkeys(name.partition("-")[0] for name in entries)
    listed = f"Without an id, all {len(known)} are checked"
    raise ValueError(checks.unknown("claim", given, [*documents, *entries], listed))
