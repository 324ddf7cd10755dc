"""Every command of the pages that needs torch, as a user runs it; `make lm` runs them.

A tiny random model and, where ``EXPQK_LM`` names its folder, SmolLM2-135M. The folders and the text
have names with blanks and Chinese characters.
"""

import functools
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import terminal
from tiny_models import build, save_tokenizer

from analysis.models.plan import Plan
from approx import parse

ROOT = Path(__file__).parents[2]
LM = os.environ.get("EXPQK_LM")
MODEL, TEXT = "my model v1.2 (最终)", "my text, v1.2 (最终).txt"
SUBSTITUTE = 'expqk substitute MODEL_DIR TEXT --method "sink_window(k=32)"'
PLAN = "expqk plan MODEL_DIR TEXT --budget 4096 --out plan.json"
GENERATE = "expqk generate MODEL_DIR --plan plan.json --prompt TEXT --compare"
FOUR_BITS = '"rounded_values(quantised(bits=4), bits=4)"'
PAGE = ("index.html", "report.md", "plan.json", "manifest.json")
REPORT = ("index.html", "report.pdf", "report.md", "notes.md", "manifest.json")
HEADS = " --heads 0.1,1.2"  # of 8, or of the 270 of SmolLM2
FEW = " --max-tokens 192"


class Run(NamedTuple):
    """How a printed command is run: what makes it smaller, what it writes, says and needs."""

    more: str = ""
    files: tuple[str, ...] = ()
    says: str = ""  # all of stderr but progress
    after: tuple[str, ...] = ()


CAPTURED = (
    r"The text is cut to the first 192 of its \d+ tokens \(--max-tokens\); 2 heads of width \d+, "
    r"causal; float16, 0\.\d MB\. Next: expqk diagnose qk\.\w+"
)
MODELLED = (
    r".*: \d+ layers of \d heads; 192 tokens to choose on, 192 to measure on\. If you stop "
    r"it, the same command continues where it was\."
)
OWN = "expqk model MODEL_DIR TEXT --out mine"
NPZ, TENSORS = (f"expqk capture MODEL_DIR TEXT --out qk.{kind}" for kind in ("npz", "safetensors"))
WITH_TORCH = {  # what a page prints: how it is run
    OWN: Run(FEW, tuple(f"mine/{name}" for name in PAGE), MODELLED),
    "expqk model MODEL TEXT --out DIR": Run(
        f"{FEW} --lang zh", tuple(f"out dir (最终)/{name}" for name in PAGE), ".*"
    ),
    NPZ: Run(FEW + HEADS, ("qk.npz",), CAPTURED),
    TENSORS: Run(FEW + HEADS, ("qk.safetensors",), CAPTURED),
    f"{NPZ} --max-tokens 8192 --queries 64": Run(
        HEADS, ("qk.npz",),
        r"All \d+ tokens of the text; 2 heads of width \d+, causal, queries of the last 64 tokens; "
        r"float16, \d\.\d MB\. Next: expqk diagnose qk\.npz",
    ),
    SUBSTITUTE: Run(FEW),
    PLAN: Run(FEW, ("plan.json",), r"plan\.json"),
    GENERATE: Run(" --max-tokens 64 --tokens 4", after=(PLAN,)),
    f"{GENERATE} --lang zh": Run(" --max-tokens 64 --tokens 4", after=(PLAN,)),
    "expqk plan MODEL_DIR --check plan.json": Run(after=(PLAN,)),
    "expqk plan MODEL_DIR --from plan.json --export kvpress --nearest --out press.py": Run(
        "", ("press.py", "press.py.plan.json"), r"press\.py", (PLAN,)
    ),
    f"expqk plan MODEL_DIR --export transformers --method {FOUR_BITS} --out cache.json": Run(
        "", ("cache.json",), r"cache\.json"
    ),
    "expqk plan MODEL_DIR --export llama.cpp --method "
    '"rounded_values(quantised(group=32), group=32)"': Run(says=r"llama\.cpp differs from .*"),
    "expqk plan MODEL_DIR TEXT --from plan.json --budget 2048 --out cheaper.json": Run(
        FEW, ("cheaper.json",), r"cheaper\.json", (PLAN,)
    ),
    "expqk plan MODEL_DIR TEXT --sizes ada --method h2o --budget 4096 --out ada.json": Run(
        FEW, ("ada.json",), r"ada\.json"
    ),
    "expqk report --qk qk.npz --model mine": Run(
        " --profile quick --out 'report a'", tuple(f"report a/{name}" for name in REPORT), "",
        (OWN, NPZ),
    ),
    "expqk report --qk qk.safetensors --model mine": Run(
        " --profile quick --out report", tuple(f"report/{name}" for name in REPORT), "",
        (OWN, TENSORS),
    ),
}  # fmt: skip
LONG = {"expqk model MODEL TEXT --out DIR", "expqk report --qk qk.safetensors --model mine"}


