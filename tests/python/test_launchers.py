"""Ranks find each other under every launcher, and by a store or a unique id given by hand."""

import os
import shutil
import subprocess
import sys
import threading

import pytest

import switchyard

# Prints at once, because ranks share the output.
PROGRAM = """
import numpy, switchyard
comm = switchyard.init()
total = comm.all_reduce(numpy.array([1 + comm.rank]))
print("rank %d of %d sum %d\\n" % (comm.rank, comm.num_ranks, total[0]), end="", flush=True)
"""
EXPECTED = ["rank 0 of 2 sum 3", "rank 1 of 2 sum 3"]


def clean_environment():
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SWITCHYARD_RANK", "SLURM_", "OMPI_", "RANK"))
    }


def lines_of(output):
    return sorted(line[line.index("rank") :] for line in output.splitlines() if "rank" in line)


def test_switchyard_run_and_python_m_switchyard():
    for command in ([os.environ["SWITCHYARD_TOOL"]], [sys.executable, "-m", "switchyard"]):
        done = subprocess.run(
            [*command, "run", "-n", "2", "--", sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, lines_of(done.stdout)) == (0, EXPECTED), done.stderr


def test_mpirun():
    if shutil.which("mpirun") is None:
        pytest.skip("no Open MPI here")
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())
    assert (done.returncode, lines_of(done.stdout)) == (0, EXPECTED), done.stderr


def run_with(environments):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**clean_environment(), **environment},
            text=True,
            stdout=subprocess.PIPE,
        )
        for environment in environments
    ]
    return sorted(lines_of(rank.communicate(timeout=60)[0])[0] for rank in ranks)


def test_slurms_variables(tmp_path):
    common = {
        "SLURM_NTASKS": "2",
        "SLURM_JOB_ID": str(os.getpid()),
        "SWITCHYARD_STORE": "file://%s" % (tmp_path / "store"),
    }
    assert (
        run_with([{**common, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)]) == EXPECTED
    )


def test_torchruns_variables():
    """The real one is in integrations: Debian's does not start under its own Python 3.11."""
    common = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
        "TORCHELASTIC_RUN_ID": "test-%d" % os.getpid(),
    }
    assert run_with([{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]) == EXPECTED


def join_by(**arguments):
    ranks = [None, None]

    def join(rank):
        with switchyard.init(rank=rank, num_ranks=2, **arguments) as comm:
            comm.barrier()
            ranks[rank] = comm.rank

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ranks


def test_given_by_hand(tmp_path):
    assert join_by(unique_id=switchyard.make_unique_id()) == [0, 1]
    assert join_by(store="file://%s" % (tmp_path / "store")) == [0, 1]


@pytest.mark.parametrize(
    "arguments, why",
    [
        (dict(rank=0), "rank and num_ranks go with"),
        (dict(unique_id=b"x", store="file:///x", rank=0, num_ranks=1), "not both"),
        (dict(store="file:///x"), "needs rank and num_ranks"),
        (dict(unique_id=b"short", rank=0, num_ranks=1), "unique_id has 5 bytes, must have 128"),
        (dict(unique_id=bytes(128), rank=0, num_ranks=1), "unique id"),
        (dict(store="ftp://x", rank=0, num_ranks=2), "file://|tcp://"),
        (dict(store="file:///tmp/x", rank=3, num_ranks=2), "SWITCHYARD_RANK|rank"),
    ],
)
def test_what_cannot_be(arguments, why):
    with pytest.raises(switchyard.SwitchyardError, match=why):
        switchyard.init(**arguments)


def test_no_launcher(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SWITCHYARD_RANK", "SLURM_", "OMPI_", "RANK", "WORLD_SIZE")):
            monkeypatch.delenv(name)
    with pytest.raises(switchyard.InvalidUsage, match="SWITCHYARD_RANK|launcher"):
        switchyard.init()
