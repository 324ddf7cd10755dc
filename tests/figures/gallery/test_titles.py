"""A title that names a winner or counts cases says what the table's own numbers say."""

import functools
import re

import as_printed
import numpy as np
import pandas as pd
import pytest

from analysis import inputs
from approx import parse
from figures.drawing import looks
from figures.gallery import FIGURES
from figures.words.translation import share

stored = functools.cache(as_printed.tables)
FROBENIUS = "attention_relative_frobenius"


def title(name):
    return FIGURES[name].finding(stored()[name])


def test_entries_win_below_each_crossing_and_low_rank_above():
    said = title("summary")
    part = stored()["summary"]
    for name, own in part.groupby("input"):
        role = own.pivot_table("value", "temperature", "role")
        t = float(re.search(rf"([\d.]+) \({name}\)", said)[1])
        assert (role["sparse"] < role.low_rank)[role.index < t].all(), name
        assert (role["sparse"] > role.low_rank)[role.index > t].all(), name


BEST_FOUND = (  # of each class, at the storage of 32 values a query
    ("top_k()", "top_k(per='head')", "godec(rank=0, space='attention')"),
    ("truncated_svd(space='attention')", "truncated_svd(space='attention', refine='tv')"),
)


def test_no_printed_crossover_is_contradicted_by_the_best_found_of_both_classes(pytestconfig):
    """A tenth below a printed t the best sparse member has less tv than the best low rank found."""
    pages = (pytestconfig.rootpath / name for name in ("figures/README.md", "docs/measured.md"))
    gallery, measured = (page.read_text("utf-8") for page in pages)
    said = re.search(r"In total variation, the largest entries beat .* lose above", gallery)[0]
    printed = {name: float(t) for t, name in re.findall(r"([\d.]+) \((MiniLM \w+)\)", said)}
    row = re.search(r"\| tv \| [\d.]+ \|(.*)", measured)[1]
    assert [f"{t:.2f}" for t in printed.values()] == row.replace("|", " ").split()[:2]
    for x in inputs.sample().heads():
        for factor in (0.9, 1.1) if x.name in printed else ():
            at = x.at_temperature(factor * printed[x.name])
            tv = []
            for some in BEST_FOUND:
                members = (at.approximate(parse(s).within(32, **at.shape.given)) for s in some)
                tv.append(min(at.compare(member)["attention_tv"] for member in members))
            assert (tv[0] < tv[1]) == (factor < 1), (x.name, factor, tv)
    assert len(printed) == 2


def test_the_crossings_of_the_errors_are_within_the_range_of_the_title():
    low, high = map(float, re.search(r"t ≈ ([\d.]+)–([\d.]+)", title("error")).groups())
    places, table = [], stored()["error"]
    for _, own in table[table.metric == FROBENIUS].groupby("input"):
        errors = own.pivot_table("value", "temperature", "method")
        entries, svd = (
            errors.filter(regex=pattern).squeeze()
            for pattern in (r"godec\(.*rank=0.*space='attention'", r"svd\(.*space='attention'\)")
        )
        # temperatures around it
        places.append((entries.index[entries < svd].max(), (entries > svd).idxmax()))
    below, above = zip(*places)
    assert min(below) <= low <= min(above)
    assert max(below) <= high <= max(above)


def sketches(table):
    at = table[(table.temperature == 1) & (table.budget == 512)]
    row = at[at.metric == "expected_kernel_relative_frobenius"].sort_values("value").iloc[0]
    return f"{looks.label(row.method)} has the least expected error of exp(q·k), {row.value:.2g}."


def frontier(table):
    """By brute force: what is below all that costs no more, by 5 %, in each currency."""
    middle = table.groupby(["asked", "runnable", "keys"])
    points = middle[["value", "stored", "reads", "multiply_adds", "bytes"]].median().reset_index()
    points = points[middle.value.size().to_numpy() == 2]
    bound = points.set_index("asked")
    fronts = []
    for currency in ("stored", "reads", "multiply_adds", "bytes"):
        some = points[points.runnable & (points.value < bound.value["uniform()"])]
        some = some[some[currency] < bound[currency]["exact()"]].sort_values([currency, "value"])
        names, least = set(), np.inf
        for row in some.itertuples():
            if 1.05 * row.value < least:
                names.add(looks.label(row.asked))
                least = row.value
        fronts.append(names)
    always, every = set.intersection(*fronts), set.union(*fronts)
    if len(always) == 1:
        return f"only {always.pop()} is on the frontier in all four."
    return f"{share(len(always), len(every), 'methods')} are on the frontier in all four."


def state_rank(table):
    ranks = table[table.metric == "epsilon_rank"]
    keys = ["input", "layer", "head"]
    whole = ranks[ranks.position < 0].groupby(keys).value.first().median()
    blocks = ranks[ranks.position > 0].groupby(keys).value.max().median()
    return f"ε-rank {whole:.0f} needs only {blocks:.0f} states"


CLAIMS = {check.__name__: check for check in (sketches, frontier, state_rank)}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_title_is_true_of_its_table(name):
    assert CLAIMS[name](stored()[name]) in title(name)


def test_the_title_of_ranks_speaks_of_the_inputs_that_are_drawn():
    table = stored()["polynomial_rank"]
    table = pd.concat([table.assign(input=table.input + x) for x in ("", " again")])
    module = FIGURES["polynomial_rank"]
    assert len(module.draw(table).axes) == 3
    assert "all three inputs" in module.finding(table)
