"""Hugging Face transformers with the experts of its models spread over ranks, each rank with tokens of its own.

Needs transformers 5.1.

    import switchyard.integrations.transformers as sharding            # registers experts_implementation="switchyard"

    model = AutoModelForCausalLM.from_pretrained(name)                  # the same on every rank
    sharding.shard_experts_(model, comm, max_tokens=4096)               # in place: this rank keeps its experts
    model(mine, labels=mine, num_items_in_batch=all_ranks).loss.backward()   # divided by the predictions of all ranks
    switchyard.torch.sum_gradients(model, comm)                         # of what every rank has; experts have theirs

The ids that a router picks stay those of the whole model. A forward is collective in every layer of experts, and so is
a backward: ranks make the same calls, whatever the sizes of their batches. Models of transformers take no empty batch,
so a rank without tokens gives some whose loss counts zero times.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from ..comm import Communicator
from ..errors import InvalidArgument, InvalidUsage
from ..moe import MoE
from ..torch import run_experts

IMPLEMENTATION = "switchyard"


def shard_experts_(
    model: Any,
    comm: Communicator,
    *,
    max_tokens: int = 4096,
    topk: Optional[int] = None,
    training: bool = True,
    mode: str = "auto",
    timeout: float = 0.0,
) -> List[MoE]:
    """Collective. Keeps this rank's experts of every layer, and makes a forward dispatch to those of the other ranks.

    All ranks give the same model and arguments. max_tokens: the most in a forward of any rank (batch size times
    length). topk: experts a token, by default what the model's configuration says. training=False allows low latency,
    which has no backward pass. Parameters stay the same objects, marked `expert_parallel`, with the first dimension cut
    to this rank's experts; make optimizers afterwards.

    Returns what the layers dispatch with: one MoE for all that are alike. Closing the communicator closes them.
    """
    layers = [module for module in model.modules() if _has_experts(module)]
    if not layers:
        raise InvalidArgument(
            "invalid argument: model (%s) has no layer of experts that transformers lets others compute"
            % type(model).__name__
        )
    if any(hasattr(layer, "switchyard_moe") for layer in layers):
        raise InvalidUsage("invalid usage: the model's experts are sharded already")
    moes: Dict[Tuple[Any, ...], MoE] = {}
    for layer in layers:
        down = layer.down_proj
        sizes = (down.shape[0], topk or _topk_of(layer.config), down.shape[2 if layer.is_transposed else 1], down.dtype)
        if sizes not in moes:
            moes[sizes] = MoE(
                comm,
                experts=sizes[0],
                topk=sizes[1],
                hidden=sizes[2],
                dtype=sizes[3],
                max_tokens=max_tokens,
                mode=mode,
                training=training,
                timeout=timeout,
            )
        _shard_(layer, moes[sizes])
    model.set_experts_implementation(IMPLEMENTATION)
    return list(moes.values())


def experts_forward(
    layer: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """Collective. What transformers calls as the forward of a layer of experts, with the ids of the whole model."""
    moe: Optional[MoE] = getattr(layer, "switchyard_moe", None)
    if moe is None:
        raise InvalidUsage(
            "invalid usage: experts_implementation is %r, but the experts are not sharded: call "
            "switchyard.integrations.transformers.shard_experts_(model, comm)" % IMPLEMENTATION
        )
    # Some models give tokens as [batch, length, hidden], but what their router says as [tokens, topk].
    tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
    topk_idx, topk_weights = (given.reshape(-1, given.shape[-1]) for given in (top_k_index, top_k_weights))
    y = run_experts(moe, mlp_of(layer, moe.local_experts), tokens, topk_idx, topk_weights)
    return y.reshape(hidden_states.shape)


def mlp_of(layer: Any, local_experts: List[int]) -> Callable[[int, torch.Tensor], torch.Tensor]:
    """What a sharded layer's experts compute, by the expert's number, one of `local_experts`, and its rows."""
    # Apart once: the gradient of an index into all experts would be as large as all of them, for each.
    parts = {name: parameter.unbind() for name, parameter in _parameters_of_experts(layer)}
    places = {expert: place for place, expert in enumerate(local_experts)}
    return lambda expert, rows: _mlp(layer, {name: part[places[expert]] for name, part in parts.items()}, rows)


def _mlp(layer: Any, weights: Dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    """One expert, by the flags with which transformers describes a layer."""

    def linear(name: str, inputs: torch.Tensor) -> torch.Tensor:
        weight = weights[name].t() if layer.is_transposed else weights[name]
        return torch.nn.functional.linear(inputs, weight, weights.get(name + "_bias"))

    inner = layer._apply_gate(linear("gate_up_proj", rows)) if layer.has_gate else layer.act_fn(linear("up_proj", rows))
    out = linear("down_proj", inner)
    return layer.post_expert_norm(out) if getattr(layer, "has_post_expert_norm", False) else out


def _has_experts(module: torch.nn.Module) -> bool:
    """What transformers' decorator leaves at a layer whose experts may be computed by others."""
    return all(hasattr(module, name) for name in ("has_gate", "has_bias", "is_transposed", "down_proj", "config"))


def _parameters_of_experts(layer: Any) -> List[Tuple[str, torch.nn.Parameter]]:
    """Those with an expert in the first dimension; others, such as norms, are one for all."""
    names = [("gate_up_proj" if layer.has_gate else "up_proj"), "down_proj"]
    names += [name + "_bias" for name in names] if layer.has_bias else []
    return [(name, getattr(layer, name)) for name in names]


def _shard_(layer: Any, moe: MoE) -> None:
    for _, parameter in _parameters_of_experts(layer):
        parameter.data = parameter.data[moe.local_experts].clone()
        parameter.grad = None
        parameter.expert_parallel = True  # for sum_gradients
    layer.switchyard_moe = moe


def _topk_of(config: Any) -> int:
    topk = getattr(config, "num_experts_per_tok", None)
    if not topk:
        raise InvalidArgument(
            "invalid argument: topk: %s has no num_experts_per_tok, so it has to be given" % type(config).__name__
        )
    return int(topk)


ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, experts_forward)
