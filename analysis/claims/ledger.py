"""The ledger: all claims, in the order of the documents, and their verdicts."""

from types import ModuleType

from analysis.claims import (
    attention,
    compression,
    diet,
    flash,
    infinite_dimensional,
    quantisation,
    sampling,
    scatterbrain,
    selection,
)
from analysis.claims.evidence import CONDITION, CORRECTED, FAILS, HOLDS, Claim, Entry
from analysis.compute.parallel import parallel
from approx import checks
from approx.kernels.threads import one_thread

MODULES: tuple[ModuleType, ...] = (
    infinite_dimensional,
    scatterbrain,
    diet,
    attention,
    flash,
    sampling,
    selection,
    compression,
    quantisation,
)
DOCUMENTS = {
    "ILA": "Infinite-dimensional linear attention",
    "SB": "Scatterbrain",
    "DIET": "Position encodings and rank (DIET)",
    "ATT": "The attention mechanism",
    "FL": "FLASH",
    "VA": "vAttention",
    "MP": "MagicPIG",
    "HA": "HyperAttention",
    "KDE": "KDEformer",
    "H2O": "H2O",
    "QUEST": "Quest",
    "MINF": "MInference",
    "TOPP": "Top-k and top-p attention",
    "WC": "WildCat",
    "THIN": "Thinformer",
    "KQ": "KQ-SVD",
    "LIN": "Linear attention on real heads",
    "SATA": "SATA",
    "ERF": "Equivalent random features",
    "TQ": "TurboQuant",
    "QJL": "QJL",
    "EDEN": "EDEN",
    "JC": "Jensen correction",
    "KIVI": "KIVI",
}
VERDICTS = (HOLDS, CONDITION, CORRECTED, FAILS)


def _entries() -> dict[str, Entry]:
    """Return every claim of every document, in the order in which they stand there."""
    members = [x for module in MODULES for x in vars(module).values()]
    return {entry.id: entry for entry in members if isinstance(entry, Entry)}


def ids() -> list[str]:
    """Return the ids of all claims and errata.

    Examples
    --------
    >>> ids()[0], ids()[-1]
    ('ILA-1', 'KIVI-1')
    """
    return list(_entries())


def check(*chosen: str, jobs: int = 1, progress: bool = False) -> list[Claim]:
    """Return the claims, checked.

    Parameters
    ----------
    *chosen : str
        Ids such as "FL-7", or beginnings of ids such as "FL" or "FL-E"; all by default. An id
        stands for itself only: "FL-1" does not choose "FL-10".
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
    entries = _entries()
    names = set(entries) if not chosen else {name for one in chosen for name in _named(one)}
    wanted = [name for name in entries if name in names]
    return parallel(_judged, wanted, jobs=jobs, progress=progress, label="claims")


def _judged(name: str) -> Claim:
    with one_thread():
        return _entries()[name].judge()


def _named(given: str) -> list[str]:
    known = {name.casefold(): name for name in ids()}
    wanted = given.casefold()
    matching = [name for low, name in known.items() if low.startswith(wanted)]
    if wanted in known:
        return [known[wanted]]
    if matching:
        return matching
    listed = f"`expqk claims` lists all {len(known)}"
    raise ValueError(checks.unknown("claim", given, [*DOCUMENTS, *known.values()], listed))
