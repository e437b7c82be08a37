"""Tutorial 1, docs/tutorials/1-first-dispatch.md: every rank sends two tokens to experts and gets their sums back."""

import numpy as np

import switchyard

EXPERTS, TOPK, HIDDEN = 8, 2, 4


def expert_forward(expert, rows):
    """What an expert computes; here, its number plus one times the row."""
    return rows * np.float32(expert + 1)


with switchyard.init() as comm:
    moe = switchyard.MoE(comm, experts=EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens=2)
    if comm.rank == 0:
        print(moe.reason)
    print("has experts", moe.local_experts)

    # Two tokens of this rank, the experts a router has picked for them, and its weights.
    x = np.full((2, HIDDEN), 1 + comm.rank, np.float32)
    topk_idx = np.array([[0, 7], [2 * comm.rank, (2 * comm.rank + 3) % EXPERTS]], np.int64)
    topk_weights = np.array([[0.5, 0.5], [0.75, 0.25]], np.float32)

    recv, state = moe.dispatch(x, topk_idx, topk_weights)
    out = recv.empty_like()
    for expert, rows, place in recv:
        print("expert", expert, "got rows of", rows[:, 0].tolist())
        out[place] = expert_forward(expert, rows)
    y = moe.combine(out, state)

    print("token 0 is", y[0, 0], "token 1 is", y[1, 0])
    expected = sum(topk_weights[:, k, None] * x * (topk_idx[:, k, None] + 1) for k in range(TOPK))
    assert np.array_equal(y, expected)
