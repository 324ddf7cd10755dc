"""Every public function of `approx` and `analysis`: measured, a factorisation, or why neither."""

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
    "approx._elementary.largest": PLACES,
    "approx._jit.*": PLUMBING,
    "approx._lazy.*": PLUMBING,
    "approx._numba.*": PLUMBING,
    "approx.checks.*": PLUMBING,
    "approx.familiar.*": PLUMBING,
    "approx.fields.*": PLUMBING,
    "approx.memory.*": PLUMBING,
    "approx.method.generator": PLUMBING,
    "approx.notebook.*": PLUMBING,
    "approx.registry.parse": PLUMBING,
    "approx.threads.*": PLUMBING,
    "approx.exact.stripes": PLACES,
    "approx.exact.height": PLACES,
    "approx.masks.*": PLACES,
    "approx.masked.under": PARTS,
    "approx.parts.*": PARTS,
    "approx.prices.*": PLACES,
    "approx.scatterbrain.replaced": PLUMBING,
    "approx.designs.by_size.inclusion": SOLVED,
    "approx.hierarchical.partition.*": PLACES,
    "approx.low_rank.coreset.radii": CHOSEN,
    "approx.low_rank.decomposition.*": PARTS,
    "approx.low_rank.godec.*": SOLVED,
    "approx.low_rank.krylov.block_krylov": FACTORISED,
    "approx.low_rank.nystrom.*": PARTS,
    "approx.low_rank.pivots.cholesky": FACTORISED,
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
    "approx.sparse.boxes.of_pages": PLACES,
    "approx.sparse.boxes.bounds": BOUND,
    "approx.sparse.eviction.*": CHOSEN,
    "approx.sparse.hashing.*": CHOSEN,
    "approx.sparse.inner_product.xbox": CHOSEN,
    "approx.sparse.key_scores.*": CHOSEN,
    "approx.sparse.patterns.*": PLACES,
    "approx.sparse.random.choose": DRAWN,
    "approx.sparse.sliding_window.window": PLACES,
    "approx.sparse.sorted_lsh.*": PLACES,
    "approx.sparse.support.*": PARTS,
    "approx.sparse.top_k.largest": CHOSEN,
    "approx.sparse.vertical_slash.sums": CHOSEN,
    "approx.textbook.flash.*": PARTS,
    "analysis.advice.*": MADE_OF,
    "analysis.allocation.*": MADE_OF,
    "analysis.attention_calls.*": MODEL,
    "analysis.bounds.*": "integers, or a level of `remez`, which is measured",
    "analysis.budget.*": PLACES,
    "analysis.candidates.*": PLUMBING,
    "analysis.capture.*": MODEL,
    "analysis.collection.*": "two routes that must agree in every digit that is stored",
    "analysis.confidence.of": BOUND,
    "analysis.config.*": PLUMBING,
    "analysis.curves.*": MODEL,
    "analysis.damage.*": MODEL,
    "analysis.describe.describe": MADE_OF,
    "analysis.describe.gaussian_logits": DRAWN,
    "analysis.diagnose.*": MADE_OF,
    "analysis.doubts.*": MADE_OF,
    "analysis.drawn_keys.*": DRAWN,
    "analysis.draws.*": DRAWN,
    "analysis.engines.*": PLUMBING,
    "analysis.estimate.*": "an estimate of seconds and bytes, to two digits at best",
    "analysis.features_needed.*": PLACES,
    "analysis.files.*": PLUMBING,
    "analysis.groups.*": PLACES,
    "analysis.head_kinds.*": MADE_OF,
    "analysis.inputs.*": DRAWN,
    "analysis.least_error.*": BOUND,
    "analysis.least_loss.*": BOUND,
    "analysis.local_models.*": PLUMBING,
    "analysis.mean_bounds.*": "1 minus what `upper` returns, and a check",
    "analysis.metrics.compare_all": "`compare` of several estimates, bit for bit at t = 1",
    "analysis.model.*": MODEL,
    "analysis.modular.*": "integers modulo a prime: exact",
    "analysis.monte_carlo.*": DRAWN,
    "analysis.needed.*": MADE_OF,
    "analysis.next_words.*": MODEL,
    "analysis.operations.*": PLACES,
    "analysis.parallel.*": PLUMBING,
    "analysis.passage.*": MODEL,
    "analysis.pitfalls.*": "reproduces what public code does wrong, its rounding included",
    "analysis.plan.*": MODEL,
    "analysis.planning.*": MADE_OF,
    "analysis.positions.*": PLACES,
    "analysis.precision.*": "rounds on purpose: it measures what formats do",
    "analysis.propagation.bound": "a bound in exact arithmetic: loops over its formula hold it",
    "analysis.propagation.*": MODEL,
    "analysis.rank.*": MADE_OF,
    "analysis.recall.*": MADE_OF,
    "analysis.recurrence.*": PARTS,
    "analysis.regimes.*": MADE_OF,
    "analysis.replace_or_weight.rows": MADE_OF,
    "analysis.row_sums.*": "the sums of which `compare` makes its errors",
    "analysis.seeds.*": PLUMBING,
    "analysis.standing.*": MADE_OF,
    "analysis.state_rank.*": MADE_OF,
    "analysis.store.*": PLUMBING,
    "analysis.substitute.*": MODEL,
    "analysis.sweep.*": MADE_OF,
    "analysis.table.*": PLUMBING,
    "analysis.theory.*": MADE_OF,
    "analysis.trials.*": MADE_OF,
}


def modules() -> Iterator[str]:
    """Yield every module of approx and analysis, but for experiments and claims."""
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
            names[f"{module}.{name}"] = None  # an overload is there twice
    return list(names)


def why(name: str) -> str | None:
    """Return why a function is not measured: by its own name first, then by its module's."""
    if name in WHY:
        return WHY[name]
    return next((why for pattern, why in WHY.items() if fnmatch.fnmatch(name, pattern)), None)
