"""Collectives of NumPy arrays, against NumPy."""

import numpy
import pytest

import switchyard
from switchyard import InvalidArgument


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_values(comm, dtype):
    ranks = range(comm.num_ranks)
    mine = (numpy.arange(5) + 10 * comm.rank).astype(dtype)
    everybodys = numpy.stack([(numpy.arange(5) + 10 * rank).astype(dtype) for rank in ranks])
    assert (comm.all_gather(mine) == everybodys).all()
    assert (comm.all_reduce(mine) == everybodys.sum(0).astype(dtype)).all()
    assert (comm.all_reduce(mine, "max") == everybodys.max(0)).all()
    assert (comm.reduce_scatter(everybodys) == everybodys[comm.rank] * comm.num_ranks).all()
    assert (comm.broadcast(mine.copy(), root=comm.num_ranks - 1) == everybodys[-1]).all()
    sent = numpy.stack([mine + rank for rank in ranks]).astype(dtype)
    assert (comm.all_to_all(sent) == everybodys + numpy.array(comm.rank, dtype)).all()


def test_different_numbers_of_rows(comm):
    sent = [(comm.rank + peer) % 3 for peer in range(comm.num_ranks)]
    x = numpy.repeat(numpy.arange(comm.num_ranks), sent)[:, None] * [1.0, 2.0] + comm.rank
    got = comm.all_to_all_v(x, sent, sent)
    assert (
        got == numpy.repeat(numpy.arange(comm.num_ranks), sent)[:, None] + comm.rank * numpy.array([1.0, 2.0])
    ).all()


def test_in_place_and_queued(comm):
    x = numpy.full(3, 1.0 + comm.rank)
    assert comm.all_reduce(x, out=x) is x
    assert (x == sum(range(1, comm.num_ranks + 1))).all()
    stream = switchyard.Stream()
    y = comm.all_gather(x, stream=stream)
    stream.synchronize()
    assert y.shape == (comm.num_ranks, 3)


def test_split(comm):
    half = comm.split(comm.rank % 2, key=-comm.rank)
    members = [rank for rank in reversed(range(comm.num_ranks)) if rank % 2 == comm.rank % 2]
    assert list(half.all_gather(numpy.array([comm.rank]))[:, 0]) == members
    half.barrier()
    half.close()
    with pytest.raises(switchyard.InvalidUsage, match="the communicator is closed"):
        half.barrier()
    comm.barrier()


def test_refusals_name_the_argument_and_leave_everything_usable(comm):
    x = numpy.zeros((comm.num_ranks, 4), numpy.float32)
    with pytest.raises(InvalidArgument, match="out is .* must be"):
        comm.all_reduce(x, out=numpy.zeros(3, numpy.float32))
    with pytest.raises(InvalidArgument, match="out is .* must be .* float32"):
        comm.all_reduce(x, out=x.astype(numpy.float64))
    with pytest.raises(InvalidArgument, match="op is 'median'"):
        comm.all_reduce(x, "median")
    with pytest.raises(InvalidArgument, match="one part for each of the"):
        comm.all_to_all(numpy.zeros((comm.num_ranks + 1, 4), numpy.float32))
    with pytest.raises(InvalidArgument, match="root"):
        comm.broadcast(x, root=comm.num_ranks)
    with pytest.raises(InvalidArgument, match="x, of shape .* is not contiguous"):
        comm.all_reduce(x[:, ::2])
    read_only = x.copy()
    read_only.flags.writeable = False
    with pytest.raises(InvalidArgument, match="out is read-only"):
        comm.all_reduce(x, out=read_only)
    assert (comm.all_reduce(x + 1) == comm.num_ranks).all()
