"""Groups and handles: every layout, windows, halves, scales, masks, with NumPy arrays and exact expectations."""

import numpy
import pytest

import reference
import switchyard
from switchyard import (
    CombineConfig,
    CombineInputs,
    CombineOutputs,
    DispatchConfig,
    DispatchInputs,
    DispatchOutputs,
    Layout,
    LayoutInfo,
    PassDir,
)

HIDDEN, TOPK = 16, 3


@pytest.fixture
def batch(comm, rng):
    num_tokens = 3 + comm.rank % 4
    x = rng.integers(-8, 8, (num_tokens, HIDDEN)).astype(numpy.float32)
    idx, weights = reference.routing(rng, num_tokens, 3 * comm.num_ranks + 1, TOPK)
    return x, idx, weights


def factor(expert):
    return numpy.float32(1 + expert % 5)


def weighted_sum(x, idx, weights):
    y = numpy.zeros_like(x)
    for k in range(idx.shape[1]):
        scale = numpy.where(idx[:, k] >= 0, 1 + idx[:, k] % 5, 0).astype(numpy.float32)
        y = y + x * scale[:, None] * weights[:, k, None]
    return y


@pytest.mark.parametrize("in_window", [False, True])
@pytest.mark.parametrize("staged", [False, True])
def test_low_latency_expert_major(comm, batch, in_window, staged):
    x, idx, weights = batch
    with reference.new_group(comm) as group:
        num_local = len(group.local_experts)
        shape = (num_local, group.rows_per_expert, HIDDEN)
        # All ranks share windows of one size.
        memory = switchyard.SymmetricMemory(comm, 5 * shape[1] * HIDDEN * 4) if in_window else None
        rows = memory.array(shape, "float32") if memory else numpy.zeros(shape, numpy.float32)
        place = memory.tensor(shape, "float32") if memory else switchyard.Tensor(rows)
        counts = numpy.zeros(num_local, numpy.int32)
        y = numpy.zeros_like(x)
        handle = group.create_handle(Layout.EXPERT_MAJOR, idx)
        handle.dispatch(
            DispatchInputs(tokens=x),
            DispatchOutputs(tokens=place),
            layout_info=LayoutInfo(expert_counters=counts),
            config=DispatchConfig(send_only=staged),
        )
        handle.complete()
        comm.stream.synchronize()
        xs, idxs = reference.everybodys(comm, x, 8), reference.everybodys(comm, idx, 8)
        for local, expert in enumerate(group.local_experts):
            expected = reference.expected_rows(xs, idxs, expert)
            assert counts[local] == len(expected)
            for row, (_, _, _, values) in zip(rows[local], expected):
                assert (row == values).all()
            rows[local, : counts[local]] *= factor(expert)
        handle.combine(
            CombineInputs(tokens=place),
            CombineOutputs(tokens=y, topk_weights=weights),
            config=CombineConfig(send_only=staged),
        )
        handle.complete()
        comm.stream.synchronize()
        assert numpy.allclose(y, weighted_sum(x, idx, weights), rtol=1e-6)
        comm.barrier()


def test_low_latency_rank_major(comm, batch):
    x, idx, weights = batch
    with reference.new_group(comm) as group:
        ranks, most = comm.num_ranks, group.config.max_dispatch_tokens_per_rank
        rows = numpy.zeros((ranks, most, HIDDEN), numpy.float32)
        ids = numpy.zeros((ranks, most, TOPK), numpy.int32)
        row_weights = numpy.zeros((ranks, most, TOPK), numpy.float32)
        counts = numpy.zeros(ranks, numpy.int32)
        y = numpy.zeros_like(x)
        handle = group.create_handle(Layout.RANK_MAJOR, idx)
        handle.dispatch(
            DispatchInputs(tokens=x, topk_weights=weights),
            DispatchOutputs(tokens=rows, topk_weights=row_weights, topk_idx=ids),
            layout_info=LayoutInfo(src_rank_counters=counts, recv_topk_idx_kind=switchyard.ExpertIdKind.GLOBAL),
        )
        comm.stream.synchronize()
        idxs = reference.everybodys(comm, idx, 8)
        assert list(counts) == [int(numpy.isin(other, group.local_experts).any(1).sum()) for other in idxs]
        for source in range(ranks):
            for row in range(counts[source]):
                hit = [(factor(e), w) for e, w in zip(ids[source, row], row_weights[source, row]) if e >= 0]
                rows[source, row] *= numpy.float32(sum(f * w for f, w in hit))
        handle.combine(CombineInputs(tokens=rows), CombineOutputs(tokens=y))
        comm.stream.synchronize()
        assert numpy.allclose(y, weighted_sum(x, idx, weights), rtol=1e-5)


