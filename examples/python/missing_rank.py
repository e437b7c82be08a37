"""Tutorial 5, docs/tutorials/5-when-something-hangs.md: a rank that does not come, and what the others see of it.

Its argument is the way it does not come: late, masks or abort."""

import sys
import time

import numpy as np

import switchyard
from switchyard import CombineInputs, CombineOutputs, DispatchInputs, DispatchOutputs, Layout, LayoutInfo

HIDDEN, MISSING = 8, 2


def late(comm):
    """Rank 2 computes for too long. The others give up after the group's time limit, and say whom they waited for."""
    moe = switchyard.MoE(comm, experts=4, topk=1, hidden=HIDDEN, max_tokens=4, timeout=2.0)
    x, idx, weights = np.ones((1, HIDDEN), np.float32), np.array([[(comm.rank + 1) % 4]]), np.ones((1, 1), np.float32)
    comm.barrier()
    if comm.rank == MISSING:
        time.sleep(3)
        return
    begin = time.monotonic()
    try:
        moe.dispatch(x, idx, weights)
    except switchyard.RemoteError as error:
        print("after %.1f s: %s" % (time.monotonic() - begin, error))


def masks(comm):
    """The same with masks: the others go on without it, and take it in again when it is back."""
    group = switchyard.Group(
        comm,
        switchyard.GroupConfig(
            num_experts=4,
            max_dispatch_tokens_per_rank=4,
            max_token_bytes=HIDDEN * 4,
            enable_mask=True,
            timeout_ns=2_000_000_000,
        ),
    )
    x, weights = np.ones((1, HIDDEN), np.float32), np.ones((1, 2), np.float32)
    idx = np.array([[comm.rank, (comm.rank + 1) % 4]])  # the experts of this rank and of the next
    rows, counts = np.zeros((1, group.rows_per_expert, HIDDEN), np.float32), np.zeros(1, np.int32)
    handle = group.create_handle(Layout.EXPERT_MAJOR, idx)

    def round_trip():
        y = np.zeros_like(x)
        handle.dispatch(
            DispatchInputs(tokens=x), DispatchOutputs(tokens=rows), layout_info=LayoutInfo(expert_counters=counts)
        )
        handle.combine(CombineInputs(tokens=rows), CombineOutputs(tokens=y, topk_weights=weights))
        comm.stream.synchronize()
        return y[0, 0]

    comm.barrier()
    if comm.rank != MISSING:
        result = round_trip()
        print("without it: result", result, "mask", group.mask_query().tolist(), "error", group.async_error())
    comm.barrier()  # rank 2 is back
    group.mask_clean()
    group.error_clear()
    result = round_trip()
    print("with it: result", result, "mask", group.mask_query().tolist(), "error", group.async_error())


def abort(comm):
    """Rank 2 finds that it can't go on. It says so, and nobody waits for it."""
    moe = switchyard.MoE(comm, experts=4, topk=1, hidden=HIDDEN, max_tokens=4)  # with the time limit of 100 s
    if comm.rank == MISSING:
        time.sleep(0.3)
        comm.abort("my disk is full")
        return
    begin = time.monotonic()
    try:
        moe.dispatch(np.ones((1, HIDDEN), np.float32), np.array([[MISSING]]), np.ones((1, 1), np.float32))
    except switchyard.RemoteError as error:
        print("after %.1f s: %s" % (time.monotonic() - begin, error))
    try:
        comm.check()
    except switchyard.RemoteError as error:
        print("because:", error)


communicator = switchyard.init()
{"late": late, "masks": masks, "abort": abort}[sys.argv[1]](communicator)
