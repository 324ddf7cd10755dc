"""Engines: the same bits from each, killed workers, inputs that travel once, one thread."""

import contextlib
import dataclasses
import functools
import json
import operator
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from joblib.externals.loky import process_executor
from pandas.testing import assert_frame_equal
from threadpoolctl import threadpool_info, threadpool_limits
from tqdm import tqdm

from analysis.advice.diagnose import Diagnosis, diagnose
from analysis.advice.target import needed
from analysis.errors.metrics import compare
from analysis.inputs import Head, Heads, gaussian
from analysis.runs import engines
from analysis.runs.seeds import seed_sequence
from analysis.runs.tasks import Application, Task
from analysis.runs.threads import in_threads
from analysis.sweeps.store import CellsFailed, SweepStore, read
from analysis.sweeps.sweep import errors, sweep
from approx import parse
from approx.estimate import exact, memory

HERE = Path(__file__).parent
METHODS = [
    parse(s)
    for s in ("positive(m=4)", "scatterbrain(low_rank=positive(m=3), sparse=top_k(k=2))", "zero")
]
GRID = {"trials": 3, "seed": 0}
TEMPERATURES = (0.5, 2.0)


def heads():
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 2, 6, 3))
    return [
        gaussian(9, 3, rng=0),
        Heads("many", q, k, k, mask="causal", ids=((0, 3, "a"), (2, 1, "b"))),
    ]


def pids(client):
    return sorted(client.run(os.getpid).values())


@pytest.fixture(params=["serial", "loky", "dask"])
def engine(request):
    """The options of a sweep that say where its cells run."""
    if request.param == "dask":
        return {"scheduler": request.getfixturevalue("client")}
    return {"jobs": 2} if request.param == "loky" else {}


# What is not computed again


def test_advice_goes_on_where_it_was(tmp_path, monkeypatch):
    methods = [parse("uniform()"), parse("positive()"), parse("top_k()")]  # with warnings
    whole, asked = heads(), {"budget": 4.0, "methods": methods, "trials": 2}
    alone = diagnose(whole, **asked)
    diagnose(whole[1].at(2, 1), **asked, finished=tmp_path)
    (kept,) = tmp_path.iterdir()
    measured, run = [], Diagnosis.run

    def counted(self, shared):
        measured.append((self.head.layer, self.head.head))
        return run(self, shared)

    monkeypatch.setattr(Diagnosis, "run", counted)
    for rows, others in ((None, 2), (np.array([0, 2, 4]), 3), (np.array([1, 3, 5]), 3)):
        found = diagnose(whole, **asked, rows=rows, finished=tmp_path)
        assert len(measured) == others
        measured.clear()
        if rows is None:
            assert_frame_equal(found, alone, check_exact=True)
            assert found.left_out.tolist() == alone.left_out.tolist()
    diagnose(dataclasses.replace(whole[0], q=whole[0].q[::-1]), **asked, finished=tmp_path)
    assert len(measured) == 1
    assert kept.exists()


def test_many_budgets_are_one_table_that_each_gives_alone(tmp_path):
    methods = [parse(s) for s in ("positive", "top_k", "zero")]
    grid = {"budget": (8.0, 12.0), "store": tmp_path}
    found = sweep(methods, heads(), TEMPERATURES, **GRID, **grid)
    assert sorted(found.budget.unique()) == [8.0, 12.0]
    for budget in (8.0, 12.0):
        alone = sweep(methods, heads(), TEMPERATURES, **GRID, budget=budget)
        part = found[found.budget == budget].reset_index(drop=True)
        assert_frame_equal(part, alone, check_exact=True)
    with pytest.raises(ValueError, match=r"budget 8\.0 is given twice"):
        sweep(methods, heads(), TEMPERATURES, **GRID, budget=(8.0, 8.0))


# Big matrices, by stripes


@pytest.mark.parametrize("options", [{}, {"mask": "causal"}, {"rows": 30}])
def test_stripes_add_up_to_the_same_numbers(monkeypatch, options):
    x = gaussian(400, 8, rng=0).at_temperature(0.5)
    estimate = METHODS[1].approximate(x.Q, x.K, mask=options.get("mask"), rng=0)
    monkeypatch.setattr(exact, "STRIPE", 400 * (13 if "rows" in options else 90))
    one = compare(estimate, x.Q, x.K, x.V, **options)
    assert compare(estimate, x.Q, x.K, x.V, **options, jobs=2) == one


