"""Dispatch and combine as operators of torch (torch.ops.switchyard.*), which torch.compile keeps in its graphs. Needs
torch 2.4.

    routed = switchyard.torch.ops.dispatch(moe, x, topk_idx, topk_weights)
    y = switchyard.torch.ops.combine(moe, experts(routed.tokens, routed.counts), routed)

Operators take and return nothing but tensors and numbers. So an MoE goes in by its name, and a dispatch's State comes
out as a tensor that holds its number, and lives as long as that tensor's memory.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Dict, NamedTuple, Tuple

import numpy
import torch
from torch import Tensor

from ..errors import InvalidUsage
from ..moe import MoE, State

if not hasattr(torch.library, "custom_op"):
    raise ImportError("switchyard.torch.ops needs torch 2.4 or newer, this is %s" % torch.__version__)

_moes: "weakref.WeakValueDictionary[str, MoE]" = weakref.WeakValueDictionary()
_states: Dict[int, State] = {}
_numbers = itertools.count(1)


def _name_of(moe: MoE) -> str:
    """A name, not a number: torch.compile takes a number for something that may change from call to call. With all that
    shapes depend on, because torch keeps compiled graphs on disk, and finds them again by what operators are given."""
    if not moe.name:
        moe.name = "%d: %s, %d local of %d experts, top-%d, hidden %d, %d rows" % (
            next(_numbers),
            moe.mode,
            len(moe.local_experts),
            moe.experts,
            moe.topk,
            moe.hidden,
            moe.num_block_rows,
        )
        _moes[moe.name] = moe
    return moe.name


def _moe(name: str) -> MoE:
    if name not in _moes:
        raise InvalidUsage("invalid usage: the MoE of this operator is gone")
    return _moes[name]


def _keep(state: State) -> Tensor:
    number = next(_numbers)
    memory = numpy.full(1, number, numpy.int64)
    _states[number] = state
    weakref.finalize(memory, lambda: _states.pop(number, None))
    return torch.from_numpy(memory)


def _state(ticket: Tensor) -> State:
    state = _states.get(int(ticket.item()))
    if state is None:
        raise InvalidUsage("invalid usage: the dispatch of this combine is gone: keep what dispatch() returned")
    return state


class Routed(NamedTuple):
    """What the experts of this rank received: rows, their routing weights, how many of them for each expert, one after
    the other (high throughput) or in blocks (low latency), and a ticket for the combine."""

    tokens: Tensor
    weights: Tensor
    counts: Tensor
    ticket: Tensor
    num_tokens: int


@torch.library.custom_op("switchyard::dispatch", mutates_args=())
def _dispatch(x: Tensor, topk_idx: Tensor, topk_weights: Tensor, moe: str) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    recv, state = _moe(moe).dispatch(x.contiguous(), topk_idx.contiguous(), topk_weights.contiguous())
    weights = x.new_empty(0, dtype=torch.float32) if recv.weights is None else recv.weights
    counts = recv.counts if isinstance(recv.counts, Tensor) else torch.from_numpy(recv.counts)
    return recv.tokens, weights, counts, _keep(state)


@_dispatch.register_fake
def _(x: Tensor, topk_idx: Tensor, topk_weights: Tensor, moe: str) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    layer = _moe(moe)
    if layer.mode == "ll":
        num_rows, num_weights = layer.num_block_rows, 0
    else:
        num_rows = num_weights = torch.library.get_ctx().new_dynamic_size()
    return (
        x.new_empty(num_rows, layer.hidden),
        x.new_empty(num_weights, dtype=torch.float32),
        x.new_empty(len(layer.local_experts), dtype=torch.int32),
        x.new_empty(1, dtype=torch.int64),
    )


@torch.library.custom_op("switchyard::dispatch_backward", mutates_args=())
def _dispatch_backward(
    grad_rows: Tensor, grad_weights: Tensor, ticket: Tensor, num_tokens: int, moe: str
) -> Tuple[Tensor, Tensor]:
    grad_x, grad_topk_weights = _moe(moe).dispatch_backward(
        grad_rows.contiguous(), grad_weights.contiguous(), _state(ticket)
    )
    return grad_x, grad_topk_weights


@_dispatch_backward.register_fake
def _(grad_rows: Tensor, grad_weights: Tensor, ticket: Tensor, num_tokens: int, moe: str) -> Tuple[Tensor, Tensor]:
    return grad_rows.new_empty(num_tokens, _moe(moe).hidden), grad_weights.new_empty(num_tokens, _moe(moe).topk)


@torch.library.custom_op("switchyard::combine", mutates_args=())
def _combine(rows: Tensor, ticket: Tensor, num_tokens: int, moe: str) -> Tensor:
    """Low latency: the weighted sum; high throughput: the plain sum of rows that were weighed before."""
    layer, state = _moe(moe), _state(ticket)
    return layer.combine(rows.contiguous(), state) if layer.mode == "ll" else layer.sum_rows(rows.contiguous(), state)


@_combine.register_fake
def _(rows: Tensor, ticket: Tensor, num_tokens: int, moe: str) -> Tensor:
    return rows.new_empty(num_tokens, _moe(moe).hidden)


@torch.library.custom_op("switchyard::combine_backward", mutates_args=())
def _combine_backward(grad_y: Tensor, ticket: Tensor, num_rows: int, moe: str) -> Tensor:
    return _moe(moe).scatter_gradient(grad_y.contiguous(), _state(ticket))


@_combine_backward.register_fake
def _(grad_y: Tensor, ticket: Tensor, num_rows: int, moe: str) -> Tensor:
    return grad_y.new_empty(num_rows, _moe(moe).hidden)


def _save_dispatch(ctx: Any, inputs: Any, output: Any) -> None:
    x, _, _, ctx.moe = inputs
    ctx.num_tokens = x.shape[0]
    ctx.save_for_backward(output[3])


def _backward_of_dispatch(ctx: Any, grad_rows: Tensor, grad_weights: Tensor, *unused: Any) -> Any:
    (ticket,) = ctx.saved_tensors
    grad_x, grad_topk_weights = _dispatch_backward(grad_rows, grad_weights, ticket, ctx.num_tokens, ctx.moe)
    return grad_x, None, grad_topk_weights, None


def _save_combine(ctx: Any, inputs: Any, output: Any) -> None:
    rows, ticket, _, ctx.moe = inputs
    ctx.num_rows = rows.shape[0]
    ctx.save_for_backward(ticket)


def _backward_of_combine(ctx: Any, grad_y: Tensor) -> Any:
    (ticket,) = ctx.saved_tensors
    return _combine_backward(grad_y, ticket, ctx.num_rows, ctx.moe), None, None, None


torch.library.register_autograd("switchyard::dispatch", _backward_of_dispatch, setup_context=_save_dispatch)
torch.library.register_autograd("switchyard::combine", _backward_of_combine, setup_context=_save_combine)


def dispatch(moe: MoE, x: Tensor, topk_idx: Tensor, topk_weights: Tensor) -> Routed:
    """Collective. As switchyard.torch.dispatch, for torch.compile."""
    tokens, weights, counts, ticket = _dispatch(x, topk_idx, topk_weights, _name_of(moe))
    return Routed(tokens, weights, counts, ticket, x.shape[0])


def combine(moe: MoE, expert_out: Tensor, routed: Routed) -> Tensor:
    """Collective. As switchyard.torch.combine, for torch.compile."""
    if moe.mode == "ht":
        expert_out = (expert_out * routed.weights[:, None]).to(expert_out.dtype)
    return _combine(expert_out, routed.ticket, routed.num_tokens, _name_of(moe))
