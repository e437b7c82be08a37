"""Experts sharded over ranks."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple, Union

import torch

from .. import checks
from ..comm import Communicator
from ..errors import InvalidArgument
from ..moe import MoE, Received
from .autograd import combine, dispatch


class ExpertParallel(torch.nn.Module):
    """The experts of an MoE layer, each on one rank: y[t] = the sum over k of topk_weights[t, k] * expert(topk_idx[t,
    k])(x[t]).

    `experts`: all of them, of which this rank's are kept, or a function that makes one by its number. Layers of the
    same sizes may share one MoE. Parameters are named by the expert's number, as in the unsharded model, and marked
    `expert_parallel`: their gradients are complete on the rank that has them.
    """

    def __init__(self, moe: MoE, experts: Union[Sequence[torch.nn.Module], Callable[[int], torch.nn.Module]]) -> None:
        super().__init__()
        checks.instance("moe", moe, MoE)
        if not callable(experts) or isinstance(experts, torch.nn.ModuleList):
            if len(experts) != moe.experts:
                raise InvalidArgument(
                    "invalid argument: %d experts given, the MoE has %d" % (len(experts), moe.experts)
                )
            make: Callable[[int], torch.nn.Module] = experts.__getitem__
        else:
            make = experts
        self.moe = moe
        self.experts = torch.nn.ModuleDict({str(expert): make(expert) for expert in moe.local_experts})
        for parameter in self.experts.parameters():
            parameter.expert_parallel = True

    def forward(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        """Collective. x is [..., hidden], topk_idx and topk_weights [..., topk]."""
        return run_experts(self.moe, lambda expert, rows: self.experts[str(expert)](rows), x, topk_idx, topk_weights)


def run_experts(
    moe: MoE,
    expert: Callable[[int, torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    topk_idx: torch.Tensor,
    topk_weights: torch.Tensor,
) -> torch.Tensor:
    """Collective. y[t] = the sum over k of topk_weights[t, k] * expert(topk_idx[t, k], x[t]), with gradients.

    `expert` is called once for each expert of this rank that got rows, with its number and all its rows. x is
    [..., hidden], topk_idx and topk_weights [..., topk].
    """
    checks.instance("moe", moe, MoE)
    for name, value in (("x", x), ("topk_idx", topk_idx), ("topk_weights", topk_weights)):
        checks.instance(name, value, torch.Tensor)
    checks.of_shape("x", x.shape, (*x.shape[:-1], moe.hidden))
    checks.of_shape("topk_idx", topk_idx.shape, (*x.shape[:-1], moe.topk))
    checks.of_shape("topk_weights", topk_weights.shape, (*x.shape[:-1], moe.topk))
    topk = (-1, moe.topk)
    recv, state = dispatch(
        moe,
        x.reshape(-1, moe.hidden).contiguous(),
        topk_idx.reshape(topk).contiguous(),
        topk_weights.reshape(topk).float().contiguous(),
    )
    results = [(_result(number, expert(number, rows), rows), place) for number, rows, place in recv]
    return combine(moe, _in_place(moe, recv, results), state).reshape(x.shape)


def _result(number: int, result: Any, rows: torch.Tensor) -> torch.Tensor:
    """What an expert made of its rows, in their type: under autocast it is of another."""
    name = "the result of expert %d" % number
    checks.of_shape(name, checks.instance(name, result, torch.Tensor).shape, rows.shape)
    return result.to(rows.dtype)


def _in_place(moe: MoE, recv: Received, results: List[Tuple[torch.Tensor, slice]]) -> Any:
    if moe.mode == "ht":  # experts follow each other without gaps
        return torch.cat([result for result, _ in results]) if results else recv.tokens
    out = recv.empty_like()
    for result, place in results:
        out[place] = result
    return out


def sum_gradients(module: torch.nn.Module, comm: Communicator) -> None:
    """Collective. Adds up the gradients of what all ranks have a copy of: everything but the experts of ExpertParallel.

    With a loss that is the sum over all ranks' tokens (or is divided by their number), these are then the gradients of
    one big batch. A parameter without a gradient counts as zeros.
    """
    checks.instance("module", module, torch.nn.Module)
    checks.instance("comm", comm, Communicator)
    shared = [
        parameter
        for parameter in module.parameters()
        if parameter.requires_grad and not hasattr(parameter, "expert_parallel")
    ]
    for dtype in sorted({parameter.dtype for parameter in shared}, key=str):
        alike = [parameter for parameter in shared if parameter.dtype == dtype]
        flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in alike])
        comm.all_reduce(flat, out=flat)
        begin = 0
        for parameter in alike:
            gradient = flat[begin : begin + parameter.numel()].view_as(parameter)
            parameter.grad = gradient.clone()
            begin += parameter.numel()


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
