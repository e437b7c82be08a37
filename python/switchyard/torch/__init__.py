"""Switchyard for torch: gradients through dispatch and combine, experts sharded over ranks, ranks found through a
process group.

    comm = switchyard.torch.init()                                     # under torchrun, or from a process group
    moe = switchyard.MoE(comm, experts=64, topk=6, hidden=2048, training=True)
    layer = switchyard.torch.ExpertParallel(moe, lambda expert: Mlp(2048))
    y = layer(x, topk_idx, topk_weights)
    loss.backward()
    switchyard.torch.sum_gradients(model, comm)                        # of what every rank has; experts have theirs

torch 1.13 is enough; `switchyard.torch.ops`, which torch.compile accepts, needs 2.4.
"""

from .autograd import combine, dispatch
from .bootstrap import init
from .expert_parallel import ExpertParallel, run_experts, sum_gradients

__all__ = ["ExpertParallel", "combine", "dispatch", "init", "run_experts", "sum_gradients"]
