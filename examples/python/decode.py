"""Tutorial 2, docs/tutorials/2-decode.md: one token a request and step, and a transfer behind a computation."""

import statistics
import time

import numpy as np

import switchyard
from switchyard import (
    CombineInputs,
    CombineOutputs,
    DispatchConfig,
    DispatchInputs,
    DispatchOutputs,
    Layout,
    LayoutInfo,
)

EXPERTS, TOPK, HIDDEN, LAYERS, STEPS, MAX_REQUESTS = 16, 4, 256, 3, 50, 8


def route(rng, num_tokens):
    """A router's choice: distinct experts for each token, and weights that add up to 1."""
    topk_idx = np.argsort(rng.random((num_tokens, EXPERTS)), axis=1)[:, :TOPK].astype(np.int64)
    weights = rng.random((num_tokens, TOPK)).astype(np.float32)
    return topk_idx, weights / weights.sum(1, keepdims=True)


def matrix(expert):
    return np.random.default_rng(expert).normal(0, HIDDEN**-0.5, (HIDDEN, HIDDEN)).astype(np.float32)


def decode(comm):
    rng = np.random.default_rng(comm.rank)
    moe = switchyard.MoE(comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens=MAX_REQUESTS)  # one for all layers
    matrices = {expert: matrix(expert) for expert in moe.local_experts}
    num_requests = 0 if comm.rank == 1 else 3 + comm.rank  # rank 1 is idle, and takes part
    x = rng.normal(size=(num_requests, HIDDEN)).astype(np.float32)
    seconds = []
    for step in range(STEPS):
        begin = time.perf_counter()
        for layer in range(LAYERS):
            recv, state = moe.dispatch(x, *route(rng, num_requests))
            out = recv.empty_like()
            for expert, rows, place in recv:
                out[place] = np.tanh(rows @ matrices[expert])
            x = x + moe.combine(out, state)
        seconds.append(time.perf_counter() - begin)
        if step == STEPS // 2 and num_requests:  # a request has ended
            num_requests -= 1
            x = x[:num_requests]
    print(
        "mode %s, %d requests at the end, %.2f ms a step" % (moe.mode, num_requests, 1e3 * statistics.median(seconds))
    )


def overlap(comm):
    """The two halves of a dispatch, with the shared expert between them."""
    rng = np.random.default_rng(comm.rank)
    group = switchyard.Group(
        comm,
        switchyard.GroupConfig(
            num_experts=EXPERTS, max_dispatch_tokens_per_rank=MAX_REQUESTS, max_token_bytes=HIDDEN * 4
        ),
    )
    x, shared = rng.normal(size=(4, HIDDEN)).astype(np.float32), matrix(EXPERTS)
    topk_idx, topk_weights = route(rng, 4)
    num_local = len(group.local_experts)
    rows = np.empty((num_local, group.rows_per_expert, HIDDEN), np.float32)
    counts = np.empty(num_local, np.int32)

    handle = group.create_handle(Layout.EXPERT_MAJOR, topk_idx)
    handle.dispatch(
        DispatchInputs(tokens=x),
        DispatchOutputs(tokens=rows),
        layout_info=LayoutInfo(expert_counters=counts),
        config=DispatchConfig(send_only=True),
    )
    y = np.tanh(x @ shared)  # while rows are on their way
    handle.complete()
    comm.stream.synchronize()

    for local, expert in enumerate(group.local_experts):
        mine = rows[local, : counts[local]]
        mine[:] = np.tanh(mine @ matrix(expert))
    routed = np.empty_like(x)
    handle.combine(CombineInputs(tokens=rows), CombineOutputs(tokens=routed, topk_weights=topk_weights))
    comm.stream.synchronize()
    y += routed

    expected = np.tanh(x @ shared)
    for k in range(TOPK):
        expected += (
            np.stack([np.tanh(row @ matrix(expert)) for row, expert in zip(x, topk_idx[:, k])])
            * topk_weights[:, k, None]
        )
    assert np.allclose(y, expected, atol=1e-5)
    print("in halves: right")


with switchyard.init() as comm:
    decode(comm)
    overlap(comm)
