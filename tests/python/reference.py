"""What dispatch and combine must give, worked out from everybody's inputs in plain NumPy."""

import numpy

import switchyard


def routing(rng, num_tokens, num_experts, topk, dropped=0.1):
    """Distinct experts a token, some entries -1, and weights that are 0 there."""
    idx = (
        numpy.stack([rng.permutation(num_experts)[:topk] for _ in range(num_tokens)])
        if num_tokens
        else numpy.zeros((0, topk))
    )
    idx = idx.astype(numpy.int64)
    idx[rng.random(idx.shape) < dropped] = -1
    return idx, numpy.where(idx >= 0, rng.random(idx.shape) + 0.1, 0).astype(numpy.float32)


def everybodys(comm, array, most):
    """Each rank's array, whose first dimension may differ."""
    padded = numpy.zeros((most, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    sizes = comm.all_gather(numpy.array([len(array)], numpy.int64))[:, 0]
    return [rows[:size] for rows, size in zip(comm.all_gather(padded), sizes)]


def expected_rows(xs, idxs, expert):
    """(source rank, token, k, row) of all that go to an expert, in the order of the layouts."""
    return [
        (rank, token, k, x[token])
        for rank, (x, idx) in enumerate(zip(xs, idxs))
        for token in range(len(idx))
        for k in range(idx.shape[1])
        if idx[token, k] == expert
    ]


def new_group(comm, **config):
    defaults = dict(num_experts=3 * comm.num_ranks + 1, max_dispatch_tokens_per_rank=8, max_token_bytes=64)
    return switchyard.Group(comm, switchyard.GroupConfig(**{**defaults, **config}))
