"""One choice per head: the least sum of damages at an average price, or the least price for it.

The *curve* of a head lists its options: methods at some sizes, each with a price and a damage. The
best choice for all heads at a price is a knapsack problem with one item per head. Its Lagrange
multiplier λ, the damage saved per unit of price, solves it up to one head.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from approx import checks
from approx.checks import Array

HEAD = ["layer", "head"]


class Allocation(NamedTuple):
    """A choice of one row of its curve for each head.

    Attributes
    ----------
    chosen : DataFrame
        The chosen rows of the curves, one per head, in the order of the heads.
    price : float
        Their mean price; for `allocate` at most the budget.
    damage : float
        The sum of their damages; for `cheapest` at most the allowed damage.
    least : float
        A lower bound by duality, which holds for mixtures, too. For `allocate` it bounds the sum of
        damages of every choice at this budget, by Σ_h min (damage + λ price) − λ·heads·budget. For
        `cheapest` it bounds the mean price of every choice with at most this damage.
    multiplier : float
        λ. For `allocate`, the damage that one more unit of price saves; for `cheapest`, the mean
        price that one more unit of damage saves. It is 0 if no head can use more.
    """

    chosen: pd.DataFrame
    price: float
    damage: float
    least: float
    multiplier: float


def allocate(curves: pd.DataFrame, budget: float) -> Allocation:
    """Return the choice of one row per head with the least sum of damages at a mean price.

    min Σ_h damage_h  subject to  Σ_h price_h ≤ budget·heads, one row of its curve for each head h.

    Parameters
    ----------
    curves : DataFrame
        Columns ``layer``, ``head``, ``price``, ``damage`` and any others. Prices and damages are
        finite and ≥ 0.
    budget : float
        The mean price per head.

    Raises
    ------
    ValueError
        The table lacks a column or a number, or the cheapest rows cost more than the budget.

    Notes
    -----
    Each head begins with its cheapest row and moves along the lower convex hull of its points
    (price, damage). Steps of all hulls are taken in the order of damage saved per unit of price,
    while the budget lasts. The slope of the first step that does not fit is λ; later steps that fit
    are taken, too. A row off the hull solves no Lagrangian problem. The sum exceeds the optimum by
    at most the damage of one step; ``least`` bounds the gap. Cost: a sort of the rows.

    References
    ----------
    .. [1] H. Everett, "Generalized Lagrange multiplier method for solving problems of optimum
       allocation of resources", Operations Research 11, 1963, theorem 1.

    Examples
    --------
    >>> curves = pd.DataFrame({"layer": 0, "head": [0, 0, 1, 1], "price": [1.0, 3.0, 1.0, 3.0],
    ...                        "damage": [5.0, 1.0, 2.0, 1.0]})
    >>> allocate(curves, 2.0).chosen.price.tolist()
    [3.0, 1.0]
    """
    budget = checks.positive("budget", budget)
    numbers = _numbers(curves)
    at = [np.asarray(index) for index in curves.groupby(HEAD).indices.values()]
    hulls = [rows[hull(*numbers[rows].T)] for rows in at]
    place = np.zeros(len(hulls), int)
    left = budget * len(hulls) - sum(numbers[rows[0], 0] for rows in hulls)
    if left < -1e-9 * budget * len(hulls):
        least = budget - left / len(hulls)
        raise ValueError(f"the cheapest choice costs {least:g} per head: raise the budget")
    steps = []
    for head, rows in enumerate(hulls):
        price, damage = numbers[rows].T
        slopes = -np.diff(damage) / np.diff(price)
        steps += [
            (-slope, head, i, cost) for i, (slope, cost) in enumerate(zip(slopes, np.diff(price)))
        ]
    multiplier = 0.0
    for slope, head, i, cost in sorted(steps):
        if place[head] == i and cost <= left * (1 + 1e-12):
            place[head] += 1
            left -= cost
        else:
            multiplier = multiplier or -slope
    chosen = np.array([rows[i] for rows, i in zip(hulls, place)])
    relaxed = sum(float((numbers[rows] @ [multiplier, 1.0]).min()) for rows in hulls)
    return Allocation(
        curves.iloc[chosen],
        float(numbers[chosen, 0].mean()),
        float(numbers[chosen, 1].sum()),
        relaxed - multiplier * budget * len(hulls),
        multiplier,
    )


def cheapest(curves: pd.DataFrame, damage: float) -> Allocation:
    """Return the choice of one row per head with the least mean price at a sum of damages.

    min Σ_h price_h/heads  subject to  Σ_h damage_h ≤ damage, one row of its curve for each head h.

    Raises
    ------
    ValueError
        The table lacks a column or a number, or no choice has at most this damage.

    Notes
    -----
    This is the problem of `allocate` with price and damage exchanged. The mean price exceeds the
    optimum by at most one step of one head; ``least`` bounds the gap.

    Examples
    --------
    >>> curves = pd.DataFrame({"layer": 0, "head": [0, 0, 1, 1], "price": [1.0, 3.0, 1.0, 3.0],
    ...                        "damage": [5.0, 1.0, 2.0, 1.0]})
    >>> cheapest(curves, 3.0).chosen.price.tolist()
    [3.0, 1.0]
    """
    damage = checks.positive("damage", damage)
    _numbers(curves)
    best = curves.groupby(HEAD).damage.min()
    if best.sum() > damage * (1 + 1e-9):
        raise ValueError(f"no choice has less damage than {best.sum():g}: allow more")
    heads, exchanged = len(best), {"price": "damage", "damage": "price"}
    found = allocate(curves.rename(columns=exchanged), damage / heads)
    return Allocation(
        found.chosen.rename(columns=exchanged),
        found.damage / heads,
        found.price * heads,
        found.least / heads,
        found.multiplier / heads,
    )


def single(curves: pd.DataFrame, budget: float) -> Allocation | None:
    """Return the one method for all heads with the least predicted damage at a price.

    Returns
    -------
    Allocation or None
        ``least`` and ``multiplier`` are 0. None if no method in all curves is cheap enough.

    Examples
    --------
    >>> curves = pd.DataFrame({"layer": 0, "head": [0, 0, 1, 1], "price": [1.0, 3.0, 1.0, 3.0],
    ...                        "damage": [5.0, 1.0, 2.0, 1.0], "method": ["a", "b", "a", "b"]})
    >>> single(curves, 2.0).damage
    7.0
    """
    heads = len(curves.drop_duplicates(HEAD))
    each = curves.groupby("method", sort=False).agg(
        heads=("price", "size"), price=("price", "mean"), damage=("damage", "sum")
    )
    each = each[(each["heads"] == heads) & (each["price"] <= budget * (1 + 1e-12))]
    if not len(each):
        return None
    best = str(each["damage"].idxmin())
    chosen = curves[curves.method == best]
    return Allocation(
        chosen, float(chosen.price.mean()), float(chosen.damage.sum()), least=0.0, multiplier=0.0
    )


def undominated(table: pd.DataFrame, price: str = "bytes_read", damage: str = "kl") -> pd.DataFrame:
    """Return the rows that nothing cheaper beats, cheapest first.

    A row stays unless another has no larger price and no larger damage, and one of them smaller.
    So rows with equal price and equal damage stay together. Rows with an unknown number go.

    Examples
    --------
    >>> table = pd.DataFrame({"method": list("abcd"), "bytes_read": [4, 2, 2, 3],
    ...                       "kl": [0.1, 0.5, 0.5, 0.6]})
    >>> undominated(table).method.tolist()
    ['b', 'c', 'a']
    """
    found = table.dropna(subset=[price, damage]).sort_values([price, damage], kind="stable")
    least = found.groupby(price)[damage].min()
    cheaper = least.cummin().shift(fill_value=np.inf)
    of_row = found[price].map(least), found[price].map(cheaper)
    return found[(found[damage] == of_row[0]) & (found[damage] < of_row[1])]


def hull(price: Array, damage: Array) -> Array:
    """Return the rows on the lower convex hull, from the cheapest, as long as damage falls.

    Examples
    --------
    >>> hull(np.array([1.0, 2.0, 3.0, 4.0]), np.array([9.0, 8.0, 1.0, 2.0]))
    array([0, 2])
    """
    kept: list[int] = []
    for i in np.lexsort((damage, price)):
        if kept and damage[i] >= damage[kept[-1]]:
            continue
        while len(kept) > 1 and _above(price, damage, kept[-2], kept[-1], i):
            kept.pop()
        kept.append(int(i))
    return np.array(kept)


def _numbers(curves: pd.DataFrame) -> Array:
    """Return prices and damages, (rows, 2); raise ValueError unless finite and ≥ 0."""
    checks.instance("curves", curves, pd.DataFrame, "a table")
    if missing := {*HEAD, "price", "damage"} - set(curves.columns):
        raise ValueError(f"curves must have the columns {', '.join(sorted(missing))}")
    numbers = curves[["price", "damage"]].to_numpy(float)
    if not len(curves) or not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise ValueError("curves must have rows, whose price and damage are finite and >= 0")
    return numbers


def _above(price: Array, damage: Array, a: int, b: int, c: int) -> bool:
    """Return whether point b is on or above the line from a to c."""
    return bool(
        (damage[b] - damage[a]) * (price[c] - price[a])
        >= (damage[c] - damage[a]) * (price[b] - price[a])
    )
