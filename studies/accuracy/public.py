"""Every public function of `approx` and `analysis`: measured, a factorisation, or a reason."""

import fnmatch
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

PLACES = "gives places, counts or choices: nothing in it rounds, and slow twins hold it"
CHOSEN = "chooses keys by scores that are measured where they are made; slow twins hold the choice"
MADE_OF = "arranges what measured functions return"
DRAWN = "draws: its law is tested by z-scores, and its standard errors are far above rounding"
SOLVED = "iterates to a tolerance that it says, far above rounding; its result says what is reached"
FACTORISED = "its residual is in the second table"
PLUMBING = "checks, files, machines and text: no arithmetic"
PARTS = "a part of an estimate whose entries are measured by `Approximation.to_dense` and `attend`"
BOUND = "a bound that is rounded outwards: tests hold it to be one, at every margin"
TWIN = "held to enumeration or quadrature in tests to 1e-9 or better; no bound in ulp is promised"
MODEL = "runs a language model, in whose float32 it is as exact as that"

WHY = {
    "approx.kernels.elementary.largest": PLACES,
    "approx.kernels.jit.*": PLUMBING,
    "approx._lazy.*": PLUMBING,
    "approx.kernels.compiler.*": PLUMBING,
    "approx.checks.*": PLUMBING,
    "approx.method.name_hints.*": PLUMBING,
    "approx.method.fields.*": PLUMBING,
    "approx.estimate.memory.*": PLUMBING,
    "approx.method.method.generator": PLUMBING,
    "approx.notebook.*": PLUMBING,
    "approx.registry.parse": PLUMBING,
    "approx.kernels.garbage.*": PLUMBING,
    "approx.kernels.threads.*": PLUMBING,
    "approx.kernels.pattern_products.coordinates": PLACES,
    "approx.supports.exact_entries.*": PARTS,
    "approx.estimate.exact.stripes": PLACES,
    "approx.estimate.exact.height": PLACES,
    "approx.estimate.exact.row_shares": "`softmax` is this at the logits, and is measured",
    "approx.estimate.masks.*": PLACES,
    "approx.estimate.masked.under": PARTS,
    "approx.estimate.low.*": PARTS,
    "approx.method.prices.*": PLACES,
    "approx.method.filling.*": PLACES,
    "approx.combinations.scatterbrain.*": PLUMBING,
    "analysis.models.plan.*": PLUMBING,
    "approx.decoding.cache.held": PLACES,
    "approx.decoding.codes.*": PLACES,
    "approx.compressed_logits.normal_levels.rotated": FACTORISED,
    "approx.compressed_logits.normal_levels.width": PLACES,
    "approx.compressed_logits.normal_levels.lloyd_max": TWIN,
    "approx.compressed_logits.qjl.*": TWIN,
    "approx.compressed_logits.quantised.*": PARTS,
    "approx.compressed_logits.turboquant.*": TWIN,
    "approx.combinations.designs.by_size.inclusion": SOLVED,
    "approx.hierarchical.partition.*": PLACES,
    "approx.low_rank.coreset.radii": CHOSEN,
    "approx.low_rank.decomposition.*": PARTS,
    "approx.low_rank.godec.*": SOLVED,
    "approx.low_rank.krylov.block_krylov": FACTORISED,
    "approx.low_rank.nystrom.*": PARTS,
    "approx.low_rank.pivots.cholesky": FACTORISED,
    "approx.low_rank.projection.pivots": CHOSEN,
    "approx.low_rank.robust_pca.*": SOLVED,
    "approx.low_rank.shrinkage.*": FACTORISED,
    "approx.low_rank.stable_pca.*": SOLVED,
    "approx.low_rank.subspace.spectral_norm": SOLVED,
    "approx.low_rank.subspace.*": FACTORISED,
    "approx.low_rank.target.*": PARTS,
    "approx.low_rank.thinning.*": DRAWN,
    "approx.low_rank.thresholding.*": CHOSEN,
    "approx.low_rank.total_variation.*": SOLVED,
    "approx.low_rank.weighted.*": PARTS,
    "approx.mechanisms.feature_map.*": PARTS,
    "approx.mechanisms.flowformer.*": PARTS,
    "approx.mechanisms.nystromformer.*": FACTORISED,
    "approx.mechanisms.segments.*": PARTS,
    "approx.polynomials.chebyshev.left_out": PLACES,
    "approx.polynomials.extrema.*": "works in as many decimals as it needs",
    "approx.polynomials.method.*": PARTS,
    "approx.polynomials.monomials.*": PARTS,
    "approx.polynomials.powers.*": PARTS,
    "approx.projections.rotated.haar": FACTORISED,
    "approx.random_features.dense_exponential.*": PARTS,
    "approx.random_features.exponentials.*": PARTS,
    "approx.random_features.generalized_exponential.checked_tilt": PLUMBING,
    "approx.random_features.trigonometric.waves": PARTS,
    "approx.sketches.products.*": TWIN,
    "approx.sketches.random_maclaurin.*": TWIN,
    "approx.sketches.signed.*": TWIN,
    "approx.sketches.squared_sketch.*": TWIN,
    "approx.sketches.tensor_sketch.*": PARTS,
    "approx.supports.boxes.page_boxes": PLACES,
    "approx.supports.boxes.bounds": BOUND,
    "approx.supports.eviction.*": CHOSEN,
    "approx.supports.key_boxes.shared_bits": PLACES,
    "approx.supports.key_boxes.channels_so_far": CHOSEN,
    "approx.supports.hashing.*": CHOSEN,
    "approx.supports.inner_product.xbox": CHOSEN,
    "approx.supports.key_scores.*": CHOSEN,
    "approx.supports.patterns.*": PLACES,
    "approx.sparse.pages.score_parts": CHOSEN,
    "approx.sparse.random.choose": DRAWN,
    "approx.sparse.sliding_window.window": PLACES,
    "approx.sparse.sorted_lsh.*": PLACES,
    "approx.sparse.support.*": PARTS,
    "approx.sparse.vertical_slash.sums": CHOSEN,
    "approx.textbook.flash.*": PARTS,
    "analysis.advice.verdict.*": MADE_OF,
    "analysis.costs.allocation.*": MADE_OF,
    "approx.polynomials.error_bounds.*": "integers, or a level of `remez`, which is measured",
    "analysis.costs.budget.*": PLACES,
    "analysis.costs.candidates.*": PLUMBING,
    "analysis.ranks.reference_collection.*": "two routes agreed in all stored digits",
    "analysis.bounds.sampling_intervals.upper_bounds": BOUND,
    "analysis.sweeps.config.*": PLUMBING,
    "analysis.inputs.statistics.describe": MADE_OF,
    "analysis.inputs.statistics.gaussian_logits": DRAWN,
    "analysis.advice.diagnose.*": MADE_OF,
    "analysis.advice.caveats.*": MADE_OF,
    "analysis.bounds.guards.*": PLACES,
    "analysis.bounds.inclusion.*": DRAWN,
    "analysis.moments.ratio_samples.*": DRAWN,
    "analysis.moments.tail_shape.*": DRAWN,
    "analysis.compute.*": PLUMBING,
    "analysis.moments.feature_counts.*": PLACES,
    "analysis.inputs.array_files.*": PLUMBING,
    "analysis.inputs.loading.*": PLUMBING,
    "analysis.costs.gqa_reads.*": PLACES,
    "analysis.inputs.head_kinds.*": MADE_OF,
    "analysis.inputs.synthetic.*": DRAWN,
    "analysis.bounds.lower_bounds.*": BOUND,
    "analysis.bounds.support_bounds.*": BOUND,
    "analysis.models.checkpoints.*": PLUMBING,
    "analysis.bounds.concentration.*": "1 minus what `upper` returns, and a check",
    "analysis.errors.metrics.compare_all": "`compare` of several estimates, bit for bit at t = 1",
    "analysis.ranks.modular.*": "integers modulo a prime: exact",
    "analysis.moments.simulation.*": DRAWN,
    "analysis.advice.target.*": MADE_OF,
    "analysis.costs.operations.*": PLACES,
    "analysis.advice.pitfalls.*": "reproduces what public code does wrong, its rounding included",
    "analysis.models.planner.*": MADE_OF,
    "analysis.ranks.position_rank.*": PLACES,
    "analysis.models.propagation.bound": "a bound in exact arithmetic: loops over it hold it",
    "analysis.bounds.residuals.queries_keys": PLUMBING,
    "analysis.ranks.rank.*": MADE_OF,
    "analysis.ranks.recurrence.*": PARTS,
    "analysis.sweeps.crossovers.*": MADE_OF,
    "analysis.moments.correction_weights.rows": MADE_OF,
    "analysis.errors.row_sums.*": "the sums of which `compare` makes its errors",
    "analysis.costs.optimality.*": MADE_OF,
    "analysis.ranks.state_rank.*": MADE_OF,
    "analysis.sweeps.store.*": PLUMBING,
    "analysis.sweeps.sweep.*": MADE_OF,
    "analysis.sweeps.table.*": PLUMBING,
    "analysis.bounds.theory.*": MADE_OF,
    "analysis.advice.measurement.*": MADE_OF,
    "analysis.models.*": MODEL,
}


def modules() -> Iterator[str]:
    """Yield every module of approx and analysis, except experiments and claims."""
    for name in ("approx", "analysis"):
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not found.ispkg and found.name.split(".")[1] not in ("experiments", "claims"):
                yield found.name


def functions() -> list[str]:
    """Return the public functions that modules define, by their dotted names."""
    names = {}
    for module in modules():
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        for name in re.findall(r"^def ([a-z]\w*)", Path(spec.origin).read_text("utf-8"), re.M):
            names[f"{module}.{name}"] = None  # an overload occurs twice
    return list(names)


def why(name: str) -> str | None:
    """Return why a function is not measured, by its own name or by the name of its module."""
    if name in WHY:
        return WHY[name]
    return next((why for pattern, why in WHY.items() if fnmatch.fnmatch(name, pattern)), None)
