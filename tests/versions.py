"""The suite on other versions and processors, and the built package used outside this repository.

``make versions``, or ``python tests/versions.py [NAME …]`` with some of: least, the lowest versions
that pyproject.toml declares; 3.12, 3.13, …, a Python of that version, found on the PATH as
python3.12 or named by $PYTHONS, with the newest packages; package, a wheel and an sdist. Versions
run the fast part of the suite. Environments are made in .versions, and kept. ``make processors``:
Nehalem, …, the whole suite with the code that OpenBLAS, NumPy, Numba and glibc choose on an older
processor. What cannot be had or run here is said, and is no failure.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".versions"
PYTHONS = ("3.12", "3.13", "3.14")
EXTRAS = ("report", "qk", "cluster", "sklearn")
TESTS = ("pytest", "hypothesis", "mpmath", "pytest-xdist")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# By OpenBLAS's name: a feature without which its code cannot run, the features of NumPy's code that
# it lacks, and how Numba and glibc are told.
AVX2 = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
PLAIN = {"NUMBA_CPU_NAME": "generic", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}
PROCESSORS = {
    "Nehalem": ("SSE42", ".", PLAIN),
    "Haswell": ("AVX2", "512|V4", AVX2),
    "Zen": ("AVX2", "512|V4", AVX2),
    "SkylakeX": ("AVX512F", "ICL|SPR", {}),
}
QUICK = "-q", "-n", "0", "-p", "no:cacheprovider"


def requirements() -> list[str]:
    """Return what the package and its tests ask for."""
    extras = PROJECT["optional-dependencies"]
    asked = [line for line in extras["test"] if re.match(r"[\w-]+", line)[0] in TESTS]
    return [*PROJECT["dependencies"], *(line for name in EXTRAS for line in extras[name]), *asked]


def least() -> list[str]:
    """Return the same with each lower bound as the version: numpy>=2.1 as numpy==2.1.*."""
    found = []
    for line in requirements():
        name, version = re.match(r"([\w.-]+)>=([\d.]+)", line).groups()
        found.append(f"{name}=={version}" + ".*" * (version.count(".") < 2))
    return found


def interpreter(version: str) -> str | None:
    """Return a Python of a version, such as 3.12."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    named = os.environ.get("PYTHONS", "").split()
    for path in [*named, shutil.which(f"python{version}") or ""]:
        if path:
            done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
            if done.stdout.strip() == version:
                return path
    return None


def call(*command: str | Path, **options) -> subprocess.CompletedProcess:
    """Run a command; what it printed is shown where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:])
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    return done


def environment(name: str, python: str, packages: list[str]) -> Path:
    """Return the Python of an environment with these packages; it is made where it is not there."""
    folder = ENVIRONMENTS / name
    own = folder / "bin" / "python"
    call(python, "-m", "venv", "--without-pip", folder)  # the pip of this Python serves them all
    install = sys.executable, "-m", "pip", "--python", own, "install", "--quiet"
    call(*install, *packages)
    call(*install, "--no-deps", "--editable", ROOT)
    return own


def alone(name: str) -> dict[str, str]:
    """Return the variables of one thread, with a cache of Numba's that nothing else uses."""
    cache = os.environ.get("NUMBA_CACHE_DIR", str(ENVIRONMENTS / "numba"))
    return os.environ | {"OPENBLAS_NUM_THREADS": "1", "NUMBA_CACHE_DIR": f"{cache}-{name}"}


def fast(name: str, python: Path) -> None:
    """Run every doctest, and the small tests that reach every line of every kernel, compiled."""
    kernels = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "mark.kernel" in path.read_text("utf-8")
    ]
    said = []
    for tests in (["approx", "analysis", "figures"], ["-m", "kernel", *kernels]):
        done = call(python, "-m", "pytest", *QUICK, *tests, cwd=ROOT, env=alone(name))
        said.append(re.search(r"\d+ passed", done.stdout)[0])
    code = (
        "import platform; from importlib.metadata import version as v; print(platform."
        "python_version(), *(f'{n} {v(n)}' for n in ('numpy', 'scipy', 'numba', 'pandas', "
        "'matplotlib')), sep=', ')"
    )
    versions = call(python, "-c", code).stdout.strip()
    print(f"{name}: Python {versions}: doctests {said[0]}; kernels {said[1]}", flush=True)


