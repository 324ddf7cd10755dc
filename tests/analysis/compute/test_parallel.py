"""One function of many arguments, in this process and in others."""

import os
import signal
import time

import numpy as np
import pytest
from tqdm import tqdm

from analysis.compute.parallel import parallel

KEPT = []


def grow(megabytes):
    """Hold more memory from now on, as compiled kernels do; return which process does."""
    time.sleep(1.1)  # loky looks at the memory of a process once a second, between two calls
    KEPT.append(np.ones(megabytes * 2**17))
    return os.getpid()


def test_results_are_in_the_order_of_the_arguments():
    assert parallel(abs, [-3, 2, -1], jobs=2) == [3, 2, 1]
    assert parallel(abs, []) == []


@pytest.mark.filterwarnings("default:A worker stopped")  # an error would stop loky's own thread
def test_a_process_that_grows_goes_on():
    # loky calls 300 MB more than after the first call a leak, ends the process, and warns
    assert len(set(parallel(grow, [0, 0, 350, 350, 0, 0, 0, 0], jobs=2))) == 2


def ignored(_):
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_control_c_is_for_the_process_that_was_started():
    # a shell sends it to all of them, and each would print where it was
    assert parallel(ignored, range(4), jobs=2) == [True] * 4
    assert not ignored(0)


def locked(_):
    tqdm(disable=True)
    return type(tqdm.get_lock()).__module__


def test_a_process_that_is_killed_leaves_no_semaphore():
    assert set(parallel(locked, range(4), jobs=2)) == {"_thread"}
