"""What Python adds to a low-latency round trip: the same handle and tensors, called from C++ and from Python in turns.

switchyard run -n 2 -- python -m switchyard.overhead --json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any, Dict, List

import numpy

from .comm import Communicator, init, make_unique_id
from .ep import CombineInputs, CombineOutputs, DispatchInputs, DispatchOutputs, Group, GroupConfig, Layout, LayoutInfo
from .moe import MoE
from .tensor import Tensor


def measure(
    comm: Communicator,
    *,
    tokens: int = 1,
    hidden: int = 1024,
    topk: int = 4,
    experts_per_rank: int = 4,
    turns: int = 60,
    rounds: int = 20,
) -> Dict[str, Any]:
    """Collective. Medians in microseconds: "cpp"; "handle", the calls of Handle; "moe", those of the short form; and
    what these add, as the median over the turns of the difference of neighbouring medians, so that a machine that gets
    slower meanwhile does not count.
    """
    experts = experts_per_rank * comm.num_ranks
    rng = numpy.random.default_rng(comm.rank)
    x = rng.normal(size=(tokens, hidden)).astype(numpy.float32)
    idx = numpy.stack([rng.permutation(experts)[:topk] for _ in range(tokens)]).astype(numpy.int64)
    weights = numpy.ones((tokens, topk), numpy.float32)
    group = Group(
        comm, GroupConfig(num_experts=experts, max_dispatch_tokens_per_rank=tokens, max_token_bytes=4 * hidden)
    )
    rows = numpy.zeros((len(group.local_experts), group.rows_per_expert, hidden), numpy.float32)
    counts, y = numpy.zeros(len(rows), numpy.int32), numpy.zeros_like(x)
    handle = group.create_handle(Layout.EXPERT_MAJOR, idx)
    stream = comm.stream
    dispatch_in, dispatch_out = DispatchInputs(tokens=x), DispatchOutputs(tokens=rows)
    info = LayoutInfo(expert_counters=counts)
    combine_in, combine_out = CombineInputs(tokens=rows), CombineOutputs(tokens=y, topk_weights=weights)
    native = Tensor(x), Tensor(rows), Tensor(counts), Tensor(y), Tensor(weights)
    moe = MoE(comm, experts=experts, topk=topk, hidden=hidden, max_tokens=tokens, mode="ll")
    now = time.perf_counter_ns

    def from_cpp() -> List[int]:
        return list(handle._core.time_round_trips(*native, rounds, stream._core))

    def from_handle() -> List[int]:
        times = []
        for _ in range(rounds):
            begin = now()
            handle.dispatch(dispatch_in, dispatch_out, layout_info=info)
            stream.synchronize()
            handle.combine(combine_in, combine_out)
            stream.synchronize()
            times.append(now() - begin)
        return times

    def from_moe() -> List[int]:
        times = []
        for _ in range(rounds):
            begin = now()
            recv, state = moe.dispatch(x, idx, weights)
            moe.combine(recv.tokens, state)
            times.append(now() - begin)
        return times

    medians: Dict[str, List[float]] = {"cpp": [], "handle": [], "moe": []}
    for turn in range(turns + 3):
        comm.barrier()
        of_turn = {"cpp": from_cpp(), "handle": from_handle(), "moe": from_moe()}
        if turn >= 3:  # the first ones warm up
            for name, times in of_turn.items():
                medians[name].append(statistics.median(times) / 1e3)
    moe.close()
    group.close()
    result: Dict[str, Any] = {name: statistics.median(values) for name, values in medians.items()}
    for name in ("handle", "moe"):
        result[name + "_adds"] = statistics.median(mine - cpp for mine, cpp in zip(medians[name], medians["cpp"]))
    return {
        **result,
        "ranks": comm.num_ranks,
        "tokens": tokens,
        "hidden": hidden,
        "topk": topk,
        "rounds": turns * rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What Python adds to a low-latency round trip, in microseconds")
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    launched = any(name in os.environ for name in ("SWITCHYARD_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"))
    with init() if launched else init(unique_id=make_unique_id(), rank=0, num_ranks=1) as comm:
        result = measure(comm, tokens=options.tokens, hidden=options.hidden, turns=options.turns)
        if comm.rank == 0:
            print(
                json.dumps(result)
                if options.json
                else "%(ranks)d ranks, %(tokens)d tokens of %(hidden)d floats, top-%(topk)d, %(rounds)d round trips: "
                "C++ %(cpp).1f us; "
                "Handle %(handle).1f us, adds %(handle_adds).1f us; MoE %(moe).1f us, adds %(moe_adds).1f us" % result
            )


if __name__ == "__main__":
    main()
