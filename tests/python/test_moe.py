"""The short form: both modes give the layer's result, the experts' code is one, gradients flow in high throughput."""

import numpy
import pytest

import reference
import switchyard
from switchyard import InvalidArgument, InvalidUsage, MoE

HIDDEN, TOPK, MOST = 16, 3, 12


def matrices(num_experts):
    return numpy.random.default_rng(7).normal(size=(num_experts, HIDDEN, HIDDEN)).astype(numpy.float32) / 4


def layer(x, idx, weights, matrix):
    """The layer without ranks."""
    y = numpy.zeros_like(x, numpy.float64)
    for token in range(len(x)):
        for k in range(idx.shape[1]):
            if idx[token, k] >= 0:
                y[token] += weights[token, k] * (matrix[idx[token, k]].astype(numpy.float64) @ x[token])
    return y


def run_experts(recv, matrix):
    out = recv.empty_like()
    for expert, rows, place in recv:
        out[place] = rows @ matrix[expert].T
    return out


@pytest.mark.parametrize("mode", ["ll", "ht"])
def test_the_layer(comm, rng, mode):
    num_experts = 2 * comm.num_ranks + 1
    matrix = matrices(num_experts)
    with MoE(comm, experts=num_experts, topk=TOPK, hidden=HIDDEN, max_tokens=MOST, mode=mode) as moe:
        assert moe.mode == mode
        for step in range(5):
            num_tokens = [MOST, 0, 1, 5, MOST][(step + comm.rank) % 5]
            x = rng.normal(size=(num_tokens, HIDDEN)).astype(numpy.float32)
            idx, weights = reference.routing(rng, num_tokens, num_experts, TOPK)
            recv, state = moe.dispatch(x, idx if step % 2 else idx.astype(numpy.int32), weights)
            assert recv.experts == moe.local_experts
            y = moe.combine(run_experts(recv, matrix), state)
            assert numpy.allclose(y, layer(x, idx, weights, matrix), rtol=1e-4, atol=1e-5)


def test_several_batches_may_be_open(comm, rng):
    with MoE(comm, experts=comm.num_ranks, topk=1, hidden=HIDDEN, max_tokens=MOST, mode="ht") as moe:
        batches = []
        for step in range(4):
            x = rng.normal(size=(4, HIDDEN)).astype(numpy.float32)
            idx, weights = reference.routing(rng, 4, comm.num_ranks, 1)
            batches.append((x, idx, weights, *moe.dispatch(x, idx, weights)))
        for x, idx, weights, recv, state in reversed(batches):
            assert numpy.allclose(moe.combine(recv.tokens, state), x * weights, rtol=1e-6)


def test_gradients(comm, rng):
    """Against the layer's derivative, written down by hand."""
    num_experts, num_tokens = 2 * comm.num_ranks, 6
    matrix = matrices(num_experts)
    with MoE(
        comm,
        experts=num_experts,
        topk=TOPK if num_experts >= TOPK else num_experts,
        hidden=HIDDEN,
        max_tokens=MOST,
        training=True,
    ) as moe:
        assert moe.mode == "ht" and "backward" in moe.reason
        x = rng.normal(size=(num_tokens, HIDDEN)).astype(numpy.float32)
        idx, weights = reference.routing(rng, num_tokens, num_experts, moe.topk)
        grad_y = rng.normal(size=x.shape).astype(numpy.float32)
        recv, state = moe.dispatch(x, idx, weights)
        out = run_experts(recv, matrix)
        moe.combine(out, state)
        grad_out, grad_row_weights = moe.combine_backward(grad_y, out, state)
        grad_rows = numpy.zeros_like(grad_out)
        for expert, rows, place in recv:
            grad_rows[place] = grad_out[place] @ matrix[expert]
        grad_x, grad_weights = moe.dispatch_backward(grad_rows, grad_row_weights, state)
    for token in range(num_tokens):
        expected = numpy.zeros(HIDDEN)
        for k, expert in enumerate(idx[token]):
            if expert < 0:
                assert grad_weights[token, k] == 0
                continue
            expected += weights[token, k] * (matrix[expert].T @ grad_y[token])
            assert numpy.isclose(
                grad_weights[token, k], grad_y[token] @ matrix[expert] @ x[token], rtol=1e-3, atol=1e-4
            )
        assert numpy.allclose(grad_x[token], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["ll", "ht"])
def test_bfloat16_as_raw_integers(comm, mode):
    ones = numpy.full((2, HIDDEN), 0x3F80, numpy.uint16)
    with MoE(comm, experts=comm.num_ranks, topk=1, hidden=HIDDEN, dtype="bfloat16", max_tokens=MOST, mode=mode) as moe:
        recv, state = moe.dispatch(
            ones, numpy.full((2, 1), comm.rank, numpy.int64), numpy.full((2, 1), 3.0, numpy.float32)
        )
        y = moe.combine(recv.tokens, state)
        assert y.dtype == numpy.uint16 and (y == 0x4040).all()  # 3


