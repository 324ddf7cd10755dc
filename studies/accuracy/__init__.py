"""The accuracy of every public numeric function: a table, `docs/accuracy.md`, by `make accuracy`.

A case of `measured` yields points of a function: the returned value, the exact value in many
digits, and the sensitivity of the exact value to relative changes of each input. The docstring of
the function states the bound, which `promise` reads. `public` lists the measured functions, and the
others with a reason; `digits` counts the printed digits that survive other roundings.
"""