@pytest.mark.parametrize("budget", [0, 1])
def test_high_throughput_expert_major_forward_and_backward(comm, batch, budget):
    x, idx, weights = batch
    most = comm.num_ranks * 8 * TOPK
    with reference.new_group(
        comm, algorithm=switchyard.Algorithm.HIGH_THROUGHPUT, num_topk=TOPK, max_recv_tokens_per_rank=budget * most
    ) as group:
        num_local = len(group.local_experts)
        counts, offsets, total = (
            numpy.zeros(num_local, numpy.int32),
            numpy.zeros(num_local, numpy.int32),
            numpy.zeros(1, numpy.int32),
        )
        handle = group.create_handle(
            Layout.EXPERT_MAJOR,
            idx,
            config=switchyard.HandleConfig(dispatch_output_per_expert_alignment=4),
            layout_info=LayoutInfo(expert_counters=counts, expert_offsets=offsets, recv_total_counter=total),
        )
        comm.stream.synchronize()
        num_rows = most if budget else int(total[0])
        rows, row_weights = numpy.zeros((num_rows, HIDDEN), numpy.float32), numpy.zeros(num_rows, numpy.float32)
        handle.dispatch(
            DispatchInputs(tokens=x, topk_weights=weights), DispatchOutputs(tokens=rows, topk_weights=row_weights)
        )
        comm.stream.synchronize()
        xs, idxs = reference.everybodys(comm, x, 8), reference.everybodys(comm, idx, 8)
        for local, expert in enumerate(group.local_experts):
            expected = reference.expected_rows(xs, idxs, expert)
            assert counts[local] == (len(expected) + 3) // 4 * 4
            for at, (_, _, _, values) in enumerate(expected, offsets[local]):
                assert (rows[at] == values).all()
            rows[offsets[local] : offsets[local] + counts[local]] *= factor(expert)
        y = numpy.zeros_like(x)
        handle.combine(CombineInputs(tokens=rows * row_weights[:, None]), CombineOutputs(tokens=y))
        comm.stream.synchronize()
        assert numpy.allclose(y, weighted_sum(x, idx, weights), rtol=1e-5)

        # Backward: gradients go out as tokens went; a number for each row comes back to its place among the token's k.
        back = DispatchConfig(pass_direction=PassDir.BWD)
        gradient_rows = numpy.zeros_like(rows)
        handle.dispatch(DispatchInputs(tokens=x), DispatchOutputs(tokens=gradient_rows), config=back)
        comm.stream.synchronize()
        numbers = numpy.zeros(num_rows, numpy.float32)
        for local, expert in enumerate(group.local_experts):
            numbers[offsets[local] : offsets[local] + counts[local]] = 100 + expert
        dx, dweights = numpy.zeros_like(x), numpy.zeros_like(weights)
        handle.combine(
            CombineInputs(tokens=gradient_rows, topk_weights=numbers),
            CombineOutputs(tokens=dx, topk_weights=dweights),
            config=CombineConfig(pass_direction=PassDir.BWD),
        )
        comm.stream.synchronize()
        assert (dx == x * (idx >= 0).sum(1, keepdims=True)).all()
        assert (dweights == numpy.where(idx >= 0, 100 + idx, 0)).all()


