"""Frequencies omega of random features: their distributions and couplings."""

from approx import checks
from approx.projections.base import IID, Antithetic, Projection as Projection, ZeroMean
from approx.projections.point_sets import Fixed as Fixed, Halton, Sobol
from approx.projections.rotated import (
    Hadamard,
    MomentMatched,
    Orthogonal as Orthogonal,
    Regularized as Regularized,
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


def named(projection: str | Projection) -> Projection:
    """Return the projection with this name, or the given object itself."""
    if isinstance(projection, Projection):
        return projection
    return PROJECTIONS[checks.one_of("projection", projection, tuple(PROJECTIONS))]
