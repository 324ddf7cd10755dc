"""One spec, one meaning; one seed, one answer; what draws nothing runs once."""

import numpy as np

from analysis.inputs import gaussian
from analysis.moments import monte_carlo
from analysis.sweep import sweep
from approx import parse
from approx.distances import squared_distances
from approx.projections import IID, Fixed
from approx.random_features.positive import Positive


def test_a_projection_is_known_by_its_name():
    assert Positive(m=4, projection=IID()) == Positive(m=4)
    assert parse(str(Positive(m=4, projection=IID()))) == Positive(m=4)


def test_one_seed_sequence_gives_one_answer():
    seed = np.random.SeedSequence(7)
    method = parse("scatterbrain(low_rank=positive(m=2), sparse=top_k(k=1))")
    x = gaussian(3, 2, rng=0)
    first = method.approximate(x.Q, x.K, rng=seed).to_dense()
    assert (method.approximate(x.Q, x.K, rng=seed).to_dense() == first).all()
    means = [monte_carlo(Positive(m=2), x.Q, x.K, draws=3, rng=seed).mean for _ in range(2)]
    assert (means[0] == means[1]).all()


def test_methods_that_draw_nothing_have_one_trial():
    fixed = Positive(projection=Fixed([[0.5, 0.0], [-0.5, 0.0]]))
    both = parse("scatterbrain(low_rank=taylor(degree=1), sparse=top_k(k=2))")
    random = parse("scatterbrain(low_rank=positive(m=2), sparse=top_k(k=2))")
    table = sweep([fixed, both, random], gaussian(4, 2, rng=0), [1.0], trials=3, seed=0)
    trials = table.groupby("method").trial.unique().map(sorted).to_dict()
    assert trials == {str(fixed): [-1], str(both): [-1], str(random): [0, 1, 2]}


def test_squared_distances_of_equal_rows_are_zero_and_small():
    X = np.full((300, 2), 1 / 3)
    assert (squared_distances(X, X) == 0).all()
