"""How accurate every public numeric function is: one table, `docs/accuracy.md`, by `make accuracy`.

A case of `measured` gives points of a function: what it returned, the truth in many digits, and
how far that truth moves where each input is moved by itself times a small number. The bound that
holds stands in the docstring of the function, where `promise` reads it. `public` lists what is
measured, and what is not, with the reason; `digits` counts which printed digits survive.
"""
