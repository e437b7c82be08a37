"""The Python package on a GPU: torch's tensors and streams, without copies and without waiting. Ranks are threads of this
process that share one GPU. Needs torch with CUDA, and the package built by scripts/gpu/build.sh; `scripts/gpu/run.sh` runs it.
"""

import sys
import threading
import time
import traceback

import numpy
import torch

import switchyard
import switchyard.torch

HIDDEN, TOPK, EXPERTS, TOKENS = 1024, 4, 16, 64


def on_ranks(num_ranks, body):
    """Runs body(comm, stream) on a thread for each rank, with a stream of its own as torch's current one. Raises what one
    of them raised."""
    unique_id = switchyard.make_unique_id()
    errors = []

    def run(rank):
        try:
            torch.cuda.set_device(0)
            # Non-blocking: ranks wait for each other inside kernels, and the default stream would order these.
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                comm = switchyard.init(unique_id=unique_id, rank=rank, num_ranks=num_ranks, device="cuda")
                body(comm, stream)
                comm.close()
        except BaseException:
            errors.append("rank %d: %s" % (rank, traceback.format_exc()))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, "\n".join(errors)


def batch(rank, dtype, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    x = torch.randn(TOKENS, HIDDEN, generator=generator).to(dtype)
    topk_idx = torch.stack([torch.randperm(EXPERTS, generator=generator)[:TOPK] for _ in range(TOKENS)])
    topk_weights = torch.rand(TOKENS, TOPK, generator=generator)
    return x.cuda(), topk_idx.cuda(), topk_weights.cuda()


def expected(x, topk_idx, topk_weights):
    """Expert e multiplies its rows by e + 1."""
    factors = (topk_weights * (topk_idx + 1)).sum(-1, keepdim=True)
    return x.float() * factors


def factors_of(moe, dtype=torch.float32):
    return torch.tensor(moe.local_experts, device="cuda", dtype=dtype).add_(1)  # waits for the device


def apply_experts(factors, recv):
    return (recv.tokens.view(len(factors), -1, HIDDEN) * factors[:, None, None]).view_as(recv.tokens)


def warm_up():
    """Loads the kernels that the tests use: loading waits for all that runs on the device, kernels that wait for each
    other included."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x, topk_idx, topk_weights = batch(0, dtype)
        expected(x, topk_idx, topk_weights)
        blocks = torch.empty(EXPERTS, 8, HIDDEN, dtype=dtype, device="cuda")
        factors = torch.tensor(list(range(EXPERTS)), device="cuda", dtype=dtype).add_(1)
        torch.allclose((blocks * factors[:, None, None]).float(), blocks.float())
        x.copy_(x * 2)
        (x - x).abs().max().item()
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()


def test_round_trips_of_every_type(num_ranks):
    barrier = threading.Barrier(num_ranks)

    def body(comm, stream):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 4e-3)):
            moe = switchyard.MoE(comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, dtype=dtype, max_tokens=TOKENS, timeout=20)
            x, topk_idx, topk_weights = batch(comm.rank, dtype)
            want, factors = expected(x, topk_idx, topk_weights), factors_of(moe, dtype)
            for _ in range(3):
                recv, state = moe.dispatch(x, topk_idx, topk_weights)
                y = moe.combine(apply_experts(factors, recv), state)
                assert y.device == x.device and y.dtype == dtype
                error = ((y.float() - want).abs() / want.abs().clamp_min(1)).max().item()
                assert error <= tolerance, (dtype, error)
            barrier.wait()
            moe.close()

    on_ranks(num_ranks, body)


def test_calls_follow_the_stream_and_nobody_waits(num_ranks):
    """x gets its values late, by work queued before; the calls return long before that has run."""
    took = []

    def body(comm, stream):
        moe = switchyard.MoE(comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens=TOKENS, timeout=20)
        right, topk_idx, topk_weights = batch(comm.rank, torch.float32, seed=7)
        want, factors = expected(right, topk_idx, topk_weights), factors_of(moe)
        x = torch.zeros_like(right)
        for round_number in range(2):  # the first one loads kernels and fills torch's cache of memory
            x.zero_()
            stream.synchronize()
            comm.barrier()
            begin = time.perf_counter()
            torch.cuda._sleep(400_000_000)  # 0.2 s or more
            x.copy_(right)
            recv, state = moe.dispatch(x, topk_idx, topk_weights)
            y = moe.combine(apply_experts(factors, recv), state)
            x.zero_()  # after the combine, for who keeps to the order
            posted = time.perf_counter() - begin
            stream.synchronize()
            finished = time.perf_counter() - begin
            assert ((y - want).abs() / want.abs().clamp_min(1)).max().item() <= 1e-5
        assert posted < finished / 4, (posted, finished)
        took.append((posted, finished))
        moe.close()

    on_ranks(num_ranks, body)
    print("    posted after %.1f ms, finished after %.0f ms" % tuple(1e3 * seconds for seconds in max(took)))


class OnlyInterface:
    """A CUDA array of a library that nobody knows."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__
        self._tensor = tensor


class OnlyDlpack:
    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack__(self, stream=None):
        return self._tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


def test_handles_take_any_cuda_array_and_stream(num_ranks):
    """Also shows that nothing is copied: results are in the memory that was given."""

    def body(comm, stream):
        other = torch.cuda.Stream()
        x, topk_idx, topk_weights = batch(comm.rank, torch.float32, seed=3)
        want = expected(x, topk_idx, topk_weights)
        group = switchyard.Group(
            comm,
            switchyard.GroupConfig(
                num_experts=EXPERTS,
                max_dispatch_tokens_per_rank=TOKENS,
                max_token_bytes=4 * HIDDEN,
                num_topk=TOPK,
                timeout_ns=20_000_000_000,
            ),
        )
        num_local, rows_per_expert = len(group.local_experts), group.rows_per_expert
        memory = switchyard.SymmetricMemory(comm, num_local * rows_per_expert * HIDDEN * 4)
        shape = (num_local, rows_per_expert, HIDDEN)
        plain = torch.zeros(shape, device="cuda")
        counts = torch.zeros(num_local, dtype=torch.int32, device="cuda")
        factors = torch.tensor(group.local_experts, device="cuda", dtype=torch.float32).add_(1)
        stream.synchronize()
        handle = group.create_handle(switchyard.Layout.EXPERT_MAJOR, OnlyInterface(topk_idx), stream=other)
        for queue, rows, given in (
            (other, plain, OnlyDlpack(plain)),
            (other.cuda_stream, plain, OnlyInterface(plain)),
            (switchyard.CudaStream(comm, other), torch.as_tensor(memory.array(shape, "float32"), device="cuda"),
             memory.tensor(shape, "float32")),
        ):
            y = torch.zeros_like(x)
            stream.synchronize()
            handle.dispatch(
                switchyard.DispatchInputs(tokens=OnlyDlpack(x)),
                switchyard.DispatchOutputs(tokens=given),
                layout_info=switchyard.LayoutInfo(expert_counters=counts),
                stream=queue,
            )
            with torch.cuda.stream(other):
                rows *= factors[:, None, None]
            handle.combine(
                switchyard.CombineInputs(tokens=given),
                switchyard.CombineOutputs(tokens=y, topk_weights=topk_weights),
                stream=queue,
            )
            switchyard.CudaStream(comm, other).synchronize(timeout=20)
            assert ((y - want).abs() / want.abs().clamp_min(1)).max().item() <= 1e-5
        comm.barrier()
        del rows
        memory.close()
        handle.close()
        group.close()

    on_ranks(num_ranks, body)


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
        return
    raise AssertionError("not refused: %s" % (words,))


def test_bad_input_is_refused_and_the_group_goes_on(num_ranks):
    def body(comm, stream):
        assert comm.device == "cuda:0"
        moe = switchyard.MoE(comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens=TOKENS, timeout=20)
        x, topk_idx, topk_weights = batch(comm.rank, torch.float32)
        factors = factors_of(moe)
        argument = switchyard.InvalidArgument
        refused(argument, ["topk_idx", "host's memory"], lambda: moe.dispatch(x, topk_idx.cpu(), topk_weights))
        refused(argument, ["host's memory"], lambda: moe.dispatch(x.cpu(), topk_idx, topk_weights))
        refused(argument, ["not contiguous"], lambda: moe.dispatch(x.t().contiguous().t(), topk_idx, topk_weights))
        refused(argument, ["x is", "float16"], lambda: moe.dispatch(x.half(), topk_idx, topk_weights))
        on_host = numpy.ones((TOKENS, HIDDEN), numpy.float32)
        refused(argument, ["x is", "host's memory"], lambda: moe.dispatch(on_host, topk_idx, topk_weights))
        refused(argument, ["torch tensors"], lambda: moe.dispatch(OnlyInterface(x), topk_idx, topk_weights))
        refused(argument, ["stream is a Stream", "cuda:0"], lambda: comm.stream_of(switchyard.Stream()))
        refused(switchyard.InvalidUsage, ["high-throughput"], lambda: switchyard.MoE(
            comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, mode="ht"))
        refused(argument, ["device"], lambda: switchyard.init(device="tpu"))
        refused(argument, ["CUDA device 64"], lambda: switchyard.init(
            unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1, device="cuda:64"))
        recv, state = moe.dispatch(x, topk_idx, topk_weights)
        refused(argument, ["expert_out"], lambda: moe.combine(recv.tokens[:1], state))
        y = moe.combine(apply_experts(factors, recv), state)
        want = expected(x, topk_idx, topk_weights)
        assert ((y - want).abs() / want.abs().clamp_min(1)).max().item() <= 1e-5
        moe.close()

    on_ranks(num_ranks, body)


def test_sharded_experts(num_ranks):
    def body(comm, stream):
        moe = switchyard.MoE(comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens=TOKENS, timeout=20)

        def make(expert):
            layer = torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
            with torch.no_grad():
                layer.weight.copy_(torch.eye(HIDDEN) * (expert + 1))
            return layer.cuda()

        layer = switchyard.torch.ExpertParallel(moe, make)
        x, topk_idx, topk_weights = batch(comm.rank, torch.float32, seed=5)
        want = expected(x, topk_idx, topk_weights)
        stream.synchronize()
        with torch.no_grad():
            for expert in layer.experts.values():
                expert(x)  # loads what a matrix product needs, before any kernel waits
            stream.synchronize()
            comm.barrier()
            y = layer(x, topk_idx, topk_weights)
        assert ((y - want).abs() / want.abs().clamp_min(1)).max().item() <= 1e-2  # TF32 may be in use
        moe.close()

    on_ranks(num_ranks, body)


def time_round_trips(num_ranks, rounds=200):
    """Microseconds on the host to post a round trip, and from end to end when many are posted."""
    took = []

    def body(comm, stream):
        moe = switchyard.MoE(comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, dtype="bfloat16", max_tokens=TOKENS, timeout=20)
        x, topk_idx, topk_weights = batch(comm.rank, torch.bfloat16)
        for measured in (20, rounds):
            stream.synchronize()
            comm.barrier()
            begin = time.perf_counter()
            for _ in range(measured):
                recv, state = moe.dispatch(x, topk_idx, topk_weights)
                moe.combine(recv.tokens, state)
            posted = time.perf_counter() - begin
            stream.synchronize()
            finished = time.perf_counter() - begin
        took.append((1e6 * posted / rounds, 1e6 * finished / rounds))
        moe.close()

    on_ranks(num_ranks, body)
    print("    %d ranks: %.1f us to post a round trip, %.1f us a round trip" % (num_ranks, *max(took)))


def main():
    warm_up()
    tests = [value for name, value in list(globals().items()) if name.startswith("test_")]
    for num_ranks in (1, 2, 4):
        for test in tests:
            test(num_ranks)
            print("%s, %d ranks: ok" % (test.__name__, num_ranks), flush=True)
        time_round_trips(num_ranks)


if __name__ == "__main__":
    sys.exit(main())
