"""Plans of SmolLM2-135M to share: ``python -m studies.lm.plans MODEL``, into studies/lm/plans.

Three plans are chosen for the reads of 16, 32 and 64 exact keys, and one for the bytes read if the
keys of every head have three bits. A second plan of 32 keys is also chosen for a fact in the novel.
All are chosen on a novel and a licence, and measured on a constitution.
"""

from __future__ import annotations

import sys
from pathlib import Path

from analysis.models.planner import plan
from approx import Mask, Method, parse
from studies.lm import sample
from studies.lm.plan import CHOSEN_ON, HELD_OUT, TOKENS

FOLDER = Path(__file__).parent / "plans"
KEYS = (16, 32, 64)
BITS = 3
NEEDLE = "smollm2-32-keys-needle"
CODED = "quantised(bits={}, by='channel', group=32)"
CODES = (*map(CODED.format, (2, 3, 4)), *(f"eden(bits={bits})" for bits in (1, 2, 3, 4)))
WIDTH = 64  # width of keys and of values


def main() -> None:
    """Choose, measure and write the plans that do not exist yet."""
    model = Path(sys.argv[1])
    texts = [sample.DATA / name for name in CHOSEN_ON]
    asked: dict[str, tuple[float, str, list[Method] | None, float]] = {
        f"smollm2-{keys}-keys": (keys * 2.0 * WIDTH, "reads", None, 0.0) for keys in KEYS
    }
    asked[NEEDLE] = 32 * 2.0 * WIDTH, "reads", None, 1.0
    shape = {"n": TOKENS, "l": TOKENS, "d": WIDTH, "mask": Mask.causal(TOKENS, TOKENS)}
    codes = {spec: parse(spec) for spec in CODES}
    read = codes[CODED.format(BITS)].price(**shape).bytes_read
    asked[f"smollm2-{BITS}-bits"] = read, "bytes_read", list(codes.values()), 0.0
    for name, (budget, currency, methods, needle) in asked.items():
        if (path := FOLDER / f"{name}.json").exists():
            continue
        found = plan(
            model, texts, budget=budget, currency=currency, methods=methods, needle=needle,
            held_out=sample.DATA / HELD_OUT[0], max_tokens=TOKENS, progress=True,
        )  # fmt: skip
        found.write(path)
        print(name, found.facts["price"], found.facts["predicted_kl"], found.facts["kl"])


if __name__ == "__main__":
    main()
