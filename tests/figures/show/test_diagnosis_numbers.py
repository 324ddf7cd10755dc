"""Every number that `diagnose` prints, of a table whose numbers are written down here by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis import inputs
from analysis.advice import caveats
from analysis.advice.diagnose import diagnose
from analysis.advice.verdict import advice, gaps
from analysis.inputs import statistics
from analysis.sentences import Sentence, thousandths
from approx import parse
from figures.command import target as targets, theory as theories
from figures.show import diagnosis, winners_map

SPECS = {  # class, stored values, reads of both heads, an oracle?
    "uniform()": ("low rank", 0.75, (10.0, 10.0), False),
    "sliding_window(width=4)": ("window", 4.0, (64.0, 104.0), False),
    "sink_window(k=4)": ("window", 4.0, (70.0, 150.0), False),
    "top_k(k=4)": ("entries", 4.0, (80.0, 120.0), True),
}
TV = {0: (0.8, 0.2, 0.3, 0.05), 1: (0.6, 0.44, 0.4, 0.15)}
WINNERS = {0: "sliding_window(width=4)", 1: "sink_window(k=4)"}


@pytest.fixture(scope="module")
def table():
    rows = []
    for head, errors in TV.items():
        for (spec, (kind, stored, reads, oracle)), tv in zip(SPECS.items(), errors, strict=True):
            wins = WINNERS[head] == spec
            no_sum = Sentence(
                "{rows:.0f} of {n} rows have no positive sum: their output is 0", rows=3.0, n=64
            )
            rows.append({
                "input": "x", "layer": 2, "head": head, "n": 64, "l": 64, "d": 8,
                "temperature": 1.5, "mask": "causal", "measured": 16, "exact_price": 64.0,
                "exact_reads": 1000.0, "verdict": "use" if head == 0 else "keep exact",
                "left_out": [], "spec": spec, "class": kind, "budget": 4.0, "currency": "stored",
                "stored": stored, "reads": reads[head], "attention_tv": tv,
                "attention_tv_stderr": 0.011 * (head + 1) if wins else 0.5,
                "output_relative_error_stderr": 0.022 * (head + 1) if "sink" in spec else 0.5,
                "bound": tv / 2, "certificate": 1.5 * tv if wins else math.nan,
                "negative_fraction": 0.0, "oracle": oracle, "standing": "bound" * oracle,
                "runnable": not oracle, "winner": wins, "screened": False,
                "warnings": [no_sum] if "sink" in spec else [],
            })  # fmt: skip
    return pd.DataFrame(rows)


def check(said, *lines):
    """Check that each line stands in a text, however it is wrapped."""
    said = " ".join(said.split())
    missing = [line for line in lines if line not in said]
    assert not missing, said


def test_the_text_has_the_numbers_of_its_table(table):
    check(
        diagnosis.text(table),
        # one head: bound, tv, what is proved if that is at most half of uniform's, uniform, the
        # runner-up over the winner, the oracle
        "2.0 sliding window 0.100 0.200 0.300 0.8 1.50× 0.05",
        "2.1 keep exact (sink 0.200 0.400 – 0.6 1.10× 0.15 and window)",
        # methods: heads won, median tv, median share of 1000 reads, heads below uniform
        "top-k of each row bound 0.1 10% 2 of 2 top_k(k=4)",
        "sliding window 1 0.32 8% 2 of 2",
        "sink and window 1 0.35 11% 2 of 2",
        "uniform attention 0 0.7 1% 0 of 2",
        # classes: medians of the least bound, the oracle, what can be run
        "window 0.15 – 0.3 – sink and window",
        "low rank 0.35 – 0.7 – uniform attention",
        "entries 0.05 ≤ 0.1 – – –",
        "Budget 4 stored values per query row, t = 1.5, mask causal.",
        # the winners', not those of all methods
        "On 2 heads, 16 of 64 queries were measured. The largest standard error of a winner's "
        "total variation is 0.022.",
        "Heads: 1 with a method to use, 0 with a tie between two, 1 that keep exact attention.",
        '--method "sliding_window(width=4)" (heads: 1)',
        "2 3 of 64 rows have no positive sum: their output is 0: sink and window 2",
    )
    check(
        winners_map.caption(table),
        "a budget of 4 stored values per query row, t = 1.5; only",
        "Grey: 1 of 2 heads keep",
        "To use: sliding window 1.",
    )


def test_advice_has_the_numbers_of_its_table(table):
    first, second = advice(table)
    assert first.sentence == (
        "sliding_window(width=4): 0.100 ≤ total variation 0.200 ≤ 0.300 at 6.4% of the reads of "
        "exact attention, total variation 4.00× below uniform, 1.50× below sink_window(k=4)"
    )
    assert second.sentence == (
        "keep exact attention: the best, sink_window(k=4), has 0.67 of uniform's total variation"
    )
    assert first.reads == 0.064
    assert first.margin == pytest.approx(1.5)
    assert (first.oracle.attention_tv, second.oracle.attention_tv) == (0.05, 0.15)
    of_class = gaps(table).set_index(["head", "class"])
    assert of_class.gain[0, "window"] == pytest.approx(0.1)
    assert of_class.gain[1, "low rank"] == pytest.approx(0.3)
    both = table.assign(**{"class": table["class"].replace("entries", "window")})
    assert gaps(both).set_index(["head", "class"]).gap[1, "window"] == pytest.approx(0.25)


BY_OUTPUT = {0: (0.9, 0.5, 0.25, 0.05), 1: (0.8, 0.72, 0.5, 0.1)}  # in the order of SPECS


def with_output(table, metric="attention_tv"):
    """The table with errors of the output, ranked by a metric."""
    output = [error for errors in BY_OUTPUT.values() for error in errors]
    table = table.assign(output_relative_error=output, metric=metric)
    if metric == "output_relative_error":
        wins = table.spec == "sink_window(k=4)"
        table = table.assign(winner=wins, bound=math.nan, certificate=math.nan)
    return table


def test_the_error_of_the_output_stands_beside_tv(table):
    check(
        diagnosis.text(with_output(table)),
        "use best measured guaranteed output uniform margin all possible logits",
        "2.0 sliding 0.100 0.200 0.300 0.5 0.8 1.50× 0.05 window",
        "top-k of each row bound 0.1 0.075 10% 2 of 2",  # medians of .05 and .1
        "On 1 of 2 heads another method has a smaller output error than the winner:",
        "2.0 sink and window: output 0.25, tv 0.3; sliding window: output 0.5, tv 0.2 ",
    )
    first, second = advice(with_output(table))
    assert "0.300, output error 0.500 at 6.4%" in first.sentence
    assert first.sentence.endswith("; by output error sink_window(k=4) is better, 0.250 < 0.500")
    assert first.other == ("sink_window(k=4)", 0.3, 0.25)
    assert second.other.spec == ""
    many = pd.concat([with_output(table).assign(layer=i) for i in range(14)])
    assert "And 2 more: --json has every error." in diagnosis.text(many)
    assert "output" not in diagnosis.text(table).split("Budget")[0]  # without V


def test_the_other_winner_is_named_where_exact_attention_is_kept(table):
    kept = with_output(table).assign(verdict="keep exact")
    better = "; by output error sink_window(k=4) is better, 0.250 < 0.500"
    share = "has 0.25 of uniform's total variation"
    assert advice(kept)[0].sentence.endswith(share + better)
    dear = kept.assign(exact_reads=64.0)
    assert advice(dear)[0].sentence.endswith("it costs as much or more in reads" + better)
    flat = kept.assign(attention_tv=kept.attention_tv.mask(kept.spec == "uniform()", 0.1))
    flat = flat.assign(winner=kept.spec == "uniform()")
    assert advice(flat)[0].sentence == (
        "keep exact attention: nothing at this budget beats uniform in total variation; by output "
        "error sink_window(k=4) is better, 0.250 < 0.900"
    )
    bought = advice(kept.assign(budget=64.0))[0].sentence
    assert bought == "keep exact attention: the budget buys every entry that is seen"


def test_everything_follows_the_error_of_the_output_where_it_ranks(table):
    by = with_output(table, "output_relative_error")
    check(
        diagnosis.text(by),
        "head use output tv uniform margin all logits",
        "2.0 sink and window 0.25 0.3 0.9 2.00× 0.05",
        "2.1 keep exact (sink and 0.5 0.4 0.8 1.44× 0.1 window)",
        "sliding window 0 0.32 0.61 8% 2 of 2",
        "entries 0.075 – – –",
        "Ranked by output, the relative error of the output P V",
        "Lower bounds and guarantees are known for tv only.",
        "The largest standard error of a winner's relative output error is 0.044.",
        "class all logits can be run gap best to run",  # no bound
        "On 1 of 2 heads another method has a smaller tv than the winner:",
        "2.0 sliding window: output 0.5, tv 0.2; sink and window: output 0.25, tv 0.3",
        "that see all logits are references.",
    )
    assert "≤" not in diagnosis.text(by)
    first, second = advice(by)
    others = (x.error("output_relative_error") for x in (first.uniform, first.oracle))
    assert (first.margin, first.error, *others) == (2.0, 0.25, 0.9, 0.05)
    assert first.sentence.endswith("; by total variation sliding_window(width=4) is better, 0.200 "
                                   "< 0.300")  # fmt: skip
    assert second.sentence.endswith("has 0.62 of uniform's output error")
    caption = winners_map.caption(by)
    assert "The method with the lowest relative output error" in caption
    drawn = winners_map.draw(by)
    assert drawn.axes[1].get_ylabel() == "relative output error"


def test_a_price_above_exact_attentions_is_said(table):
    prices = {"multiply_adds": 2136.4, "exact_multiply_adds": 1000.0, "bytes": 80.0,
              "exact_bytes": 100.0}  # fmt: skip
    first, _ = advice(table.assign(**prices))
    assert first.sentence.endswith("sink_window(k=4); costs 2.14 times exact attention's multiply-"
                                   "adds")  # fmt: skip
    assert (first.multiply_adds, first.bytes) == (2.1364, 0.8)
    dear = table.assign(**prices | {"bytes": 100.0}, exact_reads=64.0, verdict="keep exact")
    first = advice(dear)[0]
    assert first.sentence == (
        "keep exact attention: the best, sliding_window(width=4), saves nothing but stored values; "
        "it costs as much or more in reads, multiply-adds, bytes"
    )
    check(
        diagnosis.text(dear), "is kept in 2 of 2 heads because the best method saves storage only"
    )
    assert "accepted share" not in diagnosis.text(dear)
    assert "kept in 2 of 2" not in diagnosis.text(dear.assign(budget=64.0))  # which buys exact


def row(**changes):
    """A row of `diagnose` of which no warning is given."""
    return {
        "attention_tv": 0.2, "spec": "positive(m=8)", "runnable": True, "features_needed": 8.0,
        "nonpositive_rows": 0.0, "negative_fraction": 0.0, "attention_tv_least": 0.19,
        "attention_tv_most": 0.21, "pays_from": 4.0,
    } | changes  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), [
    ({}, None),
    # 10 % of the kernel's norm with m features: a relative variance of m/100
    ({"features_needed": 900.0}, "relative variance 9: 10 % error needs 900 features"),
    ({"features_needed": 900.0, "attention_tv": 0.8}, "relative variance 9: no affordable "
     "number of random features beats uniform attention here"),
    ({"features_needed": 1e7}, "relative variance 10^5.0: 10 % error needs 10^7.0 features"),
    ({"nonpositive_rows": 3.0}, "3 of 64 rows have no positive sum: their output is 0"),
    ({"attention_tv_most": 0.31}, "draws differ: total variation 0.19 to 0.31"),
    ({"pays_from": 85.0}, "exact attention needs fewer operations up to n = 84"),
    ({"pays_from": math.inf}, None),  # the price says it, below
    ({"multiply_adds": 21.364, "exact_multiply_adds": 10.0},
     "costs 2.14 times exact attention's multiply-adds"),
    ({"reads": 15.0, "exact_reads": 10.0}, "costs 1.5 times exact attention's reads"),
    ({"bytes": 14.0, "exact_bytes": 10.0}, "costs 1.4 times exact attention's memory"),
    ({"bytes": 14.0, "exact_bytes": 10.0, "reads": math.nan, "exact_reads": 1.0},
     "costs 1.4 times exact attention's memory"),
])  # fmt: skip
def test_warnings_have_the_numbers_of_their_row(changes, said):
    x = inputs.gaussian(64, 8, rng=0)
    found = list(caveats.warnings(x, parse("positive(m=8)"), row(**changes), 0.8, None))
    assert found == ([] if said is None else [said])
    if "900" in str(said):  # two columns a frequency: the same error is of half the variance
        twice = caveats.warnings(x, parse("hyperbolic(m=8)"), row(**changes), 0.8, None)
        assert list(twice) == [said.replace("variance 9", "variance 4.5")]
    (eps,) = caveats.warnings(x, parse("positive(m=8)"), row(), 0.8, 1e-6)
    assert eps == "adding eps = 1e-06 after the shift turns this head into uniform attention"


def test_numbers_that_differ_among_heads_are_an_example():
    lost = "{rows} rows have no positive sum"
    rows = [
        {"input": "x", "layer": 0, "head": head, "spec": "mine()", "oracle": False,
         "warnings": [Sentence("costs more"), Sentence(lost, rows=2 * head)]}
        for head in range(2)
    ]  # fmt: skip
    assert diagnosis._warnings(pd.DataFrame(rows), {"mine()": "mine"}) == [
        "    2  costs more: mine 2", "    2  for example, 0 rows have no positive sum: mine 2"
    ]  # fmt: skip


def test_facts_of_a_head_are_those_of_its_scaled_arrays():
    x = inputs.gaussian(24, 4, rng=5)
    found = diagnose(x, budget=6.0, methods=[parse("uniform()")], temperature=2.0).iloc[0]
    for name, points in (("query", x.q), ("key", x.k)):  # √(t·√d) = 2
        norm = np.median(np.linalg.norm(points / 2, axis=1))
        assert found[f"{name}_norm"] == pytest.approx(norm, rel=1e-12)
    facts = statistics.describe(x.at_temperature(2.0))
    assert found[[*facts]].to_dict() == facts


def test_what_theory_says_has_the_numbers_of_its_table():
    words = {"quantity": "what", "bound": "b", "hypothesis": "h", "compared": "c", "source": "s"}
    rows = [
        {"input": "x", "layer": 0, "head": head, "n": 64, "d": 8, "mask": "causal", "epsilon": 0.02,
         "keys": 12, "theory": "rank", "value": 20.0 + head, "number": 3.5, "limit": limit,
         "met": limit > 3.5, "predicted": 40.0 + head, "measured": 1e7} | words
        for head, limit in enumerate([4.5, 2.5, math.nan])
    ]  # fmt: skip
    check(
        theories._text(pd.DataFrame(rows)),
        "x: n = 64, d = 8, mask causal",
        "rank 20 3.5 < 4.5 yes 40 10^7.0",
        "rank 21 3.5 < 2.5 no 41 10^7.0",
        "rank 22 no 42 10^7.0",
        "Medians over 3 heads:",
        "rank 1 of 3 21 41 10^7.0",
        "ε = 0.02, k = 12.",
    )
    many = pd.concat([pd.DataFrame(rows).assign(layer=i) for i in range(3)])
    assert "Of more than 8 heads, --json has each." in theories._text(many)


def test_what_a_target_needs_has_the_numbers_of_its_table():
    specs = {  # of both heads: size, error, price, reached, sure
        "exact()": [(math.nan, 0.0, 64.0, True, True)] * 2,
        "sink_window()": [(8.0, 0.09, 8.0, True, True), (24.0, 0.095, 24.0, True, False)],
        "top_k()": [(4.0, 0.08, 4.0, True, True), (6.0, 0.07, 6.0, True, True)],
        "taylor(degree=2)": [(math.nan, 0.5, 9.0, False, False)] * 2,
    }
    rows = [
        {"input": "x", "layer": 1, "head": head, "n": 64, "l": 64, "d": 8, "temperature": 1.5,
         "mask": "causal", "measured": 16, "metric": "attention_tv", "target": 0.1,
         "currency": "stored", "left_out": [], "method": method, "size": size,
         "spec": method if size != size else method.replace("()", f"(k={size:.0f})"),
         "error": error, "price": price, "share": price / 64, "reached": reached, "sure": sure,
         "oracle": method == "top_k()", "group": 3, "bytes_read": 32 * price,
         "bytes": 32 * price, "bytes_4096": 9e4, "bytes_32768": 9e5, "bytes_131072": 9e6,
         "standing": "bound" * (method == "top_k()"), "runnable": method != "top_k()"}
        for method, both in specs.items()
        for head, (size, error, price, reached, sure) in enumerate(both)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    check(
        targets._text(table),
        "1.0 sink and window 8 0.09 12% top-k of each row 6%",
        "1.1 sink and window 24 about 0.095 38% top-k of each row 9%",
        # cheapest on, reached on, median size, median share of exact attention's price
        "sink and window 2 2 of 2 16 25%",
        "top-k of each row bound 2 of 2 5 8%",
        "exact attention 0 2 of 2 100% exact()",
        "Target attention_tv ≤ 0.1, t = 1.5, mask causal.",
        "On 2 of 2 heads a method that is cheaper than exact attention reaches the target.",
        "run costs a median of 25% of exact attention.",
        "The cheapest reference, which sees all logits, costs a median of 8%.",
        "On 2 heads, 16 of 64 queries were measured.",
        '1.1 --method "sink_window(k=24)"',
        # the mean over both heads of 32 bytes a key: 8 and 24 keys of 64
        "sink and window 512 25% 512 2 of 2 88 879 8,789",
        "If bandwidth is scarce: sink and window. It reads 25% of what exact attention reads",
        "share keys (here 3), after 64 tokens",
    )
    alone = targets._text(table[table.method.isin(["exact()", "top_k()"])])
    check(alone, "1.0 not with less than exact 100% top-k of each row 6%")


def test_budgets_that_buy_everything_and_bounds_near_0(table):
    rich = diagnosis.text(table.assign(budget=64.0, verdict="keep exact"))
    check(rich, "In 2 of 2 heads the budget pays for exact attention, which costs 64 stored val")
    apart = table.assign(exact_price=table["head"] * 8.0 + 48.0, budget=56.0)
    check(diagnosis.text(apart), "which costs 48–56 stored values")
    assert [thousandths(x) for x in (0.0, 3e-7, 4.9e-4, 5e-4, 0.0996)] == [
        "0.000", "3e-07", "5e-04", "0.001", "0.100",
    ]  # fmt: skip
