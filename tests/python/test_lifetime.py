"""What lives how long, what closed objects say, and what happens to the others when ranks disagree, abort or do not
come.
"""

import gc
import os
import sys
import threading
import time
import weakref

import numpy
import pytest

import reference
import switchyard
from switchyard import (
    CombineInputs,
    CombineOutputs,
    DispatchInputs,
    DispatchOutputs,
    InvalidArgument,
    InvalidUsage,
    Layout,
    LayoutInfo,
    MoE,
    RemoteError,
    SwitchyardError,
    Tensor,
)
from threads import on_ranks


def small_moe(comm, **more):
    return MoE(comm, **{**dict(experts=comm.num_ranks, topk=1, hidden=8, max_tokens=4, mode="ll"), **more})


def batch(comm, num_tokens=2):
    x = numpy.full((num_tokens, 8), 1.0 + comm.rank, numpy.float32)
    return (
        x,
        numpy.full((num_tokens, 1), (comm.rank + 1) % comm.num_ranks, numpy.int64),
        numpy.ones((num_tokens, 1), numpy.float32),
    )


def round_trip(comm, moe):
    x, idx, weights = batch(comm)
    recv, state = moe.dispatch(x, idx, weights)
    assert (moe.combine(recv.tokens, state) == x).all()


def test_operations_keep_their_tensors_until_the_stream_has_passed():
    together = threading.Barrier(2)

    def body(comm):
        with reference.new_group(comm, num_experts=2) as group:
            x, rows, counts = (
                numpy.ones((2, 8), numpy.float32),
                numpy.zeros((1, 16, 8), numpy.float32),
                numpy.zeros(1, numpy.int32),
            )
            idx = numpy.full((2, 1), 1 - comm.rank, numpy.int64)
            handle = group.create_handle(Layout.EXPERT_MAJOR, idx)
            if comm.rank == 1:
                together.wait(10)  # comes when rank 0 has dropped everything
            handle.dispatch(
                DispatchInputs(tokens=x), DispatchOutputs(tokens=rows), layout_info=LayoutInfo(expert_counters=counts)
            )
            buffers = [weakref.ref(buffer) for buffer in (x, rows, counts)]
            del x, rows, counts
            gc.collect()
            if comm.rank == 0:
                assert all(buffer() is not None for buffer in buffers)
                together.wait(10)
            comm.stream.synchronize()
            gc.collect()
            assert all(buffer() is None for buffer in buffers)
            del idx
            handle.close()

    on_ranks(2, body)


def test_an_unused_handle_and_stream_go_only_when_nothing_runs():
    together = threading.Barrier(2)

    def body(comm):
        group = reference.new_group(comm, num_experts=2)
        for attempt in range(3):
            x, rows = numpy.ones((2, 8), numpy.float32), numpy.zeros((1, 16, 8), numpy.float32)
            handle = group.create_handle(Layout.EXPERT_MAJOR, numpy.full((2, 1), 1 - comm.rank, numpy.int64))
            stream = switchyard.Stream()
            if comm.rank == 1:
                together.wait(10)
            handle.dispatch(
                DispatchInputs(tokens=x),
                DispatchOutputs(tokens=rows),
                stream=stream,
                layout_info=LayoutInfo(expert_counters=numpy.zeros(1, numpy.int32)),
            )
            del handle, stream
            gc.collect()
            if comm.rank == 0:
                assert len(group._handles) == 1  # that rank 1 has not come to
                together.wait(10)
            deadline = time.monotonic() + 10
            while not group._used.idle:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            assert (rows[0, :2] == 1).all()
            group._drop_unused()
            assert not group._handles
            comm.barrier()
        group.close()

    on_ranks(2, body)


def num_threads():
    return len(os.listdir("/proc/self/task"))


def test_streams_that_are_used_once_go():
    def body(comm):
        with small_moe(comm) as moe:
            before = num_threads()
            for _ in range(200):
                comm.all_reduce(numpy.ones(1), stream=switchyard.Stream())
                moe.group._note(switchyard.Stream())
            deadline = time.monotonic() + 10
            while not comm._used.idle or not moe.group._used.idle:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            comm.all_reduce(numpy.ones(1), stream=switchyard.Stream())
            round_trip(comm, moe)
            assert num_threads() < before + 5

    on_ranks(1, body)


def test_rows_are_given_out_again_when_nobody_sees_them():
    def body(comm):
        with small_moe(comm) as moe:
            x, idx, weights = batch(comm)

            def dispatch():
                return moe.dispatch(x, idx, weights)[0].tokens

            addresses = {dispatch().ctypes.data for _ in range(20)}
            assert len(addresses) == 1
            for keep in (
                lambda rows: rows,
                lambda rows: rows[1:],
                lambda rows: rows[1:][:1].view(numpy.uint8)[0, 3:],
                lambda rows: memoryview(rows),
                lambda rows: numpy.asarray(memoryview(rows)),
                lambda rows: Tensor(rows),
                lambda rows: iter(rows),
            ):
                rows = dispatch()
                address, seen = rows.ctypes.data, keep(rows)
                del rows
                others = [dispatch() for _ in range(12)]
                assert address not in [other.ctypes.data for other in others]
                assert len({other.ctypes.data for other in others}) == len(others)
                del others, seen
            rows = [dispatch() for _ in range(4)]
            assert all((one[: len(x)] == x).all() for one in rows)

    on_ranks(1, body)


