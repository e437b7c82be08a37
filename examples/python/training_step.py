"""Tutorial 3, docs/tutorials/3-training-step.md: an MoE layer trained over ranks, with the losses of one process."""

import torch

import switchyard
import switchyard.torch

EXPERTS, TOPK, HIDDEN, BATCH, STEPS = 8, 2, 32, 96, 5


class Layer(torch.nn.Module):
    """A router and experts; who runs these is given."""

    def __init__(self, experts):
        super().__init__()
        self.router = torch.nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = experts

    def forward(self, x):
        topk_weights, topk_idx = torch.softmax(self.router(x), -1).topk(TOPK)
        return x + self.experts(x, topk_idx, topk_weights)


def make_expert(number):
    torch.manual_seed(100 + number)  # the same weights, whoever makes it
    return torch.nn.Sequential(
        torch.nn.Linear(HIDDEN, 2 * HIDDEN), torch.nn.SiLU(), torch.nn.Linear(2 * HIDDEN, HIDDEN)
    )


def make_layer(moe):
    experts = switchyard.torch.ExpertParallel(moe, make_expert)  # which makes those of this rank
    torch.manual_seed(0)
    return Layer(experts)


def train(comm):
    """Losses of the steps, for a batch of which each rank has a part."""
    moe = switchyard.MoE(
        comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens=BATCH // comm.num_ranks, training=True
    )
    model = make_layer(moe)
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    x = torch.randn(BATCH, HIDDEN, generator=torch.Generator().manual_seed(1))
    mine, wanted = (part.chunk(comm.num_ranks)[comm.rank] for part in (x, x.roll(1, dims=1)))
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = (model(mine) - wanted).square().sum() / (BATCH * HIDDEN)  # divided by what all ranks have
        loss.backward()
        switchyard.torch.sum_gradients(model, comm)  # of the router; those of experts are complete
        optimizer.step()
        losses.append(float(comm.all_reduce(loss.detach().reshape(1))))
    return losses


torch.set_num_threads(1)
with switchyard.init() as comm:
    losses = train(comm)
    if comm.rank == 0:
        print("losses", " ".join("%.4f" % loss for loss in losses))
    # The whole batch in one process: a communicator of this rank alone.
    with comm.split(comm.rank) as alone:
        expected = train(alone)
    assert all(abs(loss - other) < 1e-5 for loss, other in zip(losses, expected)), (losses, expected)
    print("the losses of one process")
