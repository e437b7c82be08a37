"""Narrow types of ml_dtypes are what they are called."""

import ml_dtypes
import numpy
import pytest

import switchyard
from switchyard import MoE, Tensor


@pytest.mark.parametrize(
    "theirs, ours", [("bfloat16", "bfloat16"), ("float8_e4m3fn", "float8_e4m3"), ("float8_e5m2", "float8_e5m2")]
)
def test_names(theirs, ours):
    array = numpy.zeros((2, 4), getattr(ml_dtypes, theirs))
    assert (Tensor(array).dtype, Tensor(array).shape) == (ours, (2, 4))


@pytest.mark.parametrize("mode", ["ll", "ht"])
def test_a_layer_in_bfloat16(comm, mode):
    with MoE(comm, experts=comm.num_ranks, topk=1, hidden=16, dtype=ml_dtypes.bfloat16, max_tokens=4, mode=mode) as moe:
        x = numpy.full((2, 16), 1.5, ml_dtypes.bfloat16)
        recv, state = moe.dispatch(
            x, numpy.full((2, 1), comm.rank, numpy.int64), numpy.full((2, 1), 2.0, numpy.float32)
        )
        assert recv.tokens.dtype == ml_dtypes.bfloat16
        y = moe.combine(recv.tokens, state)
        assert y.dtype == ml_dtypes.bfloat16 and (y.astype(numpy.float32) == 3).all()
