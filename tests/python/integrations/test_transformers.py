"""Models of transformers, with their experts over ranks, give the logits and gradients of the whole in one process."""

import copy

import numpy
import pytest
import torch
import transformers

import switchyard
import switchyard.torch
from switchyard.integrations import transformers as sharding

from tiny_models import TINY_MODELS, make_model

SEQUENCES, LENGTH = 3, 10
TOLERANCE = 1e-5


def batch(num_sequences):
    return torch.randint(256, (num_sequences, LENGTH), generator=torch.Generator().manual_seed(7))


def batch_and_mine(comm):
    """The batch of all ranks and where this rank's part of it is: odd ranks have a sequence less than others."""
    ends = numpy.cumsum([SEQUENCES - rank % 2 for rank in range(comm.num_ranks)])
    return batch(ends[-1]), slice(ends[comm.rank] - SEQUENCES + comm.rank % 2, ends[comm.rank])


@pytest.fixture(params=sorted(TINY_MODELS))
def whole(request):
    torch.set_num_threads(1)
    return make_model(request.param)


def shard(model, comm, **options):
    model = copy.deepcopy(model)
    return model, sharding.shard_experts_(model, comm, **options)


def assert_close(name, mine, expected, scale=1.0):
    difference = float((mine - expected).abs().max())
    assert difference <= TOLERANCE * scale, "%s: off by %g" % (name, difference)


def test_logits_depend_on_experts(whole):
    """Else the tests below would show nothing."""
    with torch.no_grad():
        expected = whole(batch(2)).logits
        for name, parameter in whole.named_parameters():
            if name.endswith("experts.down_proj"):
                parameter.zero_()
        assert float((whole(batch(2)).logits - expected).abs().max()) > 0.1


def test_training_step(whole, comm):
    sharded, moes = shard(whole, comm, max_tokens=SEQUENCES * LENGTH)
    assert [moe.mode for moe in moes] == ["ht"]
    tokens, mine = batch_and_mine(comm)
    num_all = tokens.numel() - len(tokens)

    result = sharded(tokens[mine], labels=tokens[mine], num_items_in_batch=num_all)
    expected = whole(tokens, labels=tokens, num_items_in_batch=num_all)
    assert_close("logits", result.logits.detach(), expected.logits.detach()[mine])
    losses = comm.all_reduce(result.loss.detach().reshape(1))
    assert_close("loss", losses[0], expected.loss.detach())
    result.loss.backward()
    expected.loss.backward()
    switchyard.torch.sum_gradients(sharded, comm)

    theirs, num_experts_seen = dict(whole.named_parameters()), 0
    for name, parameter in sharded.named_parameters():
        gradient = theirs[name].grad
        if hasattr(parameter, "expert_parallel"):
            gradient = gradient[moes[0].local_experts]
            num_experts_seen += 1
        assert_close(name, parameter.grad, gradient, scale=float(gradient.abs().max()))
    assert (
        num_experts_seen
        == 2 * sum(name.endswith("down_proj") and value.dim() == 3 for name, value in theirs.items())
        > 0
    )
    moes[0].close()


@pytest.mark.parametrize("mode", ["ll", "ht"])
def test_forward_without_gradients(whole, comm, mode):
    sharded, (moe,) = shard(whole, comm, max_tokens=SEQUENCES * LENGTH, training=False, mode=mode)
    tokens, mine = batch_and_mine(comm)
    with torch.no_grad():
        assert_close("logits", sharded(tokens[mine]).logits, whole(tokens).logits[mine])
    moe.close()


def test_generation(whole, comm):
    sharded, (moe,) = shard(whole, comm, max_tokens=2 * LENGTH, training=False)
    assert moe.mode == "ll"
    tokens = batch(2 * comm.num_ranks)[2 * comm.rank : 2 * comm.rank + 2]
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    assert (sharded.generate(tokens, **options) == whole.generate(tokens, **options)).all()
    moe.close()


def test_low_latency_refuses_gradients(comm):
    sharded, (moe,) = shard(make_model("mixtral"), comm, max_tokens=16, training=False)
    with pytest.raises(switchyard.InvalidUsage, match="low latency has no backward"):
        sharded(batch(1))
    moe.close()


def test_other_shapes_of_experts(comm):
    """GPT-OSS: transposed weights, biases, gates side by side."""
    whole = make_model(
        "gpt_oss", transformers.GptOssConfig, num_local_experts=6, num_experts_per_tok=2, head_dim=16, sliding_window=8
    )
    sharded, (moe,) = shard(whole, comm, max_tokens=SEQUENCES * LENGTH)
    tokens, mine = batch_and_mine(comm)
    assert_close("logits", sharded(tokens[mine]).logits.detach(), whole(tokens).logits.detach()[mine])
    moe.close()


def test_mistakes_are_named(comm):
    model = make_model("mixtral")
    model.set_experts_implementation("switchyard")
    with pytest.raises(switchyard.InvalidUsage, match="call .*shard_experts_"):
        model(batch(1))
    (moe,) = sharding.shard_experts_(model, comm, max_tokens=16)
    with pytest.raises(switchyard.InvalidUsage, match="sharded already"):
        sharding.shard_experts_(model, comm, max_tokens=16)
    with pytest.raises(
        switchyard.InvalidArgument, match="x"
    ):  # more than max_tokens; the same on all ranks, nothing was sent
        model(batch(2))
    moe.close()
    with pytest.raises(switchyard.InvalidArgument, match="no layer of experts"):
        sharding.shard_experts_(torch.nn.Linear(2, 2), comm)