def test_high_throughput_flat(comm, batch):
    x, idx, weights = batch
    with reference.new_group(comm, algorithm=switchyard.Algorithm.HIGH_THROUGHPUT) as group:
        total = numpy.zeros(1, numpy.int64)
        handle = group.create_handle(Layout.FLAT, idx, layout_info=LayoutInfo(recv_total_counter=total))
        comm.stream.synchronize()
        rows = numpy.zeros((int(total[0]), HIDDEN), numpy.float32)
        ids, row_weights = numpy.zeros((len(rows), TOPK), numpy.int64), numpy.zeros((len(rows), TOPK), numpy.float32)
        handle.dispatch(
            DispatchInputs(tokens=x, topk_weights=weights),
            DispatchOutputs(tokens=rows, topk_weights=row_weights, topk_idx=ids),
            layout_info=LayoutInfo(recv_topk_idx_kind=switchyard.ExpertIdKind.GLOBAL),
        )
        comm.stream.synchronize()
        for row in range(len(rows)):
            rows[row] *= numpy.float32(sum(factor(e) * w for e, w in zip(ids[row], row_weights[row]) if e >= 0))
        y = numpy.zeros_like(x)
        handle.combine(CombineInputs(tokens=rows), CombineOutputs(tokens=y))
        comm.stream.synchronize()
        assert numpy.allclose(y, weighted_sum(x, idx, weights), rtol=1e-5)


def test_forwarded_fp8_and_scales_are_the_same_bytes(comm, rng):
    codes = rng.integers(0, 255, (4, 32)).astype(numpy.uint8)
    scales = rng.random((4, 4)).astype(numpy.float32)
    idx = numpy.full((4, 1), (comm.rank + 1) % comm.num_ranks * 3, numpy.int32)  # one expert of the next rank
    with reference.new_group(comm, num_experts=3 * comm.num_ranks) as group:
        out = numpy.zeros((3, group.rows_per_expert, 32), numpy.uint8)
        out_scales = numpy.zeros((3, group.rows_per_expert, 4), numpy.float32)
        counts = numpy.zeros(3, numpy.int32)
        handle = group.create_handle(Layout.EXPERT_MAJOR, idx)
        handle.dispatch(
            DispatchInputs(tokens=switchyard.Tensor(codes, dtype="float8_e4m3"), scales=scales),
            DispatchOutputs(tokens=switchyard.Tensor(out, dtype="float8_e4m3"), scales=out_scales),
            layout_info=LayoutInfo(expert_counters=counts),
            config=DispatchConfig(quant_recipe=switchyard.DispatchQuant.FWD),
        )
        comm.stream.synchronize()
        before = (comm.rank - 1) % comm.num_ranks
        assert list(counts) == [4, 0, 0]
        assert (out[0, :4] == comm.all_gather(codes)[before]).all()
        assert (out_scales[0, :4] == comm.all_gather(scales)[before]).all()


def test_fused_fp8_and_bfloat16(comm):
    x = numpy.full((2, 128), 0x3F80, numpy.uint16)  # ones in BF16
    with reference.new_group(comm, num_experts=comm.num_ranks, max_token_bytes=256) as group:
        out, scales = numpy.zeros((1, group.rows_per_expert, 128), numpy.uint8), numpy.zeros(
            (1, group.rows_per_expert, 1), numpy.float32
        )
        counts = numpy.zeros(1, numpy.int32)
        handle = group.create_handle(Layout.EXPERT_MAJOR, numpy.full((2, 1), comm.rank, numpy.int64))
        handle.dispatch(
            DispatchInputs(tokens=switchyard.Tensor(x, dtype="bfloat16")),
            DispatchOutputs(tokens=switchyard.Tensor(out, dtype="float8_e4m3"), scales=scales),
            layout_info=LayoutInfo(expert_counters=counts),
            config=DispatchConfig(quant_recipe=switchyard.DispatchQuant.DS_FP8E3M4),
        )
        comm.stream.synchronize()
        assert counts[0] == 2
        assert (out[0, :2] == 0x7E).all()  # 448
        assert numpy.allclose(scales[0, :2] * 448, 1)


