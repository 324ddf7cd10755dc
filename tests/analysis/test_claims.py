"""The ledger of claims: complete, judged as expected, and turned to "fails" by planted bugs."""

import ast
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from analysis import claims, inputs, moments
from analysis.advice import pitfalls
from analysis.bounds import concentration
from analysis.claims import evidence, ledger, quantisation
from analysis.claims.evidence import CONDITION, CORRECTED, FAILS, HOLDS, verdict
from analysis.costs import operations
from analysis.errors import metrics
from analysis.inputs import statistics
from analysis.moments import feature_counts
from analysis.moments.expected_errors import Expectation
from analysis.ranks import position_rank, state_rank
from analysis.ranks.position_rank import Head
from approx.combinations.designs.collisions import Collisions
from approx.combinations.designs.design import Rest
from approx.combinations.sampled import Sampled
from approx.combinations.scatterbrain import Scatterbrain
from approx.compressed_logits.key_pca import KeyPCA
from approx.compressed_logits.logit_svd import LogitSVD
from approx.compressed_logits.qjl import QJL
from approx.compressed_logits.quantised import Quantised
from approx.compressed_logits.sign_sketch import SignSketch
from approx.estimate import exact
from approx.estimate.corrections import Support
from approx.low_rank import coreset, pivots, thinning
from approx.method import Moments
from approx.polynomials import monomials
from approx.polynomials.polynomial import Polynomial
from approx.polynomials.taylor import Taylor
from approx.polynomials.tensor_power import TensorPower
from approx.random_features import exponentials
from approx.random_features.features import RandomFeatures
from approx.random_features.leverage import Leverage
from approx.random_features.positive import Positive
from approx.sparse import sorted_lsh
from approx.sparse.columns import Columns
from approx.sparse.pages import Pages
from approx.sparse.sliding_window import SlidingWindow
from approx.sparse.top_k import TopK
from approx.sparse.top_p import TopP
from approx.sparse.vertical_slash import VerticalSlash
from approx.supports import boxes, hashing, patterns
from approx.textbook import attention, flash
from approx.textbook.flash import GatedUnit
from figures.command.cli import main
from figures.show import claims_ledger as shown
from figures.words import terminal_columns, translation

FOLDER = Path(claims.__file__).parent
NUMBERS = {  # of claims, and of errata
    "ILA": (12, 8), "SB": (10, 8), "DIET": (4, 6), "ATT": (7, 7), "FL": (15, 6), "VA": (5, 4),
    "MP": (4, 1), "HA": (2, 3), "KDE": (1, 1), "H2O": (2, 1), "QUEST": (2, 1), "MINF": (1, 5),
    "TOPP": (5, 0), "WC": (3, 0), "THIN": (2, 1), "KQ": (2, 0), "LIN": (3, 0),
    "SATA": (1, 0), "ERF": (1, 0),
    "TQ": (3, 0), "QJL": (1, 0), "EDEN": (1, 0), "JC": (1, 0), "KIVI": (1, 0),
}  # fmt: skip
CLAIMS = [f"{name}-{i + 1}" for name, (count, _) in NUMBERS.items() for i in range(count)]
ERRATA = [f"{name}-E{'abcdefgh'[i]}" for name, (_, count) in NUMBERS.items() for i in range(count)]
CONDITIONAL = [
    "ILA-8", "ILA-9", "ILA-10", "ILA-11", "SB-7", "SB-9", "ATT-2", "ATT-6", "ATT-7",
    "FL-7", "FL-8", "VA-1", "VA-2", "VA-5", "MP-3", "MP-4", "HA-2", "H2O-1", "H2O-2", "QUEST-2",
    "MINF-1", "WC-1", "THIN-2", "TOPP-1", "TOPP-4", "TOPP-5", "KQ-1", "KQ-2", "LIN-1", "LIN-2",
    "SATA-1", "ERF-1", "TQ-1", "TQ-3",
]  # fmt: skip
WRONG = ["FL-15"]  # a claim of a comment that is no erratum of the table


def test_verdicts(ledger):
    expected = dict.fromkeys(CLAIMS, HOLDS) | dict.fromkeys(CONDITIONAL, CONDITION)
    expected |= dict.fromkeys(ERRATA + WRONG, CORRECTED)
    assert {claim.id: claim.verdict for claim in ledger} == expected


