"""Screening: what 64 queries leave out could not have won, and says so."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from analysis import inputs
from analysis.advice import diagnose as advising
from analysis.advice.diagnose import cannot_win, diagnose, dry_run, winners
from analysis.advice.measurement import FEW, WORTH, HeadSample
from analysis.advice.target import needed
from analysis.costs import candidates
from analysis.costs.candidates import TRIVIAL
from approx import parse
from studies.lm import screening

ANSWER = ["spec", "attention_tv", "verdict", "stored", "bound", "certificate"]


@pytest.fixture(scope="module")
def head():
    return inputs.sample("smollm2").at(0, 0).first(WORTH * FEW)


@pytest.fixture(scope="module")
def table(head):
    return diagnose(head, budget=16.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.2)), min_size=1, max_size=6))
def test_the_two_best_and_what_ties_with_them_are_never_left_out(pairs):
    errors, stderrs = np.array(pairs).T
    z = 3.719016485455709  # the quantile of N(0, 1) that 1e-4 is above
    second = sorted(range(len(errors)), key=lambda i: errors[i])[:2][-1]
    expected = [
        e - 1.05 * errors[second] > z * math.sqrt(s * s + (1.05 * stderrs[second]) ** 2)
        for e, s in pairs
    ]
    assert cannot_win(errors, stderrs).tolist() == expected
    assert sum(expected) <= max(len(errors) - 2, 0)


def test_answers_are_those_of_all_queries(head, table):
    plain = diagnose(head, budget=16.0, screen=False)
    assert table.spec.tolist() == plain.spec.tolist()
    assert 0 < table.screened.sum() < len(table)
    assert not plain.screened.any()
    pd.testing.assert_frame_equal(*(one.loc[one.winner, ANSWER] for one in (table, plain)))
    whole = ~table.screened
    assert table[whole].attention_tv.tolist() == plain[whole].attention_tv.tolist()
    assert whole[plain.output_relative_error.argmin()]
    z = (table.attention_tv - plain.attention_tv)[~whole] / table.attention_tv_stderr[~whole]
    assert (z.abs() < 5).all()


def test_uniform_attention_few_queries_and_named_methods_are_measured_whole(head):
    assert not diagnose(head.first(WORTH * FEW - 1), budget=16.0, trials=1).screened.any()
    named = [parse(spec) for spec in (TRIVIAL, "sliding_window()", "sink_window()")]
    assert not diagnose(head, budget=16.0, methods=named).screened.any()
    table = diagnose(inputs.sample("smollm2").at(17, 4).first(WORTH * FEW), budget=8.0, trials=1)
    assert table.screened.any()
    assert not table[table.spec == TRIVIAL].screened.any()


def test_references_are_measured_on_request_and_whole(head, table, monkeypatch):
    monkeypatch.setattr(candidates, "REFERENCES", ("top_k()", "columns()"))
    assert not table.oracle.any()
    assert table["expected_kernel_relative_frobenius"].isna().any()
    beside = diagnose(head, budget=16.0, trials=1, references=True)
    assert beside[beside.oracle]["class"].tolist() == ["entries", "columns"]
    assert not beside.screened.any()  # of which bounds of a class are the least
    twice = diagnose(head.first(32), budget=4.0, methods=[parse("top_k(k=4)")] * 2, trials=1)
    assert twice.winner.sum() == 0
    assert len(twice) == 1
    dry_run(head, budget=270.0, methods=[parse("top_k(k=256)")])
    assert beside.spec[: len(table)].tolist() == table.spec.tolist()
    reached = needed(head.first(32), 0.3, trials=1)
    assert not reached.oracle.any()
    assert needed(head.first(32), 0.3, trials=1, references=True).oracle.any()


def test_a_choice_of_queries_misleads_no_more_often_than_is_said(head, monkeypatch):
    """Errors of real rows; the probability is raised until it can be counted."""
    picks = HeadSample.from_rows(head, None).few(0).picked
    assert len({*picks}) == FEW
    assert picks.max() > head.n * 3 / 4  # from all of them, not the first ones
    for probability in (0.1, 0.01):
        monkeypatch.setattr(advising, "WRONG", probability)
        asked, wrong = screening.chance(head, keys=16.0, repeats=400)
        spread = 5 * math.sqrt(asked * probability * (1 - probability))
        assert wrong <= asked * probability + spread


def test_winners_are_those_of_the_advice(head, table):
    first = winners([head, head.first(40)], budget=16.0, temperatures=[1.0, 2.0])
    assert first.temperature.tolist() == [1.0, 2.0, 1.0, 2.0]
    assert first.n.tolist() == [head.n, head.n, 40, 40]
    best = table[table.winner].iloc[0]
    assert (first.winner[0], first.attention_tv[0]) == (best.spec, best.attention_tv)
    assert first.uniform_attention_tv[0] == table[table.spec == TRIVIAL].attention_tv.iloc[0]
    assert winners(head, budget=16.0, temperatures=[]).empty


def test_a_search_that_begins_with_few_queries_measures_fewer_sizes(head, monkeypatch):
    methods = [parse("sink_window()"), parse("columns(by='h2o', recent=4)")]
    guided = needed(head, 0.2, methods=methods)
    monkeypatch.setattr(HeadSample, "few", lambda self, seed: None)
    plain = needed(head, 0.2, methods=methods)
    assert guided.spec.tolist() == plain.spec.tolist()
    assert guided.sizes.sum() < plain.sizes.sum()
