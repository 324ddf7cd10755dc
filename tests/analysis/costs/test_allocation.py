"""The allocation of a budget to heads, against every choice there is."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from refusals import refuses

from analysis.costs.allocation import allocate, cheapest, hull, undominated


def curves(seed, heads, sizes):
    rng = np.random.default_rng(seed)
    count = heads * sizes
    head = np.repeat(np.arange(heads), sizes)
    table = pd.DataFrame({"layer": head // 2, "head": head % 2})
    table["price"] = rng.integers(1, 9, count).astype(float)
    return table.assign(damage=rng.integers(0, 20, count) / 4, method=np.arange(count))


def every(table):
    """Yield mean price and sum of damages of every choice."""
    parts = [part[["price", "damage"]].to_numpy() for _, part in table.groupby(["layer", "head"])]
    for choice in itertools.product(*parts):
        price, damage = np.sum(choice, axis=0)
        yield price / len(parts), damage


@pytest.mark.parametrize(("find", "limited", "sought", "text"), [
    (allocate, "price", "damage", "raise the budget"),
    (cheapest, "damage", "price", "no choice has less damage than"),
])  # fmt: skip
@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4), st.integers(1, 40))
def test_against_every_choice(find, limited, sought, text, seed, heads, sizes, quarters):
    table, limit = curves(seed, heads, sizes), quarters / 4
    choices = [dict(zip(("price", "damage"), choice)) for choice in every(table)]
    possible = [choice[sought] for choice in choices if choice[limited] <= limit]
    if not possible:
        refuses(text, find, table, limit)
        return
    found = find(table, limit)
    assert len(found.chosen) == heads == len(found.chosen.groupby(["layer", "head"]))
    assert list(found.chosen.columns) == list(table.columns)
    assert getattr(found, limited) <= limit * (1 + 1e-12)
    assert found.price == pytest.approx(found.chosen.price.mean())
    assert found.damage == pytest.approx(found.chosen.damage.sum())
    best, reached = min(possible), getattr(found, sought)
    assert found.least <= best + 1e-9 <= reached + 2e-9
    # at most one step of one head is lost, of a hull's damage or of a mean of prices
    largest = table.groupby(["layer", "head"])[sought].agg(np.ptp).max()
    assert reached <= best + largest / (1 if sought == "damage" else heads) + 1e-9


@pytest.mark.parametrize("multiplier", [0.1, 0.35, 0.7, 1.3])
def test_prices_at_which_the_lagrangian_is_exact(multiplier):
    """What minimises damage + λ price is the best choice at its own price."""
    table = curves(3, 4, 5)
    cost = (table.damage + multiplier * table.price).rename("cost")
    choice = table.loc[cost.groupby([table.layer, table["head"]]).idxmin()]
    found = allocate(table, choice.price.mean())
    assert found.damage == pytest.approx(choice.damage.sum(), abs=1e-12)
    assert found.least == pytest.approx(found.damage, abs=1e-9)
    assert found.damage == min(d for price, d in every(table) if price <= choice.price.mean())


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_the_hull_is_what_some_multiplier_chooses(seed, count):
    rng = np.random.default_rng(seed)
    price, damage = rng.integers(1, 9, count) * 1.0, rng.integers(0, 9, count) * 1.0
    rows = hull(price, damage)
    assert (np.diff(price[rows]) > 0).all()
    assert (np.diff(damage[rows]) < 0).all()
    for multiplier in np.linspace(0, 9, 37):
        least = (damage + multiplier * price).min()
        assert (damage[rows] + multiplier * price[rows]).min() == pytest.approx(least)
    slopes = np.diff(damage[rows]) / np.diff(price[rows])
    assert (np.diff(slopes) > 0).all()


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_what_is_undominated_is_beaten_by_no_row(seed, count):
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 4, (count, 2)) * 1.0
    points[rng.random(points.shape) < 0.1] = np.nan
    table = pd.DataFrame(points, columns=["bytes_read", "kl"])
    want = [
        i
        for i, x in enumerate(points)
        if not np.isnan(x).any()
        and not any((y <= x).all() and (y < x).any() for y in points if not np.isnan(y).any())
    ]
    found = undominated(table)
    assert sorted(found.index) == want
    assert found.bytes_read.is_monotonic_increasing


def test_what_is_no_curve():
    table = curves(0, 2, 2)
    refuses("must have the columns price", allocate, table.drop(columns="price"), 3.0)
    refuses("finite and >= 0", allocate, table.assign(damage=np.nan), 3.0)
    refuses("must have rows", allocate, table[:0], 3.0)
    refuses("must have the columns layer", cheapest, table.drop(columns="layer"), 3.0)
    refuses("damage must be", cheapest, table, 0.0)


def test_the_steps_that_save_most_come_first_wherever_their_heads_are():
    damage = [2.0, 1.0, 5.0, 1.0, 4.0, 2.0]
    table = pd.DataFrame({"layer": [0, 0, 1, 1, 2, 2], "head": 0, "damage": damage})
    table["price"] = [1.0, 3.0] * 3
    assert allocate(table, 5 / 3).damage == 2 + 1 + 4
    assert allocate(table, 7 / 3).damage == 2 + 1 + 2
