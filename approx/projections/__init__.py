"""Frequencies omega of random features: their distributions and couplings."""

from approx import checks
from approx.projections.base import IID, Antithetic, Projection, ZeroMean
from approx.projections.point_sets import Fixed, Halton, Sobol
from approx.projections.rotated import (
    Hadamard,
    MomentMatched,
    Orthogonal,
    Regularized,
    Simplex,
)

PROJECTIONS: dict[str, Projection] = {
    "iid": IID(),
    "antithetic": Antithetic(),
    "zero_mean": ZeroMean(),
    "orthogonal": Orthogonal(),
    "simplex": Simplex(),
    "hadamard": Hadamard(),
    "regularized": Regularized(),
    "regularized_iid": Regularized("iid"),
    "moment_matched": MomentMatched(),
    "sobol": Sobol(),
    "halton": Halton(),
}

__all__ = [
    "IID",
    "PROJECTIONS",
    "Antithetic",
    "Fixed",
    "Hadamard",
    "Halton",
    "MomentMatched",
    "Orthogonal",
    "Projection",
    "Regularized",
    "Simplex",
    "Sobol",
    "ZeroMean",
    "named",
]


def named(projection: str | Projection) -> Projection:
    """Return the projection with this name, or the given object itself."""
    if isinstance(projection, Projection):
        return projection
    return PROJECTIONS[checks.one_of("projection", projection, tuple(PROJECTIONS))]
