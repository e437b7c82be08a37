"""How programs end: Ctrl-C during every kind of wait, nothing closed, an exception or a death on another rank. Nothing
hangs or crashes.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ending_program.py")
TRACEBACK_LIMIT = 10  # seconds that a program may take to end, on a loaded machine


def start(scenario, rank, num_ranks, store):
    environment = {
        **os.environ,
        "SWITCHYARD_RANK": str(rank),
        "SWITCHYARD_NUM_RANKS": str(num_ranks),
        "SWITCHYARD_STORE": "file://%s" % store,
    }
    return subprocess.Popen(
        [sys.executable, "-B", "-X", "faulthandler", PROGRAM, scenario],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def ranks(tmp_path):
    """Starts two ranks (or one of two), and kills what is left of them."""
    started = []

    def start_all(scenario, num_started=2):
        started.extend(start(scenario, rank, 2, tmp_path / "store") for rank in range(num_started))
        return started

    yield start_all
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def interrupt(process):
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)  # into the wait; earlier would be just another place of the same program
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TRACEBACK_LIMIT)
    assert time.monotonic() - begin < 3
    assert "KeyboardInterrupt" in errors
    assert process.returncode in (1, -signal.SIGINT, 130)
    assert "Fatal Python error" not in errors


@pytest.mark.parametrize(
    "what",
    [
        "dispatch_ll",
        "dispatch_ht",
        "stream",
        "full_stream",
        "close_stream",
        "close_handles",
        "all_reduce",
        "barrier",
        "split",
        "group",
        "memory",
        "close",
    ],
)
def test_ctrl_c_ends_a_wait(ranks, what):
    interrupt(ranks("wait:" + what)[0])


def test_ctrl_c_while_joining(ranks):
    interrupt(ranks("init", num_started=1)[0])


@pytest.mark.parametrize("scenario", ["leave_open", "drop"])
def test_what_nobody_closed_goes_quietly(ranks, scenario):
    for process in ranks(scenario):
        output, errors = process.communicate(timeout=TRACEBACK_LIMIT)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("scenario, codes", [("daemon", (0, 0)), ("daemon_raise", (1, 0))])
def test_a_thread_in_a_wait_does_not_crash_the_end(ranks, scenario, codes):
    for process, code in zip(ranks(scenario), codes):
        _, errors = process.communicate(timeout=TRACEBACK_LIMIT)
        assert process.returncode == code, errors
        assert "Fatal Python error" not in errors and "terminate" not in errors


@pytest.mark.parametrize("scenario, code", [("raise", 1), ("exit", 3)])
def test_an_exception_on_one_rank_ends_the_others_at_once(ranks, scenario, code):
    begin = time.monotonic()
    others, failing = ranks(scenario)
    _, errors = failing.communicate(timeout=TRACEBACK_LIMIT)
    assert failing.returncode == code
    assert "rank 1 has had enough" in errors or scenario == "exit"
    _, errors = others.communicate(timeout=TRACEBACK_LIMIT)
    assert others.returncode == 1 and "RemoteError" in errors
    assert time.monotonic() - begin < 5


def test_an_exit_without_failure_or_that_was_caught_waits_for_the_others(ranks):
    for process in ranks("exit_zero"):
        _, errors = process.communicate(timeout=TRACEBACK_LIMIT)
        assert (process.returncode, errors) == (0, "")


def test_a_dead_rank_is_named(ranks):
    survivor, dead = ranks("die")
    _, errors = survivor.communicate(timeout=TRACEBACK_LIMIT)
    assert dead.wait() == -signal.SIGKILL
    assert survivor.returncode == 1 and "RemoteError" in errors and "rank 1" in errors
