"""The accuracy of numeric functions: a table, `docs/accuracy.md`, by `make accuracy`.

A case of `cases` is a function, its exact value in fifty digits and arguments. The docstring of the
function promises the largest error, which `measure.promise` reads.
"""
