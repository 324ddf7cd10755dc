"""What the study of keys in few bits says, on the bundled heads and on a table by hand."""

import numpy as np
import pandas as pd
import pytest

from analysis import inputs
from approx import parse
from studies.lm import few_bits
from studies.lm.sample import MORE_FILE
from studies.lm.substitute import PAGES

EDEN = "EDEN's scale, −σ²/2"


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


@pytest.mark.parametrize("language", list(PAGES))
def test_what_the_page_says_of_few_bits_is_in_its_table(language):
    block = PAGES[language].read_text("utf-8").split(few_bits.BEGIN)[1].split(few_bits.END)[0]
    cells = [[x.strip() for x in line.split("|")[1:-1]] for line in block.splitlines()[5:]]
    table = {name: [float(x or "nan") for x in row] for name, *row in cells}
    channel, rounded = np.array(table["steps by channel"]), np.array(table["rotation"])
    signs, eden = (np.array(table[name]) for name in ("rotation + orthogonal signs", EDEN))
    codes = np.array([row for name, row in table.items() if name != "values"])
    assert (signs > rounded).all()
    assert (eden < rounded).all()
    assert (channel[:3] == codes[:, :3].min(axis=0)).all()
    assert (eden[4:] == codes[:, 4:].min(axis=0)).all()
    assert 4 < np.median(codes[:, 4:6] / codes[:, 5:7]) < 6
    assert (np.abs(np.array(table["values"][4:]) / channel[4:] - 1) < 0.15).all()
