"""One test for many cases: what pytest does around a test takes longer than most of them."""

import functools
import inspect
import reprlib


def each(names, cases, ids=None):
    """Run a test for each case, as `pytest.mark.parametrize` would, within one test.

    It fails with every case that fails, each with a note that says which one it is. Fixtures are
    shared by all of them: a test that patches something undoes it itself.
    """
    names = names.replace(" ", "").split(",") if isinstance(names, str) else names
    given = list(cases)
    rows = given if len(names) > 1 else [(value,) for value in given]
    labels = [str(label) for label in ids] if ids is not None else map(reprlib.repr, given)
    labelled = list(zip(labels, rows, strict=True))
    assert labelled, "a test without cases passes"

    def decorate(test):
        @functools.wraps(test)
        def looped(**fixtures):
            failed = []
            for label, row in labelled:
                try:
                    test(**fixtures, **dict(zip(names, row, strict=True)))
                except Exception as error:
                    error.add_note(f"the case of {', '.join(names)}: {label}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(labelled)} cases", failed)

        signature = inspect.signature(test)
        fixtures = [p for name, p in signature.parameters.items() if name not in names]
        assert len(fixtures) == len(signature.parameters) - len(names)
        looped.__signature__ = signature.replace(parameters=fixtures)
        return looped

    return decorate
