"""Ten exercises: right answers of other routes are taken, three wrong ones of each refused."""

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import mpmath
import numpy as np
import pytest
from refusals import refuses

from analysis import inputs
from analysis.experiments import exercises
from analysis.experiments.exercises import check
from approx import parse
from figures.command.cli import main

PAGES = Path(__file__).parents[3] / "docs/exercises"


def softmax(x):
    logits = np.where(np.tri(x.n, x.l) if not x.mask.is_full else True, x.Q @ x.K.T, -np.inf)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def fewest(parts, share):
    """Return how many of the largest parts leave at most a share of their sum."""
    rest = np.append(np.cumsum(np.sort(np.ravel(parts)))[::-1], 0.0)
    return int(np.argmax(rest <= share * rest[0]))


def solved(number, seed):
    """Return right answers, by another route than the check's."""
    rng = np.random.default_rng(seed)
    if number == 1:
        return {"seed": 85 if seed == 1 else 262, "share": 2 * NormalDist().cdf(-3)}
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
        p = softmax(exercises.model_head(0, 0, t))
        return {"head": "0.0", "temperature": t, "rank": fewest(np.linalg.eigvalsh(p @ p.T), 0.01)}
    if number == 5:
        p = np.sort(softmax(inputs.gaussian(64, 16, rng=seed).at_temperature(1.0)), axis=1)
        return {"seed": seed, "k": fewest(p.mean(axis=0), 0.1)}
    if number == 6:
        p = softmax(exercises.model_head(17, 4))

        def least(first):
            for w in range(1, 257):
                lost = [row[first : max(first, i + 1 - w)].sum() for i, row in enumerate(p)]
                if np.mean(lost) <= 0.1:
                    return w

        return {"without": least(0), "with_sink": least(1)}
    if number == 7:
        return {"sigma": 0.5 * seed, "factor": math.exp(seed**2 / 8), "corrected": 1.0}
    if number == 8:
        q, k = 0.5 * rng.standard_normal(4), 0.5 * rng.standard_normal((6, 4))
        best = int((k @ q).argmax())
        a = np.exp(k @ q) / np.exp(k @ q).sum()
        R = np.expm1((q + k) @ (q + k).T)  # E φφᵀ of one feature, relative
        sign = int(a @ R @ a > (R @ a)[best])
        return {"seed": seed, "sign": sign, "ratio": 2.0}
    if number == 9:
        Q, K = exercises.lookup(seed)
        D = np.exp(Q @ K.T)
        split = parse("robust_pca()").approximate(Q, K)
        np.testing.assert_allclose(split.to_dense(), D, rtol=1e-6)
        rank, entries = (fewest(x, 0.01) for x in (np.linalg.svd(D)[1] ** 2, D**2))
        return {"seed": seed, "rank": rank, "entries": entries, "values": split.parameters}
    K = inputs.gaussian(64, 16, rng=seed).at_temperature(1.0).K
    A, left, landmarks = np.exp(K @ K.T), np.exp(K @ K.T), 0
    while left.trace() > 0.1 * A.trace():
        z = left.diagonal().argmax()
        left -= np.outer(left[:, z], left[z]) / left[z, z]
        landmarks += 1
    places = {"distance": math.sqrt(-math.log(1 - 0.3 * seed)), "landmarks": landmarks}
    return {"seed": seed, "error": 0.3 * seed} | places | {"best": fewest(np.linalg.svd(A)[1], 0.1)}


def said(number):
    """Return the fields of an exercise, and how near answers have to be, on its two pages."""
    texts = [page.read_text("utf-8") for page in sorted(PAGES.glob(f"{number:02}_*.md"))]
    lines = [re.findall(r"^- `(\w+)` ?[(（](.*?)[)）][:：]", x, re.MULTILINE) for x in texts]
    (names, words), (same, chinese) = (zip(*fields) for fields in lines)
    assert names == same
    return dict(zip(names, zip(words, chinese)))


CHOICES = {  # what is accepted, and what is refused
    "an integer from 0 to 2^31": ((0, 2**31), (-1, 2**31 + 1, 1.5)),
    "a number above 0, at most 40": ((1e-9, 40), (0, 40.01, math.inf)),
    "a number above 0, at most 30": ((1e-9, 30), (0, 30.01, "1")),
    "a number above 0 and below 1": ((1e-9, 0.9999), (0, 1)),
    "a number from 0.01 to 100": ((0.01, 100), (0.0099, 100.1, 5e-324)),
    "one of the four": (("17.4", "11.1", "0.0", "17.3"), ("17.5", "1")),
}


def ends(words, x):
    """Return the farthest answers from x that are right, and the nearest that are wrong."""
    unit = 10.0 ** math.floor(math.log10(x) - 2) if x else 1
    low, high = {
        "exact": (x, x),
        "one more or less is accepted": (x - 1, x + 1),
        "within a factor of three": (x / 3, 3 * x),
        "within 5 %": (0.95 * x, 1.05 * x),
        "to half a unit of the third significant digit: round to three digits, or give more":
            (x - unit / 2, x + unit / 2),
    }[words]  # fmt: skip
    inner, outer = (0, 1) if isinstance(x, int) else (1e-4 * x, 1e-4 * x)
    return (low + inner, high - inner), (low - outer, high + outer, 10 * x + 2)


@pytest.mark.parametrize(
    ("number", "seed"), [(i, seed) for seed in (1, 2) for i in range(1, 11) if (i, seed) != (6, 2)]
)  # exercise 6 has one answer
def test_right_answers_are_right_and_others_wrong_as_the_page_says(number, seed):
    answers = solved(number, seed)
    assert list(answers) == list(said(number))
    assert all(check(number, answers)[0].values())
    for name, (words, _) in said(number).items():
        chosen = CHOICES.get(words.removeprefix("your choice, "))
        right, wrong = chosen or ends(words, answers[name])
        for value in (*right, *wrong):
            try:
                judged = check(number, answers | {name: value})[0]
                accepted = bool(chosen) or judged[name]
            except (ValueError, TypeError):
                accepted = False
            assert accepted == (value in right), (name, value)


def test_what_is_accepted_has_one_wording_in_each_language():
    pairs = {words for number in range(1, 11) for words in said(number).values()}
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})


def test_answers_that_are_none_are_refused():
    refuses("the exercise must be <= 10, got 11", check, 11, {})
    refuses("exercise 2 asks for seed, features, got seed", check, 2, {"seed": 1})
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
    for text in ("[", "[1]", "null", "9" * 5000, "[" * 100_000, '{"sigma": 1, "sigma": 2}'):
        path.write_text(text, "utf-8")
        assert f"{path} must be one JSON object: " in refused("exercise", "check", "7", path)