def test_every_claim_is_there_once_with_its_numbers(ledger):
    assert sorted(claim.id for claim in ledger) == sorted(CLAIMS + ERRATA)
    assert [claim.id for claim in ledger] == claims.ids()
    assert {claim.document for claim in ledger} == set(claims.DOCUMENTS)
    for claim in ledger:
        assert claim.statement.endswith(".")
        assert claim.source
        assert claim.expected.keys() == claim.observed.keys()
        for value in claim.observed.values():
            assert np.isfinite(value).all()
    assert len({claim.statement for claim in ledger}) == len(ledger)


def test_no_observed_number_is_written_down():
    """What a check is told was observed holds a name: it is computed."""
    makers, seen = {"equal", "near", "sampled", "covered", "at_most", "above"}, 0
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in makers:
                names = [n for n in ast.walk(node.args[2]) if isinstance(n, ast.Name)]
                assert names, f"{path.name}:{node.lineno}"
                seen += 1
    assert seen > 150


def test_ids_and_their_beginnings_choose():
    assert [c.id for c in claims.check("FL-1", "diet-ea")] == ["DIET-Ea", "FL-1"]
    assert [c.id for c in claims.check("DIET")] == [x for x in claims.ids() if x[:4] == "DIET"]
    with pytest.raises(ValueError, match="unknown claim 'FLL', did you mean 'FL'"):
        claims.check("FLL")


def test_the_same_numbers_each_time():
    assert claims.check("ILA-2", "SB-Ed") == claims.check("ILA-2", "SB-Ed", jobs=2)


def test_the_readme_counts_them():
    for name in ("README.md", "docs/claims.md"):
        text = (FOLDER.parents[1] / name).read_text("utf-8")
        counted = f"checks {len(claims.ids())} statements of five notes"
        assert counted in " ".join(text.split())


# What a verdict is made of


def test_a_verdict_needs_what_it_says():
    right, wrong = evidence.equal("x", 1, 1), evidence.equal("x", 1, 2)
    assert verdict([right]) == HOLDS
    assert verdict([right, wrong]) == verdict([]) == FAILS
    assert verdict([right, evidence.without(wrong)]) == CONDITION
    assert verdict([right, evidence.without(wrong), evidence.printed(wrong)]) == CORRECTED
    assert verdict([right, evidence.printed(right)]) == FAILS
    assert verdict([right, evidence.without(right)]) == FAILS


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_proves_nothing(value):
    checks = [evidence.near("x", 1.0, value, 0.1), evidence.at_most("x", 1.0, value)]
    for check in checks:
        assert not check.agrees
        assert not evidence.printed(check).agrees
    assert not evidence.above("x", 1.0, math.nan).agrees


def test_two_checks_of_one_name_are_refused():
    def checks():
        yield evidence.equal("x", 1, 1)
        yield evidence.equal("x", 1, 1)

    entry = evidence.claim("FL-0", "Twice.", "nowhere")(checks)
    with pytest.raises(ValueError, match="FL-0: two checks have one name"):
        entry.judge()


# The command