def planted():
    raise ValueError


@pytest.mark.parametrize(
    ("stop", "error"),
    [(planted, ValueError), (lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt)],
)
def test_an_error_in_a_thread_waits_for_no_other_item(stop, error):
    done, last = [], 400

    def work(number):
        if number == 1:
            stop()
        time.sleep(0.005)
        done.append(number)

    with pytest.raises(error):
        in_threads(work, range(last), 2)
    assert len(done) < 0.75 * last  # the other thread has half of them


# Killed workers


def dies_once(approximation, inputs):
    """Kill this process, if it is the first to come here, once there is a cell in the store."""
    folder = Path(inputs.name)
    if approximation.rank == 3 and inputs.temperature == 2.0:
        with contextlib.suppress(FileExistsError):
            (folder / "died").mkdir()
            while not list(folder.glob("store/cells/[0-9a-f]*")):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
    return errors(approximation, inputs)


def test_a_killed_loky_worker_costs_only_what_it_was_doing(tmp_path, monkeypatch):
    write, written = SweepStore.put, []

    def noted(self, key, rows):
        write(self, key, rows)
        written.append(key)

    monkeypatch.setattr(SweepStore, "put", noted)
    x = dataclasses.replace(heads()[0], name=str(tmp_path))
    found = sweep(
        METHODS, x, TEMPERATURES, **GRID, measure=dies_once, jobs=2, store=tmp_path / "store"
    )
    assert (tmp_path / "died").exists()
    assert_frame_equal(found, sweep(METHODS, x, TEMPERATURES, **GRID), check_exact=True)
    assert len(written) == len(set(written)) == 7  # what was there was not computed again


def dies_at_first(folder):
    try:
        (folder / "died").mkdir()
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_last_task_that_was_lost_once_runs_again(tmp_path):
    task = Application(dies_at_first, (tmp_path,))
    assert list(engines.stream([task], jobs=2)) == [(task, "done")]


def test_a_task_for_which_no_worker_is_left_runs_again(monkeypatch):
    submit, refused = engines._Processes.submit, []

    def once(self, run, task, asked):
        if not refused:
            refused.append(task)
            raise BrokenProcessPool  # as a pool does whose workers died after the last look at it
        return submit(self, run, task, asked)

    monkeypatch.setattr(engines._Processes, "submit", once)
    assert processes(abs, [-3, 2, -1]) == [3, 2, 1]
    assert len(refused) == 1


def poison(approximation, inputs):
    if approximation.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return errors(approximation, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"jobs": 2}, {"jobs": 2, "scheduler": "local"}], ids=str)
def test_a_cell_that_kills_its_process_is_found_and_the_others_run(tmp_path, how):
    with pytest.raises(CellsFailed, match="3 of 7 cells failed"):
        sweep(METHODS, heads()[0], TEMPERATURES, **GRID, measure=poison, store=tmp_path, **how)
    found = read(tmp_path)
    assert set(found.method) == {"positive(m=4)", "zero()"}
    failed = [json.loads(p.read_text()) for p in (tmp_path / "cells").glob("*.error.json")]
    assert {f["kind"] for f in failed} <= {"TerminatedWorkerError", "KilledWorker", "LostError"}


