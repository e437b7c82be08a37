"""Gradients: the backward of a dispatch is a combine, that of a combine a dispatch, with the same routing.

Every rank must run the same forwards and backwards in the same order, as with any collective. A combine depends on its
dispatch even where this rank's experts got no row, so that all ranks run the backward of both.
"""

from __future__ import annotations

from typing import Any, Tuple

import torch

from .. import checks
from ..errors import InvalidUsage
from ..moe import MoE, Received, State


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, topk_weights: torch.Tensor, topk_idx: torch.Tensor, moe: MoE) -> Any:
        recv, state = moe.dispatch(x, topk_idx, topk_weights)
        ctx.state = state
        return recv.tokens, recv.weights, recv, state

    @staticmethod
    def backward(ctx: Any, grad_tokens: torch.Tensor, grad_weights: torch.Tensor, *unused: Any) -> Any:
        state: State = ctx.state
        grad_x, grad_topk_weights = state.moe.dispatch_backward(
            grad_tokens.contiguous(), grad_weights.contiguous(), state
        )
        return grad_x, grad_topk_weights, None, None


class _SumRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, state: State) -> torch.Tensor:
        ctx.state = state
        return state.moe.sum_rows(rows, state)

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor) -> Any:
        state: State = ctx.state
        return state.moe.scatter_gradient(grad_y.contiguous(), state), None


def dispatch(moe: MoE, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> Tuple[Received, State]:
    """Collective. As moe.dispatch, with gradients for x and topk_weights where these are wanted."""
    checks.instance("moe", moe, MoE)
    _expect_tensors(x=x, topk_idx=topk_idx, topk_weights=topk_weights)
    if not _tracked(moe, x, topk_weights):
        return moe.dispatch(x.detach(), topk_idx, topk_weights.detach())
    tokens, weights, recv, state = _Dispatch.apply(x, _in_graph(topk_weights, x), topk_idx, moe)
    state.row_weights = weights
    return Received(tokens, recv.counts, recv.offsets, weights, recv.experts), state


def combine(moe: MoE, expert_out: torch.Tensor, state: State) -> torch.Tensor:
    """Collective. As moe.combine, with gradients for expert_out and, through the dispatch, for topk_weights."""
    checks.instance("moe", moe, MoE)._check_state(state)
    _expect_tensors(expert_out=expert_out)
    if not _tracked(moe, expert_out):
        return moe.combine(expert_out.detach(), state)
    weights = state.recv.weights if state.row_weights is None else state.row_weights
    return _SumRows.apply((expert_out * _in_graph(weights)[:, None]).to(expert_out.dtype), state)


def _expect_tensors(**arguments: Any) -> None:
    for name, value in arguments.items():
        checks.instance(name, value, torch.Tensor)


def _tracked(moe: MoE, *tensors: torch.Tensor) -> bool:
    if not torch.is_grad_enabled():
        return False
    if moe.mode == "ll" and any(tensor.requires_grad for tensor in tensors):
        raise InvalidUsage(
            "invalid usage: a tensor requires a gradient, and low latency has no backward pass; make the MoE with "
            "training=True, or call this in torch.no_grad()"
        )
    return moe.mode == "ht"


def _in_graph(weights: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """The weights, so that what is computed from them has a backward. Whether a rank's own tensors need one may differ
    from rank to rank: one whose experts got no rows has no parameters in play, and the others would wait for its
    part. So what comes out always requires a gradient, unless gradients are off: the others' needs are not known here.
    """
    if weights.requires_grad or any(other.requires_grad for other in others):
        return weights
    return weights.detach().requires_grad_()