def tiny(folder):
    """Save a random model of Llama's kind and its tokenizer of 50 words; return a text of them."""
    changes = {"hidden_size": 64, "head_dim": 16, "max_position_embeddings": 2048}
    build("llama", "float32", num_hidden_layers=2, **changes).save_pretrained(folder)
    names = ["input_ids", "attention_mask"]
    save_tokenizer(folder, [f"w{i}" for i in range(50)], model_input_names=names)
    drawn = np.random.default_rng(1).integers(1, 50, 500)
    return " ".join(f"w{i}" for i in drawn) + " 最终。"


@pytest.fixture(scope="module", params=["tiny", "smollm2"])
def shell(request, tmp_path_factory):
    """Return what runs a printed command once, in an empty folder, and that folder."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    if request.param == "smollm2" and LM is None:
        pytest.skip("EXPQK_LM names no folder with SmolLM2-135M")
    folder = tmp_path_factory.mktemp("pages") / "my work (最终)"
    model = tmp_path_factory.mktemp("models") / MODEL
    folder.mkdir()
    if request.param == "tiny":
        words = tiny(model)
    else:
        model.symlink_to(Path(LM).resolve())
        words = (ROOT / "analysis/data/persuasion.txt").read_text("utf-8")
    (folder / TEXT).write_text(words, "utf-8")
    names = {"MODEL_DIR": model, "MODEL": model, "TEXT": TEXT, "DIR": "out dir (最终)"}

    @functools.cache
    def run(printed):
        """Return what it left, stderr in one line."""
        todo = WITH_TORCH.get(printed, Run())
        for other in todo.after:
            assert run(other).status == 0
        command = printed + todo.more
        for name, ours in names.items():
            command = re.sub(rf"\b{name}\b", lambda _, ours=ours: shlex.quote(str(ours)), command)
        command = re.sub("^expqk", f"{shlex.quote(sys.executable)} -P -m expqk", command)
        done = terminal.run(command, folder, {"PYTHONPATH": str(ROOT)})
        return done._replace(stderr=" ".join(done.stderr.split()))

    run.folder, run.model, run.path = folder, request.param, model
    return run


def settled(shell, printed, says=""):
    status, stdout, stderr = shell(printed)
    assert status == 0, stderr
    assert re.fullmatch(says, stderr), stderr
    assert stdout.strip()
    return stdout


@pytest.mark.parametrize("printed", WITH_TORCH)
def test_a_command_does_what_the_page_says(printed, shell):
    if shell.model != "tiny" and printed in LONG:
        pytest.skip("it differs from another by a name")
    if shell.model == "tiny" and ("llama.cpp" in printed or "kvpress" in printed):
        pytest.skip("its heads are narrower than a block, and its plan evicts nothing")
    settled(shell, printed, WITH_TORCH[printed].says)
    for name in WITH_TORCH[printed].files:
        assert (shell.folder / name).stat().st_size > 0, name


@pytest.mark.parametrize("printed", [
    f"{SUBSTITUTE}{FEW} --json",
    f"expqk substitute MODEL_DIR TEXT --plan plan.json{FEW} --json",
    "expqk diagnose qk.npz --trials 1 --json",
    f"{GENERATE} --max-tokens 64 --tokens 4 --json",
])  # fmt: skip
def test_what_is_for_machines_can_be_read_by_them(printed, shell):
    settled(shell, PLAN, WITH_TORCH[PLAN].says)
    settled(shell, NPZ, WITH_TORCH[NPZ].says)
    assert json.loads(settled(shell, printed))


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_what_is_captured_is_diagnosed(kind, shell):
    settled(shell, {"npz": NPZ, "safetensors": TENSORS}[kind], CAPTURED)
    said = settled(shell, f"expqk diagnose qk.{kind} --trials 1")
    assert "1.2" in said


def test_the_script_of_the_readme_attaches_a_plan(shell):
    if shell.model != "tiny":
        pytest.skip("transformers is told of a GGUF file by its name")
    [script] = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert len([line for line in script.splitlines() if line]) <= 10
    assert "attach(model, plan.Plan.read(" in script
    settled(shell, PLAN, WITH_TORCH[PLAN].says)
    exact = {(i, j): parse("exact()") for i in range(2) for j in range(4)}
    Plan(MODEL, exact).write(shell.folder / "exact.json")
    alone = "\n".join(line for line in script.splitlines() if not line.startswith("attach"))
    printed = []
    for text in (script, script.replace("plan.json", "exact.json"), alone):
        text = text.replace("MODEL_DIR", str(shell.path))
        (shell.folder / "script.py").write_text(text, "utf-8")
        python = f"{shlex.quote(sys.executable)} -P script.py"
        done = terminal.run(python, shell.folder, {"PYTHONPATH": str(ROOT)})
        assert done.status == 0, done.stderr
        assert len(done.stdout.split()) >= 16
        printed.append(done.stdout)
    assert printed[1] == printed[2]
