"""An installed wheel, files as users name them, and commands as a shell runs them."""

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import terminal
from numba.core.caching import _CacheLocator

from acceptance import pages
from acceptance.pages import FOLDER, HEADS, ROOT, TENSORS

PYTHON = Path(sys.executable).parent
SWEEP = f"""
trials = 1
temperatures = [1.0]
budgets = [16.0]
methods = ["uniform", "positive", "top_k"]
[[inputs]]
kind = "file"
path = "{HEADS}"
heads = ["0.3"]
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return where a wheel of the tree is installed, outside of the tree, for all processes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = shared / "site"
        if not folder.exists():
            _install(folder, shared / "wheel")
    return folder


def _install(folder, dist):
    quiet = {"check": True, "capture_output": True, "cwd": ROOT}
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist], **quiet)
    (wheel,) = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    subprocess.run([*pip, "--no-deps", "--no-compile", "--target", folder, wheel], **quiet)
    # Numba finds what is compiled for the tree: the files are the same, and get the same times.
    cache = Path(os.environ["NUMBA_CACHE_DIR"])
    for package in ("approx", "analysis"):
        for source in folder.joinpath(package).rglob("*.py"):
            ours = ROOT / source.relative_to(folder)
            shutil.copystat(ours, source)
            at = [cache / _CacheLocator.get_suitable_cache_subpath(str(x)) for x in (ours, source)]
            at[0].mkdir(parents=True, exist_ok=True)
            if not at[1].is_symlink():
                at[1].symlink_to(at[0].name)


def pytest_sessionfinish(session):
    """Take the links of `_install` away, once all processes are done."""
    if not hasattr(session.config, "workerinput"):
        for link in filter(Path.is_symlink, Path(os.environ["NUMBA_CACHE_DIR"]).glob("*")):
            link.unlink()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Return a folder with heads as users have them, in the three forms that are read."""
    from safetensors.numpy import save_file

    folder, draw = tmp_path_factory.mktemp("files"), np.random.default_rng(0).normal

    def heads(queries, keys, n, d):
        sizes = {"q": queries, "k": keys, "v": keys}
        return {name: np.float32(draw(size=(*size, n, d))) for name, size in sizes.items()}

    np.savez(folder / HEADS, **heads((2, 6), (2, 2), 40, 8), causal=1)
    save_file(heads((1, 4), (1, 2), 24, 8) | {"causal": np.ones(1)}, folder / TENSORS)
    page = (ROOT / "docs/tutorials/adding_a_method.md").read_text("utf-8")
    method, test = (next(code for _, code in pages.blocks(page) if word in code)
                    for word in ("class MyFeatures", "def test_my_features"))  # fmt: skip
    (folder / "my_method.py").write_text(method, "utf-8")  # as the page calls it
    (folder / "test_my_method.py").write_text(test, "utf-8")
    (folder / FOLDER).mkdir()
    for name, array in heads((), (), 24, 8).items():
        np.save(folder / FOLDER / f"{name}.npy", array)
    return folder


@pytest.fixture
def shell(site, files, tmp_path):
    """Return what runs a command in a folder with the files of `files`, and that folder."""
    folder = tmp_path / "my work (最终)"
    folder.mkdir()
    for file in files.iterdir():
        (folder / file.name).symlink_to(file)
    for name in ("analysis/data", "figures/configs"):  # as pages name them in a clone
        (folder / name).parent.mkdir(parents=True)
        (folder / name).symlink_to(ROOT / name)
    (folder / "my sweep (最终).toml").write_text(SWEEP, "utf-8")
    path = os.pathsep.join([str(site / "bin"), str(PYTHON), os.environ["PATH"]])
    env = {"PYTHONPATH": str(site), "PATH": path}
    run = functools.partial(terminal.run, folder=folder, env=env)
    run.folder = folder
    return run
