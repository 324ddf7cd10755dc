"""Seeds follow from what they are for, and from nothing else."""

import pytest

from analysis.compute.seeds import seed_sequence


def test_every_piece_of_work_has_a_seed_of_its_own():
    seeds = [seed_sequence(0, "a", 1), seed_sequence(0, "a", 2), seed_sequence(1, "a", 1)]
    assert len({tuple(seed.generate_state(4)) for seed in seeds}) == 3
    # as in any other process
    assert seeds[0].generate_state(4).tolist() == [
        617499486,
        3532573581,
        1364029677,
        180627191,
    ]
    with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
        seed_sequence(-1, "a")