def processor(name: str) -> None:
    """Run the whole suite as on another processor, and say which tests fail."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__ as has

    needed, lacks, own = PROCESSORS[name]
    if not has.get(needed):
        return print(f"{name}: this processor has no {needed}: not checked")
    off = [x for x in __cpu_dispatch__ if re.search(lacks, x) and has[x]]  # of others it warns
    own = {"OPENBLAS_CORETYPE": name, "NPY_DISABLE_CPU_FEATURES": " ".join(off), **own}
    env = alone(name) | own
    code = "import numpy, threadpoolctl as t; print(t.threadpool_info()[0].get('architecture'))"
    kernels = call(sys.executable, "-c", code, env=env).stdout.strip()
    command = sys.executable, "-m", "pytest", *QUICK, "-n", "2", "--dist", "loadfile"
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in own.items())
    print(f"{name}: OpenBLAS for {kernels}, {variables}: {lines[-1]}", flush=True)
    if done.returncode:
        raise SystemExit("\n".join(x for x in lines if x.startswith(("FAILED ", "ERROR "))))


def files_of(path: Path) -> set[str]:
    """Return the files of a wheel, those of its own about the build apart."""
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def package(python: str) -> None:
    """Build a wheel and an sdist of the same files, and use the wheel in a bare environment."""
    with tempfile.TemporaryDirectory(prefix="expqk-") as name:
        folder = Path(name)
        build, tree = folder / "build", folder / "tree"
        call(python, "-m", "venv", "--without-pip", build)
        pip = (sys.executable, "-m", "pip")
        call(*pip, "--python", build / "bin/python", "install", "--quiet", "hatchling")
        listed = call("git", "ls-files", "-z", cwd=ROOT).stdout.split("\0")
        for file in filter(None, listed):  # what is committed or staged, as anyone clones it
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, tree / file)
        call(build / "bin/python", "-m", "hatchling", "build", "-d", folder / "dist", cwd=tree)
        (wheel,), (sdist,) = (sorted((folder / "dist").glob(x)) for x in ("*.whl", "*.tar.gz"))
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (source,) = (folder / "unpacked").iterdir()
        call(build / "bin/python", "-m", "hatchling", "build", "-t", "wheel", "-d",
             folder / "again", cwd=source)  # fmt: skip
        (again,) = (folder / "again").glob("*.whl")
        differ = files_of(wheel) ^ files_of(again)
        assert not differ, f"the wheel of the sdist has other files: {sorted(differ)}"
        code = {file for file in listed if file.split("/")[0] in ("approx", "analysis", "figures")}
        assert code <= files_of(wheel), sorted(code - files_of(wheel))
        call(python, "-m", "venv", "--without-pip", folder / "own")
        own = folder / "own/bin"
        call(*pip, "--python", own / "python", "install", "--quiet", f"{wheel}[report,qk]")
        clean = {"PATH": os.environ["PATH"], "HOME": name, "OPENBLAS_NUM_THREADS": "1"}

        def run(program: str, *arguments: str) -> str:  # tests/acceptance runs every command
            return call(own / program, *arguments, cwd=folder, env=clean).stdout

        version = run("python", "-P", "-m", "expqk", "--version")
        assert version == run("expqk", "--version") == f"expqk {PROJECT['version']}\n"
        assert "positive(m" in run("expqk", "methods")
        found = run("python", "-P", "-c", "import approx; print(approx.__file__)")
        assert Path(found.strip()).is_relative_to(own.parent), found
        run("expqk", "report", "--profile", "quick", "--lang", "zh", "--out", "report")
        assert (folder / "report/report.pdf").read_bytes().startswith(b"%PDF")
        assert "<math" in (folder / "report/index.html").read_text("utf-8")
        print(f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB: used", flush=True)


def main(names: list[str]) -> int:
    """Check the versions that are named, or all; return 1 if any fails."""
    failed = []
    for name in names or ["least", *PYTHONS, "package"]:
        try:
            if name == "package":
                package(sys.executable)
            elif name in PROCESSORS:
                processor(name)
            elif name == "least":
                fast(name, environment(name, sys.executable, least()))
            elif python := interpreter(name):
                fast(name, environment(name, python, requirements()))
            else:
                print(f"{name}: no python{name} on the PATH or in $PYTHONS: not checked")
        except (SystemExit, AssertionError) as error:
            print(f"{name}: {error}", flush=True)
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
