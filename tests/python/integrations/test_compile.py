"""Operators that torch.compile accepts; needs a current torch (`make test-integrations`)."""

import pytest
import torch

import switchyard
import switchyard.torch
from switchyard import MoE
from switchyard.torch import ops

HIDDEN, TOPK = 16, 2


def inputs(moe, seed, grad):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, HIDDEN, generator=generator)
    weights, idx = torch.softmax(torch.randn(6, moe.experts, generator=generator), -1).topk(TOPK)
    return x.requires_grad_(grad), idx, weights.detach().requires_grad_(grad)


@pytest.fixture(params=["ll", "ht"])
def moe(comm, request):
    with MoE(comm, experts=2 * comm.num_ranks, topk=TOPK, hidden=HIDDEN, max_tokens=8, mode=request.param) as made:
        yield made


def layer(moe, x, idx, weights, matrix):
    routed = ops.dispatch(moe, x, idx, weights)
    return ops.combine(moe, torch.tanh(routed.tokens @ matrix), routed)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_and_eager_agree(moe, backend):
    grad = moe.mode == "ht"
    matrix = torch.randn(HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(1)) / 4
    compiled = torch.compile(lambda *a: layer(moe, *a), backend=backend, fullgraph=True)
    for seed in range(3):  # other routings, other numbers of rows, one graph
        results = []
        for function in (lambda *a: layer(moe, *a), compiled):
            x, idx, weights = inputs(moe, seed, grad)
            one_matrix = matrix.clone().requires_grad_(grad)
            with torch.set_grad_enabled(grad):
                y = function(x, idx, weights, one_matrix)
            if grad:
                y.square().sum().backward()
            results.append([y.detach()] + ([x.grad, weights.grad, one_matrix.grad] if grad else []))
        for eager, fast in zip(*results):
            assert torch.allclose(eager, fast, rtol=1e-5, atol=1e-6)


def test_ops_agree_with_autograd_functions(comm):
    with MoE(comm, experts=2 * comm.num_ranks, topk=TOPK, hidden=HIDDEN, max_tokens=8, training=True) as moe:
        results = []
        for kind in (switchyard.torch, ops):
            x, idx, weights = inputs(moe, 5, True)
            routed = kind.dispatch(moe, x, idx, weights)
            recv, state = routed if kind is switchyard.torch else (routed, routed)
            y = kind.combine(moe, torch.sin(recv.tokens), state)
            y.square().sum().backward()
            results.append((y.detach(), x.grad, weights.grad))
        for one, other in zip(*results):
            assert torch.allclose(one, other)


def test_operators_keep_torchs_rules(comm):
    if comm.num_ranks > 1:
        pytest.skip("opcheck calls operators as often as it likes")
    with MoE(comm, experts=4, topk=TOPK, hidden=HIDDEN, max_tokens=8, training=True) as moe:
        x, idx, weights = inputs(moe, 3, True)
        name = ops._name_of(moe)
        torch.library.opcheck(
            torch.ops.switchyard.dispatch.default,
            (x, idx, weights, name),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )
        routed = ops.dispatch(moe, x, idx, weights)
        rows = routed.tokens.detach().requires_grad_()
        torch.library.opcheck(torch.ops.switchyard.combine.default, (rows, routed.ticket, 6, name))


def test_states_go_with_their_tickets(comm):
    with MoE(comm, experts=2 * comm.num_ranks, topk=TOPK, hidden=HIDDEN, max_tokens=8, training=True) as moe:
        x, idx, weights = inputs(moe, 3, False)
        before = len(ops._states)
        routed = ops.dispatch(moe, x, idx, weights)
        assert len(ops._states) == before + 1
        ops.combine(moe, routed.tokens, routed)
        del routed
        assert len(ops._states) == before
