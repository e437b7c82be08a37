"""Tests of the Python package. Those of several ranks run in every rank alike: `switchyard run -n 4 -- python -m pytest
...`, so that a rank that fails a test ends the job. Which file wants how many ranks, CMakeLists.txt says."""

import faulthandler
import os

import numpy
import pytest

import switchyard

faulthandler.enable()


@pytest.fixture(scope="session")
def comm():
    """The communicator of the launcher, or of one rank where there is none."""
    if "SWITCHYARD_RANK" in os.environ:
        made = switchyard.init()
    else:
        made = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    yield made
    made.close()


@pytest.fixture
def rng(comm):
    return numpy.random.default_rng(1000 + comm.rank)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    """A rank that fails can't go on with the others: they would wait for it in the next test. It ends the job at once,
    saying why.
    """
    if call.excinfo is None or call.excinfo.errisinstance(pytest.skip.Exception) or "SWITCHYARD_RANK" not in os.environ:
        return
    print(
        "rank %s: %s failed while %s:\n%s"
        % (os.environ["SWITCHYARD_RANK"], item.nodeid, call.when, call.excinfo.getrepr()),
        flush=True,
    )
    os._exit(1)
