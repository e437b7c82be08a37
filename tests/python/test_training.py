"""The proof: a mixture-of-experts transformer, trained with its experts spread over the ranks and a share of the batch
on each, has the losses and the gradients of the same model trained on the whole batch in one process."""

import numpy
import pytest

import numpy_transformer
from numpy_transformer import NUM_EXPERTS, TOPK, VOCABULARY, WIDTH
from switchyard import MoE

SEQUENCES_A_RANK, LENGTH, STEPS = 3, 8, 8
# Sums are in FP32 and in another order: far below what a wrong gradient would be off by.
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4


def batch(num_ranks, step):
    """Sequences with something to learn: each token follows from the one before."""
    rng = numpy.random.default_rng(step)
    first = rng.integers(0, VOCABULARY, (SEQUENCES_A_RANK * num_ranks, 1))
    return (first * 3 ** numpy.arange(LENGTH + 1) + numpy.arange(LENGTH + 1)) % VOCABULARY


def share(comm, tokens):
    return tokens[SEQUENCES_A_RANK * comm.rank : SEQUENCES_A_RANK * (comm.rank + 1)]


def assert_close(name, mine, expected):
    scale = abs(expected).max()
    assert abs(mine - expected).max() <= GRADIENT_TOLERANCE * scale + 1e-7, name


def make_moe(comm):
    return MoE(comm, experts=NUM_EXPERTS, topk=TOPK, hidden=WIDTH, max_tokens=SEQUENCES_A_RANK * LENGTH, training=True)


def test_numpy_gradients_are_derivatives():
    """Of the model in one process, which the others are compared with: by finite differences, in FP64, so small that no
    token changes experts.
    """
    parameters = {name: value.astype(numpy.float64) for name, value in numpy_transformer.make_parameters().items()}
    tokens = batch(1, 0)
    experts = numpy_transformer.LocalExperts()
    _, gradients = numpy_transformer.loss_and_gradients(parameters, tokens, tokens.size, experts)
    rng, step = numpy.random.default_rng(0), 1e-6
    for name in ("embed", "0.q", "0.v", "0.norm1", "1.router", "1.norm2", "1.experts.3.up", "0.experts.5.down", "out"):
        direction = rng.normal(size=parameters[name].shape)
        direction /= numpy.linalg.norm(direction)
        losses = []
        for sign in (1, -1):
            moved = {**parameters, name: parameters[name] + sign * step * direction}
            losses.append(numpy_transformer.loss_and_gradients(moved, tokens, tokens.size, experts)[0])
        expected = float((gradients[name] * direction).sum())
        assert abs((losses[0] - losses[1]) / (2 * step) - expected) < 1e-5 * abs(expected) + 1e-8, name


def test_numpy_training_over_ranks_is_training_in_one_process(comm):
    alone = numpy_transformer.make_parameters()
    losses = []
    with make_moe(comm) as moe:
        sharded = {
            name: value
            for name, value in numpy_transformer.make_parameters().items()
            if numpy_transformer.expert_of(name) in (None, *moe.local_experts)
        }
        for step in range(STEPS):
            tokens = batch(comm.num_ranks, step)
            num_all = tokens.shape[0] * LENGTH
            expected_loss, expected = numpy_transformer.loss_and_gradients(
                alone, tokens, num_all, numpy_transformer.LocalExperts()
            )
            loss, gradients = numpy_transformer.loss_and_gradients(
                sharded, share(comm, tokens), num_all, numpy_transformer.ShardedExperts(moe)
            )
            loss = float(comm.all_reduce(numpy.array([loss]))[0])
            assert abs(loss - expected_loss) <= LOSS_TOLERANCE * expected_loss
            for name in sorted(sharded):
                if numpy_transformer.expert_of(name) is None:
                    gradients[name] = comm.all_reduce(numpy.ascontiguousarray(gradients[name]))
                none = numpy.zeros_like(sharded[name])  # of an expert that got no token
                assert_close(name, gradients.get(name, none), expected.get(name, none))
                sharded[name] = sharded[name] - numpy.float32(0.5) * gradients.get(name, none)
            for name in alone:
                alone[name] = alone[name] - numpy.float32(0.5) * expected.get(name, numpy.zeros_like(alone[name]))
            losses.append(loss)
    assert losses[-1] < 0.8 * losses[0]  # it learns


def test_torch_training_over_ranks_is_training_in_one_process(comm):
    torch = pytest.importorskip("torch", reason="torch is not installed: the proof with torch is left out")
    import switchyard.torch
    import torch_transformer

    torch.set_num_threads(1)
    losses = []
    with make_moe(comm) as moe:
        sizes = torch_transformer.Sizes()
        alone = torch_transformer.Transformer(lambda: torch_transformer.LocalExperts(sizes))
        sharded = torch_transformer.Transformer(
            lambda: switchyard.torch.ExpertParallel(moe, lambda number: torch_transformer.make_expert(sizes))
        )
        theirs = dict(alone.named_parameters())
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (alone, sharded)]
        for step in range(STEPS):
            tokens = torch.from_numpy(batch(comm.num_ranks, step))
            num_all = tokens.shape[0] * LENGTH
            for optimizer in optimizers:
                optimizer.zero_grad()
            expected_loss = alone.loss(tokens, num_all)
            expected_loss.backward()
            loss = sharded.loss(share(comm, tokens), num_all)
            loss.backward()
            switchyard.torch.sum_gradients(sharded, comm)
            total = float(comm.all_reduce(loss.detach().reshape(1))[0])
            assert abs(total - float(expected_loss)) <= LOSS_TOLERANCE * float(expected_loss)
            for name, parameter in sharded.named_parameters():
                none = torch.zeros_like(parameter)
                mine, expected = (none if one.grad is None else one.grad for one in (parameter, theirs[name]))
                assert_close(name, mine.numpy(), expected.numpy())
            for optimizer in optimizers:
                optimizer.step()
            losses.append(total)
    assert losses[-1] < 0.8 * losses[0]
