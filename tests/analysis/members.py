"""A small member of every registered method."""

import numpy as np

from approx import METHODS, parse

# Sized by default, and larger than the matrices here
TEMPLATES = {
    "scatterbrain": "scatterbrain(low_rank=positive(), sparse=top_k())",
    "centered": "centered(positive())",
}


def member(name, n, l, d):
    """Return a member that stores less than the n × l matrix, where there is one."""
    template = parse(TEMPLATES.get(name, name))
    budgets = 0.7 * l * 2.0 ** np.arange(8)  # values a row; the least that holds a member
    filled = (template.within(b, n=n, l=l, d=d) for b in budgets)
    return next(filter(None, filled), METHODS[name]())  # or it chooses its own size
