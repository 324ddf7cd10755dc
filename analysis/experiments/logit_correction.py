"""Half the variance subtracted from a logit: what it gains where some keys are exact."""

import pandas as pd

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row, head, numbers
from approx import parse

ROWS = {"quick": 128, "default": 512}
BITS = (2, 3)
RECENT = (0, 16, 64, 128, 256)
FORMS = {
    "mse": "turboquant(bits={b}, recent={r}, corrected={c})",
    "eden": "turboquant(bits={b}, form='eden', recent={r}, corrected={c})",
    "product": "turboquant(bits={b}, form='product', recent={r}, corrected={c})",
    "channel": "quantised(bits={b}, by='channel', group=999, recent={r}, corrected={c})",
    "dither": "quantised(bits={b}, dither=True, recent={r}, corrected={c})",
}


def _rows(x: Head, name: str, bits: int, recent: int, draws: int) -> list[Row]:
    found = []
    for corrected in (False, True):
        method = parse(FORMS[name].format(b=bits, r=recent, c=corrected))
        some = [
            x.compare(x.approximate(method, rng=i))["attention_tv"]
            for i in range(draws if method.uses_rng else 1)
        ]
        share = (x.mask.counts.clip(max=recent) / x.mask.counts).mean()
        place = head(x, f"{name}/{bits}/{recent}", float(bits))
        found += numbers(place, **{f"tv_{corrected}": sum(some) / len(some), "exact_share": share})
    return found


def compute(profile: Profile) -> pd.DataFrame:
    """Return tv with and without the correction, by form, bits (budget) and last exact keys.

    ``method`` is form/bits/recent; the heads are those of the profile that are causal, or else
    those of the bundled language model.
    """
    heads, draws = profile.causal(ROWS[profile.grid]), min(3, profile.trials)
    tasks = [(x, f, b, r, draws) for x in heads for f in FORMS for b in BITS for r in RECENT]
    return profile.study(_rows, tasks, "correction")
