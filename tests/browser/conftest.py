"""One server for all tests of a process that ask it for nothing special."""

import pytest
from support.serving import serving


@pytest.fixture(scope="session")
def server(trained_in_reverse):
    with serving(trained_in_reverse / "runs" / "toy", "--beam-size", "5") as served:
        yield served
