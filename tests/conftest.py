"""Settings for every test: Numba's cache, Hypothesis, the memory limit; the command line."""

import fcntl
import functools
import hashlib
import os
import pickle
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHARED = b"".join(
    (ROOT / "approx" / "kernels" / f"{n}.py").read_bytes()
    for n in ("elementary", "jit", "compiler")
)
CACHE = ROOT / ".cache" / f"numba-{hashlib.sha256(SHARED).hexdigest()[:12]}"
os.environ.setdefault("NUMBA_CACHE_DIR", str(CACHE))  # before Numba is imported

import hypothesis.core  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from approx.estimate import memory  # noqa: E402

collect_ignore = ["mutation.py"]  # which needs cosmic-ray, and only `make mutants` has it
settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("fuzz", deadline=None, max_examples=50, print_blob=True)
settings.register_profile("study", deadline=None, derandomize=True, max_examples=250)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
# Of each parameter of a test Hypothesis would read, and split into tokens, the same source again.
hypothesis.core.function_digest = functools.cache(hypothesis.core.function_digest)


@pytest.fixture(scope="session")
def ledger(tmp_path_factory):
    """Return every claim, judged once, also where two processes run the tests."""
    from analysis import claims

    folder = tmp_path_factory.getbasetemp()
    file = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "ledger"
    with file.open("a+b") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        if not (held := shared.read()):
            held = pickle.dumps(claims.check())
            shared.write(held)
    return pickle.loads(held)


@pytest.fixture(scope="module")
def client():
    """A real scheduler and two worker processes, on the loopback."""
    pytest.importorskip("distributed")
    from analysis.runs import engines

    with engines.client("local", 2) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _default_memory_limit():
    yield
    memory.set_limit(None)


@pytest.fixture(autouse=True, scope="module")
def _one_thread(request):
    # Two BLAS threads on a busy machine make small decompositions 20 times slower.
    with threadpool_limits(1 if {"low_rank", "ranks"} & {*request.path.parts} else None):
        yield


@pytest.fixture
def printed(capsys):
    """Return what runs a command, which must succeed, and returns what it prints."""

    from figures.command.cli import main

    def run(*arguments):
        capsys.readouterr()
        assert main([str(a) for a in arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """Return what runs a command that is refused, and returns why: one line, and no output."""

    from figures.command.cli import main

    def run(*arguments, status=1):
        capsys.readouterr()
        try:
            found = main([str(a) for a in arguments])
        except SystemExit as stop:
            found = stop.code
        out, said = capsys.readouterr()
        assert (found, out, said.count("\n"), said[:5]) == (status, "", 1, "expqk"), said
        return said

    return run
