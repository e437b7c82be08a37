"""torch: gradients, experts over ranks, process groups. Debian's torch 1.13 will do."""

import os

import numpy
import pytest

import switchyard
from switchyard import InvalidArgument, InvalidUsage, MoE

torch = pytest.importorskip("torch", reason="torch is not installed: no tests of switchyard.torch")
import switchyard.torch  # noqa: E402

HIDDEN, TOPK = 16, 2


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def make_expert(number):
    generator = torch.Generator().manual_seed(100 + number)
    linear = torch.nn.Linear(HIDDEN, HIDDEN)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(HIDDEN, HIDDEN, generator=generator) / 4)
        linear.bias.copy_(torch.randn(HIDDEN, generator=generator) / 4)
    return torch.nn.Sequential(linear, torch.nn.Tanh())


def batch(rank, num_tokens, num_experts, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(num_tokens, HIDDEN, generator=generator).to(dtype)
    scores = torch.randn(num_tokens, num_experts, generator=generator)
    weights, idx = torch.softmax(scores, -1).topk(TOPK)
    return x, idx, weights


def layer(experts, x, idx, weights):
    """The layer in one process."""
    y = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        token, k = (idx == number).nonzero(as_tuple=True)
        y = y.index_add(0, token, expert(x[token]) * weights[token, k, None])
    return y


def leaf(tensor):
    return tensor.clone().requires_grad_()


@pytest.mark.parametrize("num_tokens", [6, 0])
def test_gradients_are_those_of_the_layer_in_one_process(comm, num_tokens):
    num_experts = 2 * comm.num_ranks
    with MoE(comm, experts=num_experts, topk=TOPK, hidden=HIDDEN, max_tokens=8, training=True) as moe:
        sharded = switchyard.torch.ExpertParallel(moe, make_expert)
        # Rank 0 may have no tokens; its experts have work nevertheless.
        sizes = [num_tokens if rank == 0 else 6 for rank in range(comm.num_ranks)]
        x, idx, weights = batch(comm.rank, sizes[comm.rank], num_experts)
        x, weights = leaf(x), leaf(weights)
        y = sharded(x, idx, weights)
        (y * torch.arange(HIDDEN)).sum().backward()

        experts = [make_expert(number) for number in range(num_experts)]
        inputs = [batch(rank, sizes[rank], num_experts) for rank in range(comm.num_ranks)]
        inputs = [(leaf(a), b, leaf(c)) for a, b, c in inputs]
        expected = [layer(experts, *one) for one in inputs]
        sum((one * torch.arange(HIDDEN)).sum() for one in expected).backward()
        assert torch.allclose(y, expected[comm.rank], atol=1e-6)
        assert torch.allclose(x.grad, inputs[comm.rank][0].grad, atol=1e-5)
        assert torch.allclose(weights.grad, inputs[comm.rank][2].grad, atol=1e-5)
        for number in moe.local_experts:
            for mine, theirs in zip(sharded.experts[str(number)].parameters(), experts[number].parameters()):
                mine_grad = torch.zeros_like(mine) if mine.grad is None else mine.grad
                theirs_grad = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
                assert torch.allclose(mine_grad, theirs_grad, rtol=1e-4, atol=1e-5)


def test_a_rank_whose_experts_get_nothing_takes_part_in_the_backward(comm):
    with MoE(comm, experts=comm.num_ranks, topk=1, hidden=HIDDEN, max_tokens=8, training=True) as moe:
        sharded = switchyard.torch.ExpertParallel(moe, make_expert)
        x = leaf(torch.ones(4, HIDDEN))
        y = sharded(x, torch.zeros(4, 1, dtype=torch.int64), torch.ones(4, 1))  # all to expert 0
        y.sum().backward()
        one = leaf(torch.ones(4, HIDDEN))
        make_expert(0)(one).sum().backward()
        assert torch.allclose(x.grad, one.grad, atol=1e-6)


def test_the_same_where_only_experts_have_gradients(comm):
    with MoE(comm, experts=comm.num_ranks, topk=1, hidden=HIDDEN, max_tokens=8, training=True) as moe:
        sharded = switchyard.torch.ExpertParallel(moe, make_expert)
        sharded(torch.ones(4, HIDDEN), torch.zeros(4, 1, dtype=torch.int64), torch.ones(4, 1)).sum().backward()
        gradients = [parameter.grad is not None for parameter in sharded.parameters()]
        assert all(gradients) if comm.rank == 0 else not any(gradients)


@pytest.mark.parametrize("mode", ["ll", "ht"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_inference_in_both_modes(comm, mode, dtype):
    num_experts = 2 * comm.num_ranks
    with (
        MoE(comm, experts=num_experts, topk=TOPK, hidden=HIDDEN, dtype=dtype, max_tokens=8, mode=mode) as moe,
        torch.no_grad(),
    ):
        x, idx, weights = batch(comm.rank, 5, num_experts, dtype)
        recv, state = switchyard.torch.dispatch(moe, x, idx, weights)
        assert recv.tokens.dtype == dtype
        y = switchyard.torch.combine(moe, recv.tokens, state)
        tolerance = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
        assert torch.allclose(y.float(), x.float() * weights.sum(1, keepdim=True), rtol=tolerance, atol=tolerance)
        if dtype == torch.float32:
            sharded = switchyard.torch.ExpertParallel(moe, [make_expert(number) for number in range(num_experts)])
            expected = layer([make_expert(number) for number in range(num_experts)], x, idx, weights)
            assert torch.allclose(sharded(x[None], idx[None], weights[None])[0], expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["ll", "ht"])
def test_experts_may_compute_in_another_type(comm, mode):
    with MoE(comm, experts=2 * comm.num_ranks, topk=TOPK, hidden=HIDDEN, max_tokens=8, mode=mode) as moe:
        sharded = switchyard.torch.ExpertParallel(moe, make_expert)
        x, idx, weights = batch(comm.rank, 6, 2 * comm.num_ranks)
        with torch.set_grad_enabled(mode == "ht"), torch.autocast("cpu", dtype=torch.bfloat16):
            y = sharded(x, idx, weights)
        assert y.dtype == torch.float32
        expected = layer([make_expert(number) for number in range(2 * comm.num_ranks)], x, idx, weights)
        assert torch.allclose(y, expected, atol=5e-2)
        if mode == "ht":
            y.sum().backward()
            assert any(parameter.grad is not None for parameter in sharded.parameters())


def test_what_does_not_fit_is_refused_by_name(comm):
    with MoE(comm, experts=comm.num_ranks, topk=TOPK, hidden=HIDDEN, max_tokens=8, mode="ll") as moe, torch.no_grad():
        x, idx, weights = torch.ones(2, HIDDEN), torch.zeros(2, TOPK, dtype=torch.int64), torch.ones(2, TOPK)

        def run(x=x, idx=idx, weights=weights, expert=lambda number, rows: rows):
            return switchyard.torch.run_experts(moe, expert, x, idx, weights)

        for changes, why in (
            (dict(idx=idx.reshape(4, 1)), "topk_idx is .4, 1., must be .2, 2."),
            (dict(weights=weights[:, :1]), "topk_weights is .2, 1., must be .2, 2."),
            (dict(x=x[:, :8]), "x is .2, 8., must be .2, 16."),
            (dict(x=x.numpy()), "x is a ndarray, must be a Tensor"),
        ):
            with pytest.raises(InvalidArgument, match=why):
                run(**changes)
        assert torch.allclose(run(), 2 * x)
        for call, why in (
            (lambda: switchyard.torch.dispatch(moe, x.numpy(), idx, weights), "x is a ndarray"),
            (lambda: switchyard.torch.dispatch(moe, x, idx, None), "topk_weights is None"),
            (lambda: switchyard.torch.combine(moe, x, None), "state is None"),
            (lambda: switchyard.torch.ExpertParallel(None, make_expert), "moe is None"),
            (lambda: switchyard.torch.sum_gradients(torch.nn.Linear(1, 1), None), "comm is None"),
        ):
            with pytest.raises(InvalidArgument, match=why):
                call()


def test_gradients_do_not_get_lost_silently(comm):
    with MoE(comm, experts=comm.num_ranks, topk=1, hidden=HIDDEN, max_tokens=8, mode="ll") as moe:
        x, idx, weights = (
            torch.ones(2, HIDDEN, requires_grad=True),
            torch.zeros(2, 1, dtype=torch.int64),
            torch.ones(2, 1),
        )
        with pytest.raises(InvalidUsage, match="requires a gradient"):
            moe.dispatch(x, idx, weights)
        with pytest.raises(InvalidUsage, match="low latency has no backward pass"):
            switchyard.torch.dispatch(moe, x, idx, weights)


def test_shared_gradients_add_up(comm):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1, bias=False))
    model[1].weight.expert_parallel = True
    model[0].weight.grad = torch.full((2, 3), 1.0 + comm.rank)
    model[1].weight.grad = torch.ones(1, 2)
    switchyard.torch.sum_gradients(model, comm)
    assert (model[0].weight.grad == sum(range(1, comm.num_ranks + 1))).all()
    assert (model[0].bias.grad == 0).all()
    assert (model[1].weight.grad == 1).all()


def test_collectives_of_torch_tensors(comm):
    x = torch.full((3,), 1.0 + comm.rank, dtype=torch.bfloat16)
    assert comm.all_gather(x).shape == (comm.num_ranks, 3)
    total = comm.all_reduce(x)
    assert total.dtype == torch.bfloat16 and (total == sum(range(1, comm.num_ranks + 1))).all()


def test_a_communicator_from_a_process_group(comm, tmp_path_factory):
    if "SWITCHYARD_RANK" not in os.environ:
        pytest.skip("needs a launcher")
    import torch.distributed as dist

    path = numpy.zeros(256, numpy.uint8)
    if comm.rank == 0:
        name = str(tmp_path_factory.mktemp("store") / "file").encode()
        path[: len(name)] = list(name)
    path = bytes(comm.broadcast(path)).rstrip(b"\0").decode()
    dist.init_process_group("gloo", init_method="file://" + path, rank=comm.rank, world_size=comm.num_ranks)
    try:
        with switchyard.torch.init() as from_torch:
            assert (from_torch.rank, from_torch.num_ranks) == (comm.rank, comm.num_ranks)
            from_torch.barrier()
        members = list(range(comm.num_ranks))[-2:]
        group = dist.new_group(members)
        if comm.rank in members:
            with switchyard.torch.init(group) as some:
                assert (some.rank, some.num_ranks) == (members.index(comm.rank), len(members))
    finally:
        dist.destroy_process_group()
