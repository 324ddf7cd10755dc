"""What the study of keys in few bits says, on its page."""

import numpy as np
import pytest

from studies.lm import few_bits
from studies.lm.substitute import PAGES

EDEN = "EDEN's scale, −σ²/2"


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
