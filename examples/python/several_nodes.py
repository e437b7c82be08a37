"""Tutorial 4, docs/tutorials/4-several-nodes.md: the same program on one node and on several."""

import statistics
import time

import numpy as np

import switchyard

TOPK, HIDDEN, TOKENS, ROUNDS = 4, 256, 64, 20


def round_trip(moe, x, topk_idx, topk_weights):
    recv, state = moe.dispatch(x, topk_idx, topk_weights)
    out = recv.empty_like()
    for expert, rows, place in recv:
        out[place] = rows * np.float32(expert)
    return moe.combine(out, state)


with switchyard.init() as comm:
    rng = np.random.default_rng(comm.rank)
    experts = 4 * comm.num_ranks
    x = rng.integers(-4, 5, (TOKENS, HIDDEN)).astype(np.float32)
    topk_idx = np.argsort(rng.random((TOKENS, experts)), axis=1)[:, :TOPK].astype(np.int64)
    topk_weights = np.full((TOKENS, TOPK), 0.25, np.float32)
    expected = x * (topk_idx.sum(1, keepdims=True) * 0.25).astype(np.float32)
    if comm.rank == 0:
        print("%d ranks on %d nodes" % (comm.num_ranks, comm.num_nodes))
    for mode in ("ll", "ht"):
        with switchyard.MoE(comm, experts=experts, topk=TOPK, hidden=HIDDEN, max_tokens=TOKENS, mode=mode) as moe:
            seconds = []
            for _ in range(ROUNDS):
                comm.barrier()
                begin = time.perf_counter()
                y = round_trip(moe, x, topk_idx, topk_weights)
                seconds.append(time.perf_counter() - begin)
            assert np.array_equal(y, expected)
            if comm.rank == 0:
                print("%s: right, %.2f ms a round trip" % (mode, 1e3 * statistics.median(seconds)))
