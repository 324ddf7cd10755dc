"""Plans that run on SmolLM2-135M: ``python -m studies.lm.generation MODEL``.

Decoding against prefill, bytes of caches against prices, bytes at long texts by prices, and tokens
per second. The tables, with their date, are written into ``--summary``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import DynamicCache

from analysis.models import attach, detach
from analysis.models.attention_hook import cache_name
from analysis.models.cost_curves import METHODS
from analysis.models.generation import generate
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan
from analysis.models.replacement import Passage
from approx import Mask, Method, parse
from approx.decoding.keys import AllKeys
from studies.lm import pages, sample

TOKENS, DECODED = 160, 16
BUDGET = 32 * 128.0  # reads of 32 exact keys
CODES = (
    "quantised(bits=3, by='channel', group=32)",
    "qjl(m=256)",
    "turboquant(bits=3)",
    "eden(bits=3)",
)
LENGTHS = (4096, 32768, 131072)
PLANS = Path(__file__).parent / "plans"
TEXT = sample.DATA / "gettysburg_constitution.txt"


def decoded(model: LanguageModel, ids: np.ndarray, heads: Mapping) -> tuple[np.ndarray, list]:
    """Return the logits of the last tokens, read one by one, and the layers of the cache."""
    cache, found = DynamicCache(config=model.model.config), []
    past = {cache_name(model.model): cache}
    attach(model.model, Plan(model.name, heads), name=model.name)
    with torch.inference_mode():
        for part in (ids[:-DECODED], *ids[-DECODED:, None]):
            given = torch.as_tensor(part)[None]
            out = model.model(given, use_cache=True, logits_to_keep=1, **past)
            found.append(out.logits[0, -1].numpy())
    detach(model.model)
    return np.array(found[1:]), cache.layers


def priced(method: Method, l: int, d: int, c: int) -> float:
    """Return the bytes that a head stores by its price: all keys, if it chooses among them."""
    cache = method.cache(d=d, c=c, rng=0)
    chosen = parse("exact()") if isinstance(cache, AllKeys) else method
    price = chosen.price(n=l, l=l, d=d, c=c, mask=Mask.causal(l, l))
    assert price is not None
    assert price.bytes_read is not None
    return price.bytes_read


def against_prefill(model: LanguageModel, specs: Sequence[str]) -> str:
    """Return the distance of decoding from prefill for methods of `plan`, and stored bytes."""
    ids = model.tokens(TEXT, TOKENS)
    passage = Passage(model, ids, skip=0)
    shape, rows = passage.shapes[0], []
    for spec in specs:
        method = parse(spec)
        method = method.within(BUDGET, currency="reads", **shape.given) or method
        heads = passage.everywhere(method)
        state = passage.replace(heads).state
        expected = model.logits(ids, state, np.arange(TOKENS - DECODED, TOKENS)).numpy()
        found, layers = decoded(model, ids, heads)
        gap = np.abs(found - expected).max() / np.abs(expected).max()
        same = float(np.mean(found.argmax(1) == expected.argmax(1)))
        held = layers[0].numbers()
        groups = model.heads // layers[0].rows[0].group
        copies = len({id(x) for x in layers[0].rows[0].caches})
        copies = groups if any(isinstance(x, AllKeys) for x in layers[0].rows[0].caches) else copies
        said = copies * priced(method, TOKENS, shape.d, shape.c)
        rows.append(
            (
                f"`{method}`",
                f"{gap:.1g}",
                f"{same:.0%}",
                copies,
                f"{held['bytes']:,}",
                f"{said:,.0f}",
            )
        )
    head = "every head by", "difference", "same token", "caches", "bytes held", "by the price"
    return pages.table(head, rows)


def at_lengths(model: LanguageModel) -> str:
    """Return the bytes that caches store at long texts, by prices."""
    facts = model.model.config
    d = facts.hidden_size // facts.num_attention_heads
    group = model.heads // facts.num_key_value_heads
    plans = {path.stem: Plan.read(path).heads for path in sorted(PLANS.glob("*-keys.json"))}
    every = [(i, j) for i in range(model.layers) for j in range(model.heads)]
    for spec in ("exact()", CODES[0], "h2o(k=32)", "sink_window(k=32)"):
        plans[f"every head by `{parse(spec)}`"] = dict.fromkeys(every, parse(spec))
    rows = []
    for name, heads in plans.items():
        total = [0.0] * len(LENGTHS)
        for layer in range(model.layers):
            for first in range(0, model.heads, group):
                mine = [
                    heads.get((layer, j), parse("exact()")) for j in range(first, first + group)
                ]
                caches = [method.cache(d=d, c=d, rng=0) for method in mine]
                all_keys = any(isinstance(cache, AllKeys) for cache in caches)
                rest = [m for m, x in zip(mine, caches) if not isinstance(x, AllKeys)]
                shared = {str(m): m for m in rest if not m.cache(d=d, c=d, rng=0).asks}
                own = [m for m in rest if m.cache(d=d, c=d, rng=0).asks]
                for i, l in enumerate(LENGTHS):
                    held = [*shared.values(), *own, *([parse("exact()")] if all_keys else [])]
                    total[i] += sum(known(str(m), l, d) for m in held)
        rows.append((name, *(f"{x / 2**20:,.1f}" for x in total)))
    return pages.table(("MiB held", *(f"{l // 1024}k tokens" for l in LENGTHS)), rows)


_KNOWN: dict[tuple[str, int, int], float] = {}


def known(spec: str, l: int, d: int) -> float:
    """Return `priced`, cached."""
    if (spec, l, d) not in _KNOWN:
        _KNOWN[spec, l, d] = priced(parse(spec), l, d, d)
    return _KNOWN[spec, l, d]


def speeds(folder: Path, choices: Mapping[str, Plan | Method]) -> str:
    """Return tokens per second with plans and with exact attention, on this CPU."""
    prompt = TEXT.read_text("utf-8")
    rows = []
    for name, choice in choices.items():
        for length in (128, 512):
            said = generate(folder, prompt, choice, tokens=17, max_tokens=length, compare=True)
            assert said.exact is not None
            rows.append((name, length, f"{said.per_second:.2f}", f"{said.exact.per_second:.2f}"))
    return pages.table(("plan", "tokens before", "tokens a second", "exact attention"), rows)


def main() -> None:
    """Measure, and write the tables."""
    parser = pages.parser(".generation", __doc__)
    pages.add_model(parser, TOKENS)
    arguments = parser.parse_args()
    model = LanguageModel.open(arguments.model)
    plan, window = Plan.read(PLANS / "smollm2-32-keys.json"), parse("sink_window(k=32)")
    lines = [
        f"{model.name} on {pages.today()}, float32.",
        "",
        f"**Decoding is prefill.** The last {DECODED} of {TOKENS} tokens are read one by one after "
        "the others; the largest difference of their logits from those of `substitute` on the "
        "whole text, as a share of the largest logit, and how often the likeliest token is the "
        "same. Then what layer 0 holds at the end, counted from its arrays at 16 bits a number, "
        "beside what its caches should hold by their prices.",
        "",
        against_prefill(model, METHODS),
        "",
        "Keys in few bits, in float64. In float32 they differ by up to a fifth: a key that is off "
        "by its rounding gets another code now and then, which moves the layers behind it.",
        "",
        against_prefill(LanguageModel.open(arguments.model, dtype="float64"), CODES),
        "",
        "**Bytes at long texts**, by prices, in all layers.",
        "",
        at_lengths(model),
        "",
        "**Tokens a second**, of 16 tokens after the first.",
        "",
        speeds(arguments.model, {"32 keys": plan, f"`{window}`": window}),
    ]
    pages.write(arguments, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
