"""Numbers about approximations of exp(q·k): errors, ranks, moments, sweeps.

What README and the tutorials print is imported by its short path, too.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.advice import diagnose as diagnose
    from analysis.bounds import certificates as certificates
    from analysis.errors import metrics as metrics
    from analysis.models import planner as plan, substitute as substitute  # noqa: F401
    from analysis.ranks import rank as rank, state_rank as state_rank
    from analysis.sweeps import sweep as sweep
else:
    from approx import _lazy

    _lazy.Shortcuts(
        __name__,
        {
            "certificates": "bounds.certificates",
            "diagnose": "advice.diagnose",
            "metrics": "errors.metrics",
            "plan": "models.planner",
            "rank": "ranks.rank",
            "state_rank": "ranks.state_rank",
            "substitute": "models.substitute",
            "sweep": "sweeps.sweep",
        },
    )
    __getattr__ = _lazy.attribute(__name__)
