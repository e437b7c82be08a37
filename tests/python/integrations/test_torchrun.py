"""Ranks find each other under torchrun, with torch.distributed and without."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, numpy, torch, switchyard, switchyard.torch
if sys.argv[1] == "group":
    torch.distributed.init_process_group("gloo")
comm = switchyard.torch.init()
total = comm.all_reduce(numpy.array([1 + comm.rank]))
print("rank %d of %d sum %d\\n" % (comm.rank, comm.num_ranks, total[0]), end="", flush=True)  # at once: ranks share the output
comm.close()
"""


@pytest.mark.parametrize("how", ["group", "environment"])
def test_torchrun(comm, tmp_path, how):
    if comm.num_ranks > 1:
        pytest.skip("starts ranks itself")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        str(program),
        how,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if "rank" in line) == [
        "rank 0 of 2 sum 3",
        "rank 1 of 2 sum 3",
    ]