def test_masks(comm):
    with reference.new_group(comm, enable_mask=True, num_experts=comm.num_ranks) as group:
        handle = group.create_handle(Layout.EXPERT_MAJOR, numpy.zeros((1, 1), numpy.int64))
        assert (group.mask_query() == 1).all()
        assert not group.async_error()
        if comm.num_ranks > 1:
            # Everybody but the last rank leaves it out; it leaves out everybody else.
            together = [comm.rank != comm.num_ranks - 1] * (comm.num_ranks - 1) + [comm.rank == comm.num_ranks - 1]
            group.mask_update(numpy.array(together, numpy.int32))
            assert (group.mask_query() == numpy.array(together)).all()
            with pytest.raises(switchyard.InvalidArgument, match="can't mask itself"):
                group.mask_update(numpy.arange(comm.num_ranks) != comm.rank)
        with pytest.raises(switchyard.InvalidArgument, match="mask is .* must be"):
            group.mask_update(numpy.ones(comm.num_ranks + 1))
        group.error_clear()
        handle.close()
    with reference.new_group(comm) as group:
        with pytest.raises(switchyard.InvalidUsage, match="without enable_mask"):
            group.mask_query()


def test_memory_of_a_handle_can_be_the_callers(comm, batch):
    x, idx, weights = batch
    with reference.new_group(comm, algorithm=switchyard.Algorithm.HIGH_THROUGHPUT, num_topk=TOPK) as group:
        memory = numpy.zeros(group.handle_memory_bytes(Layout.EXPERT_MAJOR, TOPK), numpy.uint8)
        total = numpy.zeros(1, numpy.int32)
        first = switchyard.Handle(group, Layout.EXPERT_MAJOR, TOPK, memory=memory)
        first.update(idx, layout_info=LayoutInfo(recv_total_counter=total))
        comm.stream.synchronize()
        first.close()
        second = switchyard.Handle(
            group, Layout.EXPERT_MAJOR, TOPK, memory=memory
        )  # goes on with the first one's routing
        rows = numpy.zeros((int(total[0]), HIDDEN), numpy.float32)
        second.dispatch(
            DispatchInputs(tokens=x), DispatchOutputs(tokens=rows), config=DispatchConfig(pass_direction=PassDir.BWD)
        )
        y, none = numpy.zeros_like(x), numpy.zeros(len(rows), numpy.float32)
        second.combine(
            CombineInputs(tokens=rows, topk_weights=none),
            CombineOutputs(tokens=y, topk_weights=numpy.zeros_like(weights)),
            config=CombineConfig(pass_direction=PassDir.BWD),
        )
        comm.stream.synchronize()
        assert (y == x * (idx >= 0).sum(1, keepdims=True)).all()


class OnGpu:
    """Passes for an array of a GPU."""

    def __init__(self, array):
        self.__cuda_array_interface__ = array.__array_interface__


@pytest.mark.parametrize("mode", ["ll", "ht"])
def test_memory_and_streams_of_another_device_are_refused(comm, batch, mode):
    x, idx, weights = batch
    with switchyard.MoE(comm, experts=3 * comm.num_ranks + 1, topk=TOPK, hidden=HIDDEN, max_tokens=8, mode=mode) as moe:
        for arguments, name in (
            ((OnGpu(x), idx, weights), "x"),
            ((x, OnGpu(idx), weights), "topk_idx"),
            ((x, idx, OnGpu(weights)), "topk_weights"),
        ):
            if comm.rank == 0:  # the others are in the next dispatch already
                with pytest.raises(
                    switchyard.InvalidArgument, match=": %s is in a GPU's memory, this communicator needs" % name
                ):
                    moe.dispatch(*arguments)
        with pytest.raises(switchyard.InvalidArgument, match="x is in a GPU's memory"):
            comm.all_reduce(OnGpu(x), out=x)
        with pytest.raises(switchyard.InvalidArgument, match="stream is a int, this communicator runs on cpu"):
            comm.all_reduce(x, stream=1)
        recv, state = moe.dispatch(x, idx, weights)
        out = recv.empty_like()
        for expert, rows, place in recv:
            out[place] = rows * factor(expert)
        numpy.testing.assert_allclose(moe.combine(out, state), weighted_sum(x, idx, weights), rtol=1e-6, atol=1e-5)


def test_devices_that_are_not_there():
    for device in ("tpu", "cuda:x"):
        with pytest.raises(switchyard.InvalidArgument, match="device is '%s', allowed are" % device):
            switchyard.init(device=device)
    one = {"unique_id": switchyard.make_unique_id(), "rank": 0, "num_ranks": 1}
    with pytest.raises(switchyard.SwitchyardError, match="built without CUDA|CUDA device|CUDA driver"):
        switchyard.init(**one, device="cuda:64")
