"""What the source may import, call and compile: from its syntax tree, or a fresh process."""

import ast
import builtins
import functools
import os
import subprocess
import sys
from pathlib import Path

from each import each
from kernel_coverage import DECORATORS, kernels

ROOT = Path(__file__).parent.parent
FILES = [
    p for name in ("approx", "analysis", "figures") for p in sorted((ROOT / name).rglob("*.py"))
]
COMPILED_BUILTINS = {"range", "abs", "min", "max", "float", "int", "len", "isinstance"}
SHARED = "approx.kernels.elementary."  # the caches of kernels are named by its hash
FORBIDDEN_CALLS = {"compile", "__import__"}
FORBIDDEN_TRUE = {"fastmath", "allow_pickle", "shell"}
WORDS = "compile(", "__import__(", "fastmath=", "allow_pickle=", "shell=", "np.load(", "numpy.load("


def name(path):
    return path.relative_to(ROOT).as_posix()


NAMED = [name(path) for path in FILES]
parsed = functools.cache(ast.parse)


def imports(tree):
    """Return {local name: full name} of every import, wherever it stands."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def foreign_names(source):
    """Return (kernel, name) where a kernel uses a function or a constant of another file.

    Numba bakes both into the machine code and does not notice when that file changes.
    """
    if not any(f"@{word}" in source for word in DECORATORS):
        return 0, []
    tree = parsed(source)
    imported = imports(tree)
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    compiled, found = {kernel.name: kernel for kernel in kernels(tree)}, []
    for kernel in compiled.values():
        for statement in kernel.body:
            for node in ast.walk(statement):
                if not isinstance(node, ast.Name):
                    continue
                full = imported.get(node.id)
                foreign = full not in (None, "numpy", "math") and not full.startswith(SHARED)
                if foreign or (node.id in functions and node.id not in compiled):
                    found.append((kernel.name, node.id))
                if hasattr(builtins, node.id) and node.id not in COMPILED_BUILTINS:
                    found.append((kernel.name, node.id))
    return len(compiled), found


def forbidden(source):
    """Return what runs code out of data or lets a compiler forget NaN, and no linter sees."""
    found = []
    if not any(word in source for word in WORDS):
        return found
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.Call):
            continue
        given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
        found += [key for key in FORBIDDEN_TRUE if given.get(key) is True]
        function = ast.unparse(node.func)
        if function in FORBIDDEN_CALLS:
            found.append(function)
        if function in ("np.load", "numpy.load") and given.get("allow_pickle") is not False:
            found.append(function)
    return found


def test_kernels_use_only_their_own_file_and_the_shared_functions():
    checked = {name(path): foreign_names(path.read_text("utf-8")) for path in FILES}
    assert {path: found for path, (_, found) in checked.items() if found} == {}
    assert sum(count for count, _ in checked.values()) >= 8


@each("path", FILES, ids=NAMED)
def test_nothing_forbidden(path):
    assert forbidden(path.read_text("utf-8")) == []


def test_no_file_of_vague_name():
    vague = {"utils", "core", "helpers", "common"}
    assert [name(p) for p in FILES if p.stem in vague] == []


# What a fresh process loads


def fresh(code):
    """Return the last line a new interpreter prints."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()[-1]


LOADED = "import sys; print(sorted({m.split('.')[0] for m in sys.modules} & %r))"


def test_imports_and_help_load_nothing_heavy():
    heavy = {"numba", "pandas", "matplotlib", "torch", "sklearn", "joblib", "jinja2"}
    without = "import approx, sys; assert 'scipy.stats' not in sys.modules; "
    assert fresh(without + LOADED % heavy) == "[]"
    heavy = {"numpy", "numba", "scipy", "pandas", "matplotlib"}
    code = """
import contextlib, io
from figures.command.cli import main
text = io.StringIO()
with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
    main(["--help"])
assert "report" in text.getvalue()
"""
    assert fresh(code + LOADED % heavy) == "[]"


# Docstrings


def test_every_public_method_has_a_docstring_or_overrides_one_that_has():
    classes = {}
    for source in (path.read_text("utf-8") for path in FILES):
        for node in ast.walk(parsed(source)) if "class " in source else ():
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).split(".")[-1] for base in node.bases]
                functions = [f for f in node.body if isinstance(f, ast.FunctionDef)]
                classes[node.name] = bases, {f.name: ast.get_docstring(f) for f in functions}

    def said(name, method):
        bases, methods = classes.get(name, ((), {}))
        return bool(methods.get(method)) or any(said(base, method) for base in bases)

    public = {
        f"{name}.{method}": said(name, method)
        for name, (_, methods) in classes.items()
        for method in methods
        if not (name.startswith("_") or method.startswith("_"))
    }
    assert [name for name, documented in public.items() if not documented] == []