@pytest.fixture(scope="module")
def survival(tmp_path_factory):
    """What a script says that kills its own sweeps."""
    done = subprocess.run(
        [sys.executable, HERE / "survival.py", tmp_path_factory.mktemp("survival")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_sweep_killed_at_any_moment_of_a_write_ends_as_if_undisturbed(survival):
    found = survival["killed"]
    for kill in found["kills"]:
        assert kill["signal"] == signal.SIGKILL
        assert kill["half"] == kill["again"] == []
    # of the manifest and of a cell half, a cell without its name, a cell and nothing else
    assert [kill["done"] for kill in found["kills"]] == [0, 3, 6, 9, 9]
    assert [kill["temporary"] for kill in found["kills"]] == [1, 1, 1, 0, 1]
    assert found["again"] == []
    assert (found["shards"], found["temporary"], found["same"]) == (found["cells"], 0, True)


def test_two_processes_on_one_store_share_its_cells(survival):
    found = survival["together"]
    assert found["states"] == [0, 0]
    assert found["same"]
    assert found["different"] == found["shards"] == found["cells"]
    assert min(found["shares"]) > 0
    # They meet at a cell only where both are at it; alone, each would write all 32.
    assert sum(found["shares"]) <= 1.5 * found["cells"]
    assert found["temporary"] == 0


ORPHANS = """
import os, pathlib, time
from analysis.runs import engines, tasks

def named(seconds):
    pathlib.Path(f"{os.getpid()}.pid").touch()
    time.sleep(seconds)

engines.results([tasks.Application(named, (60.0,))] * 4, jobs=2)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", ORPHANS], cwd=tmp_path, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(HERE.parents[2])},
    )  # fmt: skip
    workers = []
    for _ in range(600):
        workers = [int(p.stem) for p in tmp_path.glob("*.pid")]
        if len(workers) == 2 or parent.poll() is not None:
            break
        time.sleep(0.1)
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    for _ in range(100):  # they look once a second
        if not any(psutil.pid_exists(pid) for pid in workers):
            break
        time.sleep(0.1)
    assert not [pid for pid in workers if psutil.pid_exists(pid)]


KEPT = []


def grow(megabytes):
    """Hold more memory from now on, as compiled kernels do; return which process does."""
    # loky looks at the memory of a process between two calls, and not more often than this
    process_executor._MEMORY_LEAK_CHECK_DELAY = 0.1
    time.sleep(0.15)
    KEPT.append(np.ones(megabytes * 2**17))
    return os.getpid()


def processes(function, arguments):
    """Return function(argument) of each argument, from two processes."""
    return engines.results([Application(function, (x,)) for x in arguments], jobs=2)


@pytest.mark.filterwarnings("default:A worker stopped")  # an error would stop loky's own thread
def test_a_process_that_grows_goes_on():
    # loky calls 300 MB more than after the first call a leak, ends the process, and warns
    assert len({*processes(grow, [0, 0, 350, 350, 0, 0, 0, 0])}) == 2


def ignored(_):
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_control_c_is_for_the_process_that_was_started():
    # a shell sends it to all of them, and each would print where it was
    assert processes(ignored, range(4)) == [True] * 4
    assert not ignored(0)


def locked(_):
    tqdm(disable=True)
    return type(tqdm.get_lock()).__module__


def test_a_process_that_is_killed_leaves_no_semaphore():
    assert {*processes(locked, range(4))} == {"_thread"}


# The same bits, and from here on a cluster, which is busy also when it waits


def test_engines_give_the_same_table(tmp_path, engine):
    whole = sweep(METHODS, heads(), TEMPERATURES, **GRID)
    for store in (None, tmp_path / "store"):
        found = sweep(METHODS, heads(), TEMPERATURES, **GRID, **engine, store=store)
        assert_frame_equal(found, whole, check_exact=True)
    assert_frame_equal(read(store), whole, check_exact=True)


def test_a_cluster_may_be_given_by_its_address(client):
    found, whole = (
        sweep(METHODS, heads(), [1.0], **GRID, **how)
        for how in ({"scheduler": client.scheduler.address}, {})
    )
    assert_frame_equal(found, whole, check_exact=True)


def test_advice_is_the_same_from_a_cluster(client):
    methods = [parse("uniform()"), parse("positive()")]
    for ask in (
        functools.partial(diagnose, budget=4.0, methods=methods, trials=2),
        functools.partial(needed, target=0.5, methods=methods, trials=2),
    ):
        found, whole = (ask(heads(), scheduler=where) for where in (client, None))
        assert_frame_equal(found, whole, check_exact=True)
        places = found[["layer", "head"]].drop_duplicates()
        assert [*zip(places.layer, places["head"])] == [(-1, -1), (0, 3), (2, 1)]


def test_silence_of_a_cluster_is_told(client, monkeypatch, capsys):
    monkeypatch.setattr(engines, "PATIENCE", 0.1)
    pauses = [Application(time.sleep, (0.4,))] * 2
    assert engines.results(pauses, scheduler=client) == [None, None]
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "no worker has answered for 0.1 s: 2 tasks left, 2 workers"


def test_results_are_in_the_order_of_the_tasks_also_where_they_are_big(engine):
    tasks = [Application(np.full, (2**16, x)) for x in (3, 2, 1)]
    for given in (tasks, iter(tasks)):
        assert [{*one.tolist()} for one in engines.results(given, **engine)] == [{3}, {2}, {1}]
    assert engines.results([], **engine) == []


# What travels


def test_inputs_travel_to_a_cluster_once(client, monkeypatch):
    x, sent = gaussian(9, 3, rng=0), []

    def reduced(self):
        sent.append(self.name)
        return Head, tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    monkeypatch.setattr(Head, "__reduce__", reduced, raising=False)
    found = sweep(METHODS, x, TEMPERATURES, trials=10, seed=0, scheduler=client)
    assert sent == ["gaussian"]
    assert_frame_equal(found, sweep(METHODS, x, TEMPERATURES, trials=10, seed=0), check_exact=True)


@dataclasses.dataclass(frozen=True)
class Given(Task):
    """A task that asks its shared object."""

    ask: Callable[[Any], Any]
    place: int = 0

    def run(self, shared):
        return self.ask(shared)


def test_objects_with_the_same_keys_are_not_mixed_up(engine):
    tasks = [Given(operator.itemgetter("a"), place) for place in (0, 1, 0, 1)]
    assert engines.results(tasks, [{"a": 1}, {"a": 2}], **engine) == [1, 2, 1, 2]


class Changed:
    """An object that cells change, and that takes a while to be sent."""

    def __init__(self, cells=()):
        self.cells = [*cells]

    def __reduce__(self):
        time.sleep(0.2)
        return Changed, (self.cells,)


def change(shared):
    """Return the process, and the cells of others that had changed the object before this one."""
    shared.cells.append(os.getpid())
    time.sleep(0.5)
    return os.getpid(), {*shared.cells} - {os.getpid()}


def test_an_object_that_cells_change_is_copied_before_the_first_cell(client):
    """A model has hooks during a pass, which no other worker may get with it."""
    assert not client.amm.running()  # it would drop a copy before the first cell asks for it
    outcomes = engines.results([Given(change)] * 4, [Changed()], scheduler=client, copied=True)
    assert {pid for pid, _ in outcomes} == {*pids(client)}
    assert not any(others for _, others in outcomes)


def raise_at_3(folder, number):
    """Leave a file, and raise an error or take a while."""
    (folder / str(number)).touch()
    if number == 3:
        raise ZeroDivisionError("as planted")
    time.sleep(0.01)


@pytest.mark.filterwarnings("default:Exception in thread Executor")  # loky's own, at a kill
def test_tasks_are_made_as_there_is_room_and_an_error_ends_a_run_at_once(
    engine, tmp_path, monkeypatch
):
    """It costs another run in this process nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made, folder = [], tmp_path / "made"
    folder.mkdir()

    def tasks():
        for number in range(1000):
            made.append(number)
            yield Application(raise_at_3, (folder, number))

    big = [np.full(2**16, number) for number in range(24)]
    other = engines.stream([Application(np.max, (x,)) for x in big], **engine)
    found = [next(other)]
    with pytest.raises(ZeroDivisionError, match="as planted"):
        engines.results(tasks(), **engine)
    assert len(list(folder.iterdir())) <= len(made) < 100
    found += other
    assert sorted(x for _, x in found) == [*range(24)]
    assert not [*tmp_path.glob("expqk-*")]


def test_what_ends_a_run_on_a_local_cluster_is_said_once(capfd, tmp_path):
    tasks = [Application(raise_at_3, (tmp_path, number)) for number in range(8)]
    with pytest.raises(ZeroDivisionError, match="as planted"):
        engines.results(tasks, scheduler="local", jobs=1)
    assert "".join(capfd.readouterr()) == ""  # Dask logs a traceback in the worker


def where(approximation, inputs):
    """Return whether the arrays are mapped from a file, of how many, and where this runs."""
    arrays = (inputs.q, inputs.k, inputs.v)
    files = {str(a.filename) for a in arrays if isinstance(a, np.memmap)}
    return {"mapped": len(files), "pid": os.getpid(), **{f: 0.0 for f in files}}


def test_loky_maps_inputs_from_one_file():
    found = sweep([parse("positive(m=2)")], gaussian(200, 32, rng=0), [1.0], trials=6, seed=0,
                  measure=where, jobs=2)  # fmt: skip
    assert set(found[found.metric == "mapped"].value) == {3.0}
    assert len(found[~found.metric.isin(["mapped", "pid"])].metric.unique()) == 3
    assert os.getpid() not in set(found[found.metric == "pid"].value)


class Fresh:
    """An object that is sent with an array of its own each time."""

    def __getstate__(self):
        return {"x": np.ones(2**16)}


def total(shared):
    return shared.x.sum()


def test_an_array_that_is_gone_after_it_was_sent_arrives():
    assert engines.results([Given(total)] * 4, [Fresh()], jobs=2) == [2**16] * 4


def blas(approximation, inputs):
    from numba import get_num_threads

    found = [lib["num_threads"] for lib in threadpool_info()]  # OpenMP's too
    return {"blas": max(found), "numba": get_num_threads()}


def test_a_cell_runs_on_one_thread_wherever_it_runs(engine):
    with threadpool_limits(2):
        found = sweep(METHODS, heads(), [1.0], **GRID, measure=blas, **engine)
    assert (found.value == 1).all()


# Errors


def test_the_memory_limit_and_the_version_go_with_the_cells(client, monkeypatch):
    memory.set_limit(20_000)
    with pytest.raises(memory.ResourceLimitError, match=r"the limit is 19\.5 KiB"):
        sweep([parse("truncated_svd(rank=2)")], gaussian(70, 3, rng=0), [1.0], trials=1, seed=0,
              scheduler=client)  # fmt: skip
    memory.set_limit(None)
    monkeypatch.setattr("analysis.runs.tasks.version", lambda *_: "0.0.9")
    with pytest.raises(RuntimeError, match=r"this worker has expqk .*, the caller 0\.0\.9"):
        sweep(METHODS, heads(), [1.0], **GRID, scheduler=client)


@pytest.mark.skipif(sys.platform != "linux", reason="others hide the ports of a process")
def test_the_local_cluster_listens_on_the_loopback_only(client):
    children = psutil.Process().children(recursive=True)
    ports = {
        connection.laddr.ip
        for process in [psutil.Process(), *children]
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert ports == {"127.0.0.1"}
    assert "dashboard" not in str(client.cluster.scheduler.http_application.applications)


def test_without_dask_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install -e '.\[cluster\]'"):
        sweep(METHODS, heads(), [1.0], **GRID, scheduler="local")


def test_a_cluster_that_is_not_there_is_one_error(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "PATIENCE", 0.3)
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
        sweep(METHODS, heads(), [1.0], **GRID, scheduler="tcp://127.0.0.1:9")


# Last, as the cluster has one worker afterwards


def slowly(approximation, inputs):
    time.sleep(0.03)
    return errors(approximation, inputs)


def test_a_killed_dask_worker_costs_only_what_it_held(client, tmp_path, monkeypatch):
    whole = sweep(METHODS, heads(), TEMPERATURES, **GRID, measure=slowly)
    before = pids(client)
    assert len(before) == 2
    assert os.getpid() not in before
    for nanny in client.cluster.workers.values():
        nanny.auto_restart = False  # it would start another worker, which no test needs
    put, written = SweepStore.put, []

    def killing(self, key, rows):
        put(self, key, rows)
        written.append(key)
        if len(written) == 5:
            os.kill(before[0], signal.SIGKILL)

    monkeypatch.setattr(SweepStore, "put", killing)
    found = sweep(
        METHODS, heads(), TEMPERATURES, **GRID, measure=slowly, store=tmp_path, scheduler=client
    )
    assert_frame_equal(found, whole, check_exact=True)
    assert_frame_equal(read(tmp_path), whole, check_exact=True)


def test_every_piece_of_work_has_a_seed_of_its_own():
    seeds = [seed_sequence(0, "a", 1), seed_sequence(0, "a", 2), seed_sequence(1, "a", 1)]
    assert len({tuple(seed.generate_state(4)) for seed in seeds}) == 3
    # as in any other process
    known = [617499486, 3532573581, 1364029677, 180627191]
    assert seeds[0].generate_state(4).tolist() == known
    with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
        seed_sequence(-1, "a")
