"""The figures whose tables a language model gave, as they are stored."""

import numpy as np
from drawing import numbers

from analysis.experiments.profile import profile
from analysis.models import sensitivity
from figures.gallery import FIGURES


def test_the_caption_of_damage_has_the_numbers_of_its_table():
    table = FIGURES["damage"].compute(profile("quick"))
    assert len(table) == table.groupby(["layer", "head"]).ngroups * table.method.nunique() == 1620
    said = numbers(FIGURES["damage"].finding(table))
    for name in ("fisher", "attention_tv"):
        assert said[f"{sensitivity.spearman(table[name].to_numpy(), table.kl.to_numpy()):.2f}"]


def test_the_table_of_propagation_is_of_chains_of_layers_below_their_bound():
    table = FIGURES["propagation"].compute(profile("quick"))
    assert (table[["carried", "noise"]].max(axis=1) <= table.bound).all()
    for (_, replaced), run in table.groupby(["method", "replaced"]):
        np.testing.assert_array_equal(run.layer, np.arange(max(replaced, 0), 30))
        np.testing.assert_allclose(run.left[:-1], run.error[1:], rtol=1e-5)  # six digits are stored
        assert (run.made > 0).sum() == (30 if replaced < 0 else 1)
    behind = table[(table.replaced >= 0) & (table.layer > table.replaced)]
    logs = np.log(behind.carried / behind.error).groupby(behind.layer).mean()
    said = numbers(FIGURES["propagation"].finding(table))
    assert said[f"{np.exp(logs.mean()):.3f}"]
