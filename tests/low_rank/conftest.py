"""Two BLAS threads on a busy machine make these small matrices 20 times slower."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threadpool_limits(1):
        yield
