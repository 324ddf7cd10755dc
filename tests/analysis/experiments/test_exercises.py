"""Ten exercises: right answers of other routes are taken, three wrong ones of each refused."""

import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from refusals import refuses

from analysis import inputs
from analysis.experiments import exercises
from analysis.experiments.exercises import check
from figures.command.cli import main


def softmax(x):
    logits = np.where(np.tri(x.n, x.l) if not x.mask.is_full else True, x.Q @ x.K.T, -np.inf)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def solved(number, seed):
    """Return right answers, by another route than the check's."""
    rng = np.random.default_rng(seed)
    if number == 1:
        return {"seed": 85 if seed == 1 else 262, "share": 0.0027}
    if number == 2:
        s = 2 + seed % 3
        return {"seed": seed, "features": math.ceil((math.exp(s) - 1) * 100)}
    if number == 3:
        B, total, n = 5 + seed, Fraction(1), 0
        truth = mpmath.exp(-B)
        while abs(mpmath.mpf(total.numerator) / total.denominator - truth) > truth / 1000:
            n += 1
            total += Fraction((-B) ** n, math.factorial(n))
        return {"B": B, "degree": n}
    if number == 4:
        t = 2.0 if seed == 1 else 1.95
        s = np.linalg.eigvalsh((p := softmax(exercises.model_head(0, 0, t))) @ p.T)[::-1]
        rank = next(r for r in range(256) if s[r:].sum() <= 0.01 * s.sum())
        return {"head": "0.0", "temperature": t, "rank": rank}
    if number in (5, 9):
        x = inputs.gaussian(64, 16, rng=seed).at_temperature(1.0)
        if number == 5:
            p = -np.sort(-softmax(x), axis=1)
            k = next(k for k in range(65) if np.mean(p[:, k:].sum(axis=1)) <= 0.1)
            return {"seed": seed, "k": k}
        e = np.exp(x.Q @ x.K.T)
        u, s, v = np.linalg.svd(e)
        low = u[:, :4] * s[:4] @ v[:4]
        sums = low.sum(axis=1, keepdims=True)
        assert (sums > 0).all()
        tv = np.abs(low / sums - softmax(x)).sum() / 128
        return {"seed": seed, "error": np.linalg.norm(e - low) / np.linalg.norm(e), "tv": tv}
    if number == 6:
        p = softmax(exercises.model_head(17, 4))

        def least(first):
            for w in range(1, 257):
                lost = [row[first : max(first, i + 1 - w)].sum() for i, row in enumerate(p)]
                if np.mean(lost) <= 0.1:
                    return w

        return {"without": least(0), "with_sink": least(1)}
    if number == 7:
        return {"sigma": 0.5 * seed, "factor": math.exp(seed**2 / 8), "corrected": 1}
    if number == 8:
        q, k = 0.5 * rng.standard_normal(4), 0.5 * rng.standard_normal((6, 4))
        best = int((k @ q).argmax())
        a = np.exp(k @ q) / np.exp(k @ q).sum()
        R = np.expm1((q + k) @ (q + k).T)  # E φφᵀ of one feature, relative
        sign = int(a @ R @ a > (R @ a)[best])
        return {"seed": seed, "sign": sign, "ratio": 2.0}
    return {"m": 64 * seed, "d": 64, "keys": 64 * seed * 129 // 128}


def wrong(answers):
    """Yield answers with one number off."""
    for name, value in answers.items():
        if name not in ("seed", "B", "temperature", "sigma", "m", "d", "head"):
            more = 1 - value if name == "sign" else value + 1 + (name == "k")
            yield {**answers, name: more}
            yield {**answers, name: 10 * value + 2}
            yield {**answers, name: 0 if value else 1}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("number", range(1, 11))
def test_right_answers_are_right_and_others_wrong(number, seed):
    answers = solved(number, seed)
    assert all(check(number, answers)[0].values())
    others = list(wrong(answers))
    assert len(others) >= 3
    for other in others:
        assert not all(check(number, other)[0].values()), other


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("number", [5, 7, 9])
def test_answers_are_right_to_the_digits_of_the_page(number, seed):
    exact = solved(number, seed)
    for name in set(exact) - {"seed", "sigma"}:
        step = 2 if name == "k" else 10.0 ** (math.floor(math.log10(exact[name])) - 2)
        rounded = exact[name] + 1 if name == "k" else float(f"{exact[name]:.3g}")
        for value, right in ((rounded, True), (exact[name] + step, False)):
            assert check(number, exact | {name: value})[0][name] == right, (name, value)


def test_answers_that_are_none_are_refused():
    refuses("the exercise must be <= 10, got 11", check, 11, {})
    refuses("exercise 2 asks for seed, features, got seed", check, 2, {"seed": 1})
    for sigma, text in (("1", "sigma must be finite"), (40, "sigma must be <= 30, got 40")):
        refuses(text, check, 7, {"sigma": sigma, "factor": 1, "corrected": 1})
    refuses("B must be finite", check, 3, {"B": math.inf, "degree": 1})
    refuses("head must be one of", check, 4, {"head": "1.1", "temperature": 1.0, "rank": 3})
    with pytest.raises(TypeError, match="k must be an integer"):
        check(5, {"seed": 1, "k": 2.5})
    with pytest.raises(TypeError, match="answers must be names with their values"):
        check(5, [1])


def test_the_command_says_what_is_wrong(tmp_path, capsys, refused):
    path = tmp_path / "my answers (最终).json"
    path.write_text(json.dumps({"sigma": 1, "factor": 1.0, "corrected": 1}), "utf-8")
    assert main(["exercise", "check", "7", str(path)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("factor: complete the square")
    assert "1.64" not in said
    assert main(["exercise", "check", "7", str(path), "--lang", "zh"]) == 1
    assert "正确" in capsys.readouterr().out
    path.write_text("[", "utf-8")
    assert "is no JSON" in refused("exercise", "check", "7", path)
