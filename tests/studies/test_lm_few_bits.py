"""What the study of keys in few bits says, on the bundled heads and on a table by hand."""

import pandas as pd
from kills import kills

from analysis import inputs
from approx import parse
from studies.lm import few_bits
from studies.lm.sample import MORE_FILE


@kills("studies/lm/few_bits.py", "g - g.mean(axis=0)", "g - 0.5 * g.mean(axis=0)")
def test_channel_scales_win_where_means_of_groups_hold_most_of_the_keys():
    specs = [few_bits.CODES[name][0].format(b=2, r=0, c="") for name in few_bits.REASON[:2]]
    for x in [*inputs.sample("smollm2").heads(), *inputs.load(MORE_FILE).heads()]:
        x = x.at_temperature(1.0)
        channel, rotation = (
            x.compare(x.approximate(parse(spec), rng=0))["attention_tv"] for spec in specs
        )
        _, _, held = few_bits.shares(x)
        if max(channel, rotation) < 0.15:
            continue  # one key has nearly all attention, or all codes are near
        assert (channel < rotation) == (held > 0.65), (x.layer, x.head)


def test_nearest_counts_plain_codes_or_all_with_their_correction():
    rows = [
        (layer, 0, code, 2, 0, off, tv)
        for code, off, values in (
            ("steps by channel", False, (0.1, 0.3)),
            ("rotation", False, (0.2, 0.2)),
            ("rotation", True, (0.05, 0.25)),
        )
        for layer, tv in enumerate(values)
    ]
    table = pd.DataFrame(rows, columns=few_bits.COLUMNS)
    assert few_bits.nearest(table, 0, 2, few_bits.PLAIN) == "steps by channel 1, rotation 1"
    assert few_bits.nearest(table, 0, 2) == "rotation, −σ²/2 1, rotation 1"