def test_auto_says_why(comm):
    for most, mode in ((8, "ll"), (1000, "ht")):
        with MoE(comm, experts=comm.num_ranks, topk=1, hidden=HIDDEN, max_tokens=most) as moe:
            assert moe.mode == mode and str(most) in moe.reason


def misaligned(x):
    memory = numpy.zeros(x.nbytes + 16, numpy.uint8)
    begin = (4 - memory.ctypes.data) % 16
    return memory[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)


@pytest.mark.parametrize("mode", ["ll", "ht"])
def test_a_refused_call_sends_nothing_and_everything_goes_on(comm, rng, mode):
    with MoE(comm, experts=comm.num_ranks, topk=1, hidden=HIDDEN, max_tokens=4, mode=mode) as moe:
        x = rng.normal(size=(4, HIDDEN)).astype(numpy.float32)
        idx, weights = numpy.full((4, 1), comm.rank, numpy.int64), numpy.ones((4, 1), numpy.float32)
        bad = [
            (x.astype(numpy.float64), idx, weights, "x is .* float64, must be .* float32"),
            (x[:, :8], idx, weights, "x.* is not contiguous"),
            (misaligned(x), idx, weights, "x must be aligned to 16 bytes"),
            (x.view(numpy.uint32), idx, weights, "x is .* uint32, must be .* float32"),
            (x.tolist(), idx, weights, "x is a list"),
            (x, None, weights, "topk_idx is a NoneType"),
            (x[:, :8].copy(), idx, weights, "x is .4, 8. float32, must be .4, 16. float32"),
            (x, idx[:3], weights, "topk_idx is .3, 1."),
            (x, idx.astype(numpy.float32), weights, "topk_idx is .* float32, must be .* int64 or int32"),
            (x, idx, weights.astype(numpy.float64), "topk_weights is .* float64"),
            (x, idx + comm.num_ranks, weights, "topk_idx.0, 0. is "),
            (
                numpy.zeros((5, HIDDEN), numpy.float32),
                numpy.zeros((5, 1), int),
                numpy.ones((5, 1), numpy.float32),
                "x has 5 tokens, max_tokens is 4",
            ),
        ]
        for bad_x, bad_idx, bad_weights, why in bad:
            if comm.rank == 0:  # the others wait meanwhile, without knowing
                with pytest.raises(InvalidArgument, match=why):
                    moe.dispatch(bad_x, bad_idx, bad_weights)
            recv, state = moe.dispatch(x, idx, weights)
            if comm.rank == 0:
                with pytest.raises(InvalidArgument, match="expert_out is"):
                    moe.combine(recv.tokens[:1].copy(), state)
                with pytest.raises(InvalidArgument, match="state is None, must be what dispatch"):
                    moe.combine(recv.tokens, None)
                if mode == "ht":
                    with pytest.raises(InvalidArgument, match="expert_out is .* must be"):
                        moe.combine_backward(x, recv.tokens[:1].copy(), state)
            assert (moe.combine(recv.tokens, state) == x).all()
        if mode == "ll":
            with pytest.raises(InvalidUsage, match="no backward pass"):
                moe.dispatch_backward(recv.tokens, weights, state)


def test_what_cannot_be_made(comm):
    with pytest.raises(InvalidArgument, match="mode is 'fast'"):
        MoE(comm, experts=4, topk=1, hidden=HIDDEN, mode="fast")
    with pytest.raises(InvalidArgument, match="'ll', which has no backward pass"):
        MoE(comm, experts=4, topk=1, hidden=HIDDEN, mode="ll", training=True)
    good = dict(experts=4, topk=1, hidden=HIDDEN, max_tokens=8)
    for name, value in (
        ("experts", -1),
        ("experts", "4"),
        ("topk", 0),
        ("topk", 1.5),
        ("hidden", 7),
        ("hidden", None),
        ("max_tokens", 0),
        ("max_tokens", 1 << 40),
        ("timeout", "1"),
        ("timeout", -1.0),
        ("timeout", float("nan")),
        ("dtype", "int8"),
        ("dtype", None),
        ("dtype", "float64"),
        ("dtype", "float8_e4m3"),
        ("mode", None),
    ):
        for mode in ("ll", "ht"):
            with pytest.raises(InvalidArgument, match="%s is %s, must be" % (name, value if value is None else ".*")):
                MoE(comm, **{"mode": mode, **good, name: value})
    with MoE(comm, **{name: numpy.int16(value) for name, value in good.items()}) as moe:
        assert moe.hidden == 16
