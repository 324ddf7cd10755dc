"""Mutate a seeded sample of places in the numeric rooms; run the tests of each room on it.

cosmic-ray edits a file of a copy, and a new process runs the tests with a Numba cache of its own.
What kernels share is compiled into their callers: for it are the tests that Python interprets.
"""

import argparse
import collections
import os
import random
import re
import shutil
import sys
import time
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import MutationSpec

ROOT = Path(__file__).parent.parent
TREE, WARM, COLD = (ROOT / ".mutants" / name for name in ("tree", "numba", "numba-mutant"))
ROOMS = {room: f"tests/{room}" for room in (
    *(f"approx/{x}" for x in ("kernels", "estimate", "random_features", "polynomials", "low_rank",
                              "sparse", "supports", "sketches", "compressed_logits",
                              "hierarchical")),
    *(f"analysis/{x}" for x in ("errors", "moments", "ranks", "bounds")),
)}  # fmt: skip
ROOMS["approx/projections"] = "tests/approx/random_features"
SHARED = "elementary.py", "pattern_products.py"
OPERATORS = re.compile(r"""core/(
    ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Div|Pow_Mul|BitAnd_BitOr)
    |ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_Gt|Eq_NotEq|NotEq_Eq|Is_IsNot)
    |ReplaceUnaryOperator_(USub_UAdd|Delete_Not)|Replace(And|Or|True|False|Break)With\w+
    |NumberReplacer|ZeroIterationForLoop)""", re.VERBOSE)  # fmt: skip


def mutations(room):
    """Yield every mutation of the files of a room."""
    for path in sorted((TREE / room).glob("*.py")):
        nodes = list(ast_nodes(get_ast_from_path(path)))
        for name in filter(OPERATORS.fullmatch, operator_names()):
            of = get_operator(name)().mutation_positions
            for occurrence, (node, place) in enumerate((x, y) for x in nodes for y in of(x)):
                if node.parent.type != "parameters":  # the `*` before arguments by name
                    yield room, MutationSpec(path, name, occurrence, *place)


def main():
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("rooms", nargs="*", default=ROOMS, help="such as approx/low_rank")
    given.add_argument("--count", type=int, default=120)
    given.add_argument("--seed", type=int, default=0)
    given = given.parse_args()
    shutil.rmtree(TREE, ignore_errors=True)
    for name in ("approx", "analysis", "figures", "studies", "tests", "docs"):
        shutil.copytree(ROOT / name, TREE / name)
    shutil.copy(ROOT / "pyproject.toml", TREE)
    WARM.mkdir(exist_ok=True)
    os.chdir(TREE)
    found = [mutation for room in given.rooms for mutation in mutations(room)]
    sample = random.Random(given.seed).sample(found, min(given.count, len(found)))
    limits, counts = {}, collections.Counter()
    for room, mutation in sorted(sample, key=str):
        interpreted = mutation.module_path.name in SHARED
        os.environ |= {"PYTHONPATH": str(TREE), "NUMBA_CACHE_DIR": str(WARM)}
        os.environ["NUMBA_DISABLE_JIT"] = str(int(interpreted))
        tests = "-m kernel " * interpreted + ROOMS[room]
        command = f"{ROOT}/.venv/bin/python -m pytest -n 0 -x -q -p no:cacheprovider {tests}"
        if tests not in limits:
            start, (outcome, said) = time.monotonic(), run_tests(command, None)
            if outcome != "survived":
                sys.exit(f"{command}: fails without a mutation\n{said}")
            limits[tests] = 60 + 4 * (time.monotonic() - start)
        shutil.rmtree(COLD, ignore_errors=True)
        shutil.copytree(WARM, COLD)
        os.environ["NUMBA_CACHE_DIR"] = str(COLD)
        result = mutate_and_test([mutation], command, limits[tests])
        outcome = "timed out" if result.output == "timeout" else str(result.test_outcome.value)
        counts[outcome] += 1
        place = f"{mutation.module_path.relative_to(TREE)}:{mutation.start_pos[0]}"
        changed = (line for line in result.diff.splitlines()[4:] if line[0] in "+-")
        print(outcome, place, *changed, sep="\n    ", flush=True)
    print(f"of {len(found)} mutations:", *(f"{n} {outcome}" for outcome, n in counts.items()))


if __name__ == "__main__":
    main()
