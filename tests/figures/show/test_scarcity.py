"""What to deploy follows from measured rows, each sentence from a minimum that is tried anew."""

import math

import numpy as np
import pandas as pd

from figures.show.scarcity import sentences
from figures.words.translation import speaking


def made_up(**kl):
    rows = {  # bytes read, bytes held
        "window": (8192, 8192), "SparQ": (8000, 99072), "plan": (8190, 50000),
        "2 bits": (14000, 14000), "4 bits": (27000, 27000), "exact": (99072, 99072),
    }  # fmt: skip
    known = {"window": 0.5, "SparQ": 0.3, "plan": 0.2, "2 bits": 0.15, "4 bits": 0.004} | kl
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["bytes_read", "bytes"])
    table["kl"] = [known.get(name, 0.0) for name in rows]
    return table.rename_axis("name").reset_index()


def test_each_sentence_names_the_least_error_of_what_fits():
    for table in (
        made_up(),
        made_up(SparQ=0.1),
        made_up(**{"4 bits": 0.02}),
        made_up(window=np.inf),
    ):
        said = sentences(table, 8192.0)
        for scarce, sentence in zip(("bytes_read", "bytes"), said):
            fits = [row for row in table.itertuples() if getattr(row, scarce) <= 8192]
            best = min(fits, key=lambda row: row.kl)
            assert f"is scarce: {best.name}. Of" in sentence
            assert f"least KL, {best.kl:.2g}." in sentence.replace("∞", "inf")
    assert "neither is scarce: 4 bits. It reads 27%" in sentences(made_up(), 8192.0)[-1]
    assert "exact attention. No cheaper" in sentences(made_up(**{"4 bits": 0.02}), 8192.0)[-1]
    assert "neither is scarce: 2 bits" in sentences(made_up(**{"2 bits": 0.01}), 8192.0)[-1]


def test_a_moderate_error_is_named_with_its_price_if_nothing_cheap_has_it():
    said = sentences(made_up(**{"2 bits": 0.09}), 8192.0)
    assert len(said) == 4
    assert said[2].startswith("For a KL of at most 0.1, read more: 2 bits reads 14% of what")
    assert "holds 14%, and has 0.09." in said[2]
    assert len(sentences(made_up(), 8192.0)) == 3  # it is what has a negligible error
    assert len(sentences(made_up(SparQ=0.1, **{"2 bits": 0.09}), 8192.0)) == 3  # SparQ has it


def test_what_does_not_fit_or_is_not_measured_is_not_named():
    said = sentences(made_up(plan=math.nan), 8192.0)
    assert "scarce: SparQ" in said[0]
    few = sentences(made_up(), 100.0)
    assert "no measured choice reads at most 100 bytes" in few[0]
    assert "no measured choice has a cache of at most 100 bytes" in few[1]
    with speaking("zh"):
        chinese = [*sentences(made_up(), 8192.0), *sentences(made_up(), 100.0)]
    assert not any("scarce" in one for one in chinese)