def test_json_is_for_machines(capsys):
    assert main(["claims", "--json", "FL-7", "DIET", "ILA-Ef"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 12
    for row in rows:
        keys = ["id", "document", "statement", "source", "expected", "observed", "verdict"]
        assert list(row) == keys
        assert row["document"] == row["id"].split("-")[0]
        assert row["verdict"] in claims.VERDICTS
        assert row["expected"].keys() == row["observed"].keys()
        assert all(isinstance(x, str) for x in row["expected"].values())
        assert all(isinstance(x, int | float | list) for x in row["observed"].values())


def test_every_number_of_the_ledger_is_one_that_json_can_write(ledger):
    written = json.dumps(shown.rows(ledger), allow_nan=False)
    assert [row["id"] for row in json.loads(written)] == claims.ids()


def test_the_table_is_as_wide_as_the_terminal(capsys, monkeypatch):
    for width in (80, 132):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["claims", "DIET-E", "FL-7"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].split()[:2] == ["id", "verdict"]
        assert lines[-1] == "7 claims: 1 holds with a condition, 6 corrected"


def test_the_table_in_chinese(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["claims", "--lang", "zh", "DIET-E", "FL-7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(terminal_columns.width, lines)) <= 80
    assert lines[0].split() == ["编号", "结论", "论断", "量", "预期", "实测"]
    assert lines[-1] == "7 条论断：1 条有条件成立、6 条更正后成立"
    verdicts = {line.split()[1] for line in lines if line.startswith(("DIET", "FL"))}
    assert verdicts == {"有条件成立", "更正后成立"}
    with translation.speaking("zh"):
        said = translation.tr(claims.check("FL-7")[0].statement)
    start = terminal_columns.width(lines[0][: lines[0].index("论断")])
    stop = terminal_columns.width(lines[0][: lines[0].index("量 ")])
    cells = ["".join(c for c, at in zip(line, places(line)) if start <= at < stop)
             for line in lines[2:-1]]  # fmt: skip
    assert "".join(said.split()) in "".join("".join(cells).split())


def places(line):
    """Return the column of the terminal at which each character stands."""
    return [terminal_columns.width(line[:i]) for i in range(len(line))]


def test_a_claim_that_fails_is_exit_status_1(capsys, monkeypatch):
    monkeypatch.setattr(GatedUnit, "parameters", 4 * 6 * 5)
    assert main(["claims", "FL-4", "--jobs", "1"]) == 1
    assert "1 claim: 1 fails" in capsys.readouterr().out
    assert main(["claims", "FL-99"]) == 1
    assert "unknown claim 'FL-99'" in capsys.readouterr().err


def test_a_check_that_raises_is_a_failure_of_its_own(capsys, monkeypatch):
    def checks():
        yield evidence.equal("what went before", 1, sum([1]))
        raise FloatingPointError("overflow\nin exp")

    broken = evidence.claim("FL-4", "A gated unit.", "nowhere")(checks)
    monkeypatch.setattr(ledger.flash, "broken", broken, raising=False)
    monkeypatch.setenv("COLUMNS", "200")  # no word is broken
    assert main(["claims", "--json", "FL-4", "FL-7", "--jobs", "1"]) == 1
    seen = capsys.readouterr()
    one, other = json.loads(seen.out)
    assert (one["verdict"], other["verdict"]) == (FAILS, CONDITION)
    error = "FloatingPointError: overflow in exp"
    assert one["expected"] == {"what went before": "1", error: "no error"}
    assert one["observed"] == {"what went before": 1, error: "nan"}
    assert seen.err == ""
    assert main(["claims", "FL-4", "--jobs", "1"]) == 1
    assert "FloatingPointError:" in capsys.readouterr().out


# Planted bugs


def _linear_scores(Q, K, W_q, W_k, w_v):
    return (np.asarray(Q) @ W_q.T @ w_v)[:, None] + np.asarray(K) @ W_k.T @ w_v


def _printed_normaliser(original):
    return lambda n, size, *, causal=False, normaliser=None: original(
        n, size, causal=causal, normaliser=normaliser or ("printed" if causal else "chunk")
    )


def _same_corner(original):
    def construction(n, d, d_h, d_p):
        return original(n, d, d_h, d_p)._replace(relative=np.eye(n, d_p))

    return construction


def _unprojected(original):
    def changed(self):
        n = len(self.X)
        return np.broadcast_to(self.X @ self.X.T, (*self.W_q.shape[:-2], n, n))

    return changed


def _without_factorials(original):
    return lambda self, bound=math.inf: Polynomial.from_coefficients(
        np.ones(self.degree + 1), bound=bound
    )


def _of_minus_x(original):
    return lambda self, bound=math.inf: Polynomial.from_coefficients(
        [(-1) ** j / math.factorial(j) for j in range(self.degree + 1)], bound=bound
    )


def _half_squares(factor):
    def mutant(f):
        def both(log, x):
            top, half = f(log, x)
            return top, factor * half

        return both

    return mutant


def _weighted(power):
    def wrap(original):
        def changed(self, *arguments):
            omega, half = original(self, *arguments)
            return omega, power * half

        return changed

    return wrap


def _more_variance(factor):
    def wrap(original):
        def changed(self, Q, K):
            bias, log = original(self, Q, K)
            return Moments(bias, log + math.log(factor))

        return changed

    return wrap


def _wrong_deficit(original):
    def changed(x):
        return original(x) | {"entropy": np.log(x.shape[-1]) - x.var(axis=-1)}

    return changed


def _all_valid(original):
    return lambda scores: (original(scores)[0], 0.0)


def _in_bits(original):
    def changed(*arguments):
        for name, x in original(*arguments):
            yield name, x / math.log(2) if name.startswith("attention_kl") else x

    return changed


def _trigonometric_twice(original):
    def changed(self, method):
        if method.name != "trigonometric":
            return original(self, method)
        return 2 * original(self, Positive(m=method.m))

    return changed


def _as(**fields):
    """Return a bug by which a method is another of its class, or of those fields' values."""

    def wrap(original):
        def changed(self, *arguments):
            new = {name: x(self) if callable(x) else x for name, x in fields.items()}
            return original(dataclasses.replace(self, **new), *arguments)

        return changed

    return wrap


def _of_h2o(**fields):
    return lambda f: lambda self, *a: (_as(**fields)(f) if self.by == "h2o" else f)(self, *a)


def _corrected_by_sum(self, values, shift):
    matrix = self.scaled(shift).tocoo()
    values[matrix.row, matrix.col] += matrix.data


def _added(keys, draws, *, rng):
    return np.bincount(rng.integers(keys, size=draws), minlength=keys) * keys / draws


BUGS = {  # what is wrong: (where, name, original → wrong, claims that see it)
    "FLASH divides by what is printed, or by the chunk": (
        flash, "normalisers", _printed_normaliser, "FL-6 FL-7 FL-14 FL-Ea",
    ),
    "relu² is not divided by s": (
        attention, "relu_squared",
        lambda f: lambda Q, K, scaling="ns": f(Q, K, scaling=scaling) * np.shape(Q)[1], "FL-2",
    ),
    "relu² is divided by n twice under both scalings": (
        attention, "relu_squared", lambda f: lambda Q, K, scaling="ns": f(Q, K, scaling="n2"),
        "FL-2 FL-3",
    ),
    "relu is forgotten": (
        attention, "relu_squared",
        lambda f: lambda Q, K, scaling="ns": (Q @ K.T) ** 2 / (len(K) * Q.shape[1]), "FL-2 FL-10",
    ),
    "chunks are one too long": (
        patterns, "same_chunk", lambda f: lambda places, l, size: f(places, l, size + 1), "FL-5",
    ),
    "the gate is left out": (
        GatedUnit, "combine",
        lambda f: lambda self, X, A=None, gate=True: f(self, X, A, gate=False), "FL-1",
    ),
    "swish is x·sigmoid(2x)": (flash, "swish", lambda f: lambda x: f(2 * x) / 2, "FL-1"),
    "causal sums run over all tokens": (
        attention, "linear_attention",
        lambda f: lambda a, b, V, causal=False, **k: f(a, b, V, **k), "FL-Ec",
    ),
    "the sparsity index has the factor 1/n": (
        statistics, "sparsity",
        lambda f: lambda x, q=1, p=2: f(x, q, p) / np.shape(x)[-1] ** (1 / p), "FL-11 FL-Ed",
    ),
    "the deficit of entropy is σ²": (
        statistics, "weight_statistics", _wrong_deficit, "FL-12 FL-Ef",
    ),
    "log-n scaling forgets its base": (
        attention, "log_length_scale", lambda f: lambda n, d: math.log(n) / math.sqrt(d), "FL-13",
    ),
    "l₂ is l₁": (
        statistics, "norm", lambda f: lambda x, p: f(x, 1 if p == 2 else p), "FL-15",
    ),
    "a gated unit has 4de parameters": (
        GatedUnit, "parameters", lambda f: 4 * 6 * 5, "FL-4",
    ),
    "running sums of all heads are counted as one": (
        operations, "parallel_causal_memory", lambda f: lambda b, h, n, s: f(b, 1, n, s), "FL-8",
    ),
    "correlation does not matter": (
        statistics, "dot_product_variance", lambda f: lambda d, correlation=0.0: f(d), "ATT-Eb",
    ),
    "dot products are not divided by √d": (
        attention, "dot_product_attention",
        lambda f: lambda Q, K, V, **k: f(Q, K, V, scale=1.0, **k), "ILA-Ec ATT-4 ATT-Ed",
    ),
    "inputs are divided by d, not √d": (
        inputs.Head, "_root", lambda f: lambda self: f(self) / self.d**0.25, "ATT-5",
    ),
    "regression is without ½": (
        attention, "nadaraya_watson", lambda f: lambda Q, K, w=1.0: f(Q, K, w=2 * w),
        "ATT-1 ATT-2 ATT-Ee",
    ),
    "|k|² is without ½": (
        attention, "regression_logits",
        lambda f: lambda Q, K: f(Q, K) - 0.5 * np.square(K).sum(axis=1), "ATT-2",
    ),
    "additive scores are linear": (
        attention, "additive_scores", lambda f: _linear_scores, "ATT-3",
    ),
    "softmax's derivative is that of its diagonal": (
        attention, "jacobian_norm", lambda f: lambda p: np.sqrt(np.square(p).sum(axis=-1)), "ATT-6",
    ),
    "negative weights are not counted": (attention, "simple_normalisation", _all_valid, "ATT-7"),
    "positions stand in the same corner": (
        position_rank, "construction", _same_corner, "DIET-2 DIET-Eb DIET-Ef",
    ),
    "positions at the logits are lost": (
        Head, "at_logits", lambda f: lambda self: self._replace(P=0 * self.P).at_input(),
        "DIET-2 DIET-Ec DIET-Ed",
    ),
    "the head does not project": (
        Head, "at_input", _unprojected,
        "DIET-1 DIET-3 DIET-4 DIET-Ee",
    ),
    "the bound is one too low": (
        position_rank, "bound_at_logits", lambda f: lambda *sizes: f(*sizes) - 1, "DIET-2 DIET-Ed",
    ),
    "ranks are taken after exp only": (
        position_rank, "ranks", lambda f: lambda x: dict.fromkeys(f(x), f(x)["exp"]),
        "DIET-1 DIET-4 DIET-Ee",
    ),
    "features are without |x|²/2": (
        exponentials, "maxima_and_half_squares", _half_squares(0), "ILA-2 SB-4 SB-7",
    ),
    "features have |x|² for |x|²/2": (
        exponentials, "maxima_and_half_squares", _half_squares(2), "ILA-2 SB-4",
    ),
    "features are not divided by √m": (
        RandomFeatures, "frequencies", _weighted(0), "ILA-2 ILA-3 SB-4",
    ),
    "features are divided by m": (RandomFeatures, "frequencies", _weighted(2), "ILA-2 SB-4"),
    "Taylor is that of e^{−x}": (Taylor, "polynomial", _of_minus_x, "ILA-4 ILA-11 ILA-Ea"),
    "Taylor's coefficients are 1, not 1/j!": (
        Taylor, "polynomial", _without_factorials, "ILA-4 ILA-6 ILA-Ea ILA-Eg",
    ),
    "tensor powers are (1 + x)ⁿ": (
        TensorPower, "polynomial",
        lambda f: lambda self, bound=math.inf: Polynomial.from_coefficients(
            [math.comb(self.n, j) for j in range(self.n + 1)]
        ),
        "ILA-Eh",
    ),
    "monomials have no multinomial weights": (
        monomials, "root_ratios", lambda f: lambda d, n: np.ones_like(f(d, n)),
        "ILA-4 ILA-5 ILA-7",
    ),
    "a monomial too many is counted": (
        monomials, "width", lambda f: lambda d, n: f(d, n) + 1, "ILA-8 ILA-Eb SATA-1",
    ),
    "linear attention divides by l, not by row sums": (
        attention, "linear_attention",
        lambda f: lambda a, b, V, **k: f(a, b, V, **k | {"normalise": False}) / len(V), "ILA-1",
    ),
    "features are counted for 5 %": (
        moments, "features_needed", lambda f: lambda m, e, q, k: f(m, e / 2, q, k), "ILA-12",
    ),
    "the variance is e^{|q+k|²}": (
        Positive, "moments", _more_variance(math.e / (math.e - 1)), "SB-4 ILA-Ef",
    ),
    "Scatterbrain's variance has p for 1 − p": (
        Scatterbrain, "moments", _more_variance(0.3 / 0.7), "SB-8",
    ),
    "the support comes from the features' own draws": (
        Scatterbrain, "evaluate", lambda f: pitfalls.LargestEstimates.evaluate,
        "SB-Eb",
    ),
    "the support adds to the features, in products": (
        Support, "split", lambda f: lambda self, low: (low, np.zeros_like(low)), "SB-5 SB-10",
    ),
    "the support adds to the features, in entries": (
        Support, "correct", lambda f: _corrected_by_sum, "SB-Ea",
    ),
    "hyperplanes are off the origin": (
        hashing, "sign", lambda f: lambda x, w: np.asarray(x @ w.T >= 0.5, np.int64), "SB-6",
    ),
    "windows are one too wide": (
        SlidingWindow, "pattern",
        lambda f: lambda self, *a: f(dataclasses.replace(self, width=self.width + 1), *a), "SB-6",
    ),
    "φ(q)·φ(k) on the support is not counted": (
        operations, "scatterbrain",
        lambda f: lambda n, d, m, s: f(n, d, m, s)._replace(correction=2 * n * s * d),
        "SB-9 SB-Ee",
    ),
    "keys are counted off by one": (
        operations, "exact_attention", lambda f: lambda n, d: f(n + 1, d), "SB-1 SB-9",
    ),
    "weights have no bias": (
        moments, "normalised_moments",
        lambda f: lambda *a: f(*a)._replace(bias=np.full((1, 10), 1e-9)), "SB-Ef",
    ),
    "KL is in bits": (metrics, "_errors", _in_bits, "TOPP-1"),
    "exact attention forgets its mask": (
        exact, "attention", lambda f: lambda Q, K, V, mask=None: f(Q, K, V), "TOPP-2",
    ),
    "softmax forgets its mask": (
        exact, "softmax", lambda f: lambda Q, K, mask=None: f(Q, K), "TOPP-2 H2O-Ea",
    ),
    "top-k takes the smallest": (
        TopK, "pattern", lambda f: lambda self, Q, *a: f(self, -Q, *a), "TOPP-3",
    ),
    "no more than 1000 features are ever needed": (
        feature_counts, "features_needed", lambda f: lambda *a, **k: min(f(*a, **k), 1000),
        "LIN-1",
    ),
    "sines and cosines have twice the error of positive features": (
        Expectation, "error", _trigonometric_twice, "LIN-2",
    ),
    "half of the features are drawn": (
        Leverage, "evaluate", lambda f: lambda self, *a: f(Leverage(m=self.m // 2), *a), "ERF-1",
    ),
    "the bound leaves no state": (
        state_rank, "_tails", lambda f: lambda block, several: f(block, [0] * len(several)),
        "LIN-3",
    ),
    "bounds forget the signs of queries": (
        boxes, "highest", lambda f: lambda Q, lo, hi: Q @ hi.T, "QUEST-1 QUEST-2",
    ),
    "the current page is read beside those of the budget": (
        Pages, "pattern",
        lambda f: lambda self, *a: f(dataclasses.replace(self, k=self.k + self.size), *a),
        "QUEST-Ea MINF-Ea",
    ),
    "the SVD of logits is that of the keys": (
        LogitSVD, "compressed",
        lambda f: lambda self, *a: KeyPCA(rank=self.rank).compressed(*a), "KQ-1 KQ-2",
    ),
    "ε is doubled": (
        Sampled, "_enough", _as(epsilon=lambda method: 2 * method.epsilon), "VA-1 VA-Ed",
    ),
    "every key is drawn": (
        Sampled, "_enough", lambda f: lambda self, q, *a: np.full(len(q), 10**6),
        "VA-1 VA-2 VA-4 VA-Eb VA-Ec",
    ),
    "drawn keys have the weight 1": (
        Rest, "weights",
        lambda f: lambda self, indptr, keys, w: f(self, indptr, keys, np.ones(len(keys))),
        "VA-3 MP-4 HA-Ea",
    ),
    "a table too many is counted": (
        Collisions, "_at_least", lambda f: lambda self, x: f(
            dataclasses.replace(self, tables=self.tables + 1), x
        ),
        "MP-2",
    ),
    "keys are not centred": (Sampled, "design_of", _as(transform="none"), "MP-3"),
    "angles are halved": (
        Collisions, "_angles", lambda f: lambda self, *a: f(self, *a) / 2, "MP-1 MP-2 MP-Ea",
    ),
    "a bet ends at the mean": (
        concentration, "_betting", lambda f: lambda sample, log_odds: sample.mean(axis=-1), "VA-5",
    ),
    "columns are drawn in the blocks, too": (
        Rest, "cut", lambda f: lambda self, drawn: drawn, "HA-1",
    ),
    "softmax is over queries": (
        exact, "softmax", lambda f: lambda *a: f(*a) / f(*a).sum(axis=0), "HA-2 H2O-Ea",
    ),
    "row sums are means": (
        exact, "log_row_sums", lambda f: lambda Q, K, **k: f(Q, K, **k) - math.log(len(K)),
        "HA-Eb VA-1",
    ),
    "sizes are ignored": (Sampled, "_log_sizes", lambda f: lambda self, l: None, "KDE-1"),
    "columns are drawn alike": (
        pitfalls, "kdeformer_shares", lambda f: lambda V: np.full(len(V), 1 / len(V)), "KDE-Ea",
    ),
    "H2O knows the future": (Columns, "pattern", _of_h2o(by="mass"), "H2O-1 H2O-2"),
    "lines are found from all queries": (VerticalSlash, "pattern", _as(by="mass"), "MINF-1"),
    "pages by mean are those by box": (Pages, "pattern", _as(by="box"), "MINF-Ea"),
    "there are 62 lines": (
        VerticalSlash, "pattern", _as(k=62, vertical=0.5), "MINF-Eb MINF-Ed",
    ),
    "more lines are fewer": (
        VerticalSlash, "pattern", _as(k=lambda method: 128 - method.k), "MINF-Ec",
    ),
    "τ is an eighth": (
        coreset, "radii", lambda f: lambda q, k: f(q, k) / 8, "WC-1",
    ),
    "pivots are too long": (
        coreset, "cholesky", lambda f: lambda *a: (f(*a)[0], 1.01 * f(*a)[1]), "WC-2",
    ),
    "a pivot takes less": (
        pivots, "cholesky", lambda f: lambda *a: (f(*a)[0], 0.9 * f(*a)[1]), "WC-3",
    ),
    "halves are the first ones": (
        thinning, "halves",
        lambda f: lambda points, *a: np.tile(np.arange(points.shape[1] // 2), (len(points), 1)),
        "THIN-1 THIN-Ea",
    ),
    "coins are fair": (
        thinning, "halves", lambda f: lambda points, *a: f(0 * points, *a), "THIN-2",
    ),
    "every key is read": (
        pitfalls, "thinformer_places", lambda f: lambda length: np.arange(length), "THIN-Ea",
    ),
    "p is half of what is asked": (
        TopP, "pattern", _as(p=lambda method: method.p / 2), "TOPP-4 TOPP-5",
    ),
    "the temperature is always 1": (
        inputs.Head, "at_temperature", lambda f: lambda self, t: self, "MINF-Ee",
    ),
    "repeated draws add up": (pitfalls, "assigned", lambda f: _added, "VA-Ea"),
    "levels are those of a bit fewer": (
        quantisation, "lloyd_max", lambda f: lambda bits: f(max(bits - 1, 1)), "TQ-1 EDEN-1",
    ),
    "signs are of another key": (
        SignSketch, "read_back", lambda f: lambda self, S, bits, *a: f(self, S, bits[:, ::-1], *a),
        "TQ-2 QJL-1",
    ),
    "signs say nothing": (
        SignSketch, "read_back", lambda f: lambda *a: 0.0 * f(*a), "TQ-3",
    ),
    "the variance is added": (
        QJL, "_less", lambda f: lambda self, q, k: -f(self, q, k), "JC-1",
    ),
    "scales are of the other axis": (
        Quantised, "codes",
        lambda f: lambda self, *a: f(
            dataclasses.replace(self, by="token" if self.by == "channel" else "channel"), *a
        ),
        "KIVI-1",
    ),
    "words are sorted by their places": (
        pitfalls, "gray_entries", lambda f: sorted_lsh.gray_places, "HA-Ec",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_turn_verdicts(bug, monkeypatch, killed):
    where, name, wrong, seen_by = BUGS[bug]
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    judged = {claim.id: claim.verdict for claim in claims.check(*seen_by.split())}
    assert judged == dict.fromkeys(seen_by.split(), FAILS)
    killed(bug, math.inf)


def test_bugs_are_planted_under_every_document():
    seen = {one.split("-")[0] for bug in BUGS.values() for one in bug[3].split()}
    assert seen == set(claims.DOCUMENTS)
    assert dataclasses.is_dataclass(claims.Claim)