def test_closed_objects_say_so():
    def body(comm):
        moe = small_moe(comm)
        x, idx, weights = batch(comm)
        recv, state = moe.dispatch(x, idx, weights)
        handle = state.handle
        handle.close()
        handle.close()
        with pytest.raises(InvalidUsage, match="the handle is closed"):
            moe.combine(recv.tokens, state)
        moe.close()
        moe.close()
        assert moe.closed
        with pytest.raises(InvalidUsage, match="is closed"):
            moe.dispatch(x, idx, weights)
        group = reference.new_group(comm)
        assert group.memory_bytes >= 0
        comm.close()
        assert group.closed
        with pytest.raises(InvalidUsage, match="is closed"):
            group.memory_bytes
        with pytest.raises(InvalidUsage, match="is closed"):
            comm.all_reduce(x)
        with pytest.raises(InvalidUsage, match="is closed"):
            reference.new_group(comm)

    on_ranks(2, body)


def test_a_split_communicator_outlives_the_one_it_was_split_from():
    def body(comm):
        half = comm.split(0)
        comm.close()
        with small_moe(half) as moe:
            round_trip(half, moe)
        total = half.all_reduce(numpy.ones(1))
        half.close()
        return float(total[0])

    assert on_ranks(2, body) == [2.0, 2.0]


def test_arrays_in_a_window_outlive_it():
    def body(comm):
        memory = switchyard.SymmetricMemory(comm, 4096)
        array = memory.array((4, 8), "float32")
        array[:] = comm.rank
        with pytest.raises(InvalidArgument, match="out is .* at byte 4000, its window has 4096 bytes"):
            memory.tensor((4, 8), "float32", offset=4000, name="out")
        memory.close()
        with pytest.raises(InvalidUsage, match="the memory is closed"):
            memory.num_bytes
        return array

    for rank, array in enumerate(on_ranks(2, body)):
        assert (array == rank).all()


def test_the_gil_is_free_during_a_wait():
    def body(comm):
        moe = small_moe(comm)
        counted = 0
        if comm.rank == 1:  # rank 0 waits in its dispatch meanwhile; with the GIL it would keep this loop from running
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                counted += 1
        round_trip(comm, moe)
        return counted

    assert on_ranks(2, body)[1] > 1000


def test_a_limit_that_passes_leaves_the_operation_alone():
    together = threading.Barrier(2)

    def body(comm):
        x = comm.all_reduce(numpy.ones(1))  # the first one is where ranks make their buffers
        stream = switchyard.Stream()
        if comm.rank == 0:
            y = comm.all_reduce(x, stream=stream)
            with pytest.raises(switchyard.TimeoutError, match="have not run within 0.05 s"):
                stream.synchronize(timeout=0.05)
            together.wait(10)
        else:
            together.wait(10)
            y = comm.all_reduce(x, stream=stream)
        stream.synchronize()
        return float(y[0])

    assert on_ranks(2, body) == [4.0, 4.0]


def test_ranks_that_disagree_all_learn_it_and_go_on():
    def body(comm):
        with pytest.raises(SwitchyardError, match="num_experts is . on rank . and . on rank ."):
            reference.new_group(comm, num_experts=4 + comm.rank)
        with pytest.raises(SwitchyardError, match="max_token_bytes is .* on rank"):
            small_moe(comm, hidden=8 + 8 * comm.rank)
        with pytest.raises(SwitchyardError, match="num_topk is . on rank"):
            small_moe(comm, experts=4, topk=1 + comm.rank)
        with reference.new_group(comm, num_experts=2) as group:
            with small_moe(comm) as moe:
                round_trip(comm, moe)
            assert group.local_experts == [comm.rank]

    on_ranks(2, body)


def test_use_after_abort():
    def body(comm):
        moe = small_moe(comm)
        round_trip(comm, moe)
        comm.barrier()
        if comm.rank == 0:
            comm.abort("the test says so")
        x, idx, weights = batch(comm)
        for call in (lambda: moe.dispatch(x, idx, weights), comm.barrier, lambda: small_moe(comm)):
            begin = time.monotonic()
            with pytest.raises(RemoteError if comm.rank else InvalidUsage, match="abort"):
                for _ in range(100):  # rank 1 hears of it by and by
                    call()
            assert time.monotonic() - begin < 5

    begin = time.monotonic()
    try:
        on_ranks(2, body)
    except RemoteError:
        pass  # closing may say it, too
    assert time.monotonic() - begin < 10


def test_an_exception_in_a_with_block_is_what_one_sees_and_ends_the_others():
    def body(comm):
        moe = small_moe(comm)
        round_trip(comm, moe)
        if comm.rank == 1:
            raise KeyError("of the program")
        with pytest.raises(RemoteError, match="of the program|abort"):
            round_trip(comm, moe)

    begin = time.monotonic()
    with pytest.raises((KeyError, RemoteError)):
        on_ranks(2, body)
    assert time.monotonic() - begin < 5


def test_a_stream_that_goes_in_a_forked_child_goes_quietly():
    stream = switchyard.Stream()
    child = os.fork()
    if child == 0:
        ignored = []
        sys.unraisablehook = ignored.append
        del stream
        os._exit(len(ignored))
    _, status = os.waitpid(child, 0)
    assert status == 0
    stream.synchronize()


def test_a_forked_child_leaves_everything_alone():
    comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    moe = small_moe(comm)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                moe.group.memory_bytes
            except InvalidUsage as error:
                status = 0 if "fork" in str(error) else 2
            del moe
            comm.close()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    round_trip(comm, moe)
    comm.close()
