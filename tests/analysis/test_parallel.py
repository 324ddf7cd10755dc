"""One function of many arguments, in this process and in others."""

from analysis.parallel import parallel


def test_results_are_in_the_order_of_the_arguments():
    assert parallel(abs, [-3, 2, -1], jobs=2) == [3, 2, 1]
    assert parallel(abs, []) == []
