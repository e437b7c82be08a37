"""What test_endings.py starts as one rank: does what its argument says, and says when it is about to wait for a rank
that does not come.
"""

import gc
import os
import sys
import threading
import time

import numpy

import switchyard
from switchyard import MoE


def waiting():
    print("waiting", flush=True)


def make(comm, mode="ll"):
    moe = MoE(comm, experts=comm.num_ranks, topk=1, hidden=8, max_tokens=4, mode=mode)
    x, idx = numpy.ones((2, 8), numpy.float32), numpy.full((2, 1), (comm.rank + 1) % comm.num_ranks, numpy.int64)
    recv, state = moe.dispatch(x, idx, numpy.ones((2, 1), numpy.float32))
    assert (moe.combine(recv.tokens, state) == x).all()
    return moe, lambda: moe.dispatch(x, idx, numpy.ones((2, 1), numpy.float32))


def wait_in(comm, what):
    """Rank 0 waits; the others are there, but do something else."""
    moe, dispatch = make(comm, "ht" if what == "dispatch_ht" else "ll")
    comm.all_reduce(numpy.ones(1))
    stream = switchyard.Stream()

    def queue(num_operations=1):
        for _ in range(num_operations):
            comm.all_reduce(numpy.ones(1), stream=stream)

    def close_handles():  # what they leave behind is kept for what still runs, but not without end
        for _ in range(100):
            handle = switchyard.Handle(moe.group, switchyard.Layout.EXPERT_MAJOR, 1)
            handle.update(numpy.zeros((1, 1), numpy.int64))
            rows = numpy.zeros((1, moe.group.rows_per_expert, 8), numpy.float32)
            inputs, outputs = switchyard.DispatchInputs(tokens=rows[0, :1].copy()), switchyard.DispatchOutputs(tokens=rows)
            handle.dispatch(inputs, outputs, layout_info=switchyard.LayoutInfo(expert_counters=numpy.zeros(1, numpy.int32)))
            handle.close()

    calls = {
        "dispatch_ll": dispatch,
        "dispatch_ht": dispatch,
        "stream": lambda: (queue(), stream.synchronize()),
        "full_stream": lambda: queue(1000),
        "close_stream": lambda: (queue(), stream.close()),
        "close_handles": close_handles,
        "all_reduce": lambda: comm.all_reduce(numpy.ones(1)),
        "barrier": comm.barrier,
        "split": lambda: comm.split(0),
        "group": lambda: make(comm),
        "memory": lambda: switchyard.SymmetricMemory(comm, 4096),
        "close": moe.close,
    }
    comm.barrier()
    if comm.rank == 0:
        waiting()
        calls[what]()
    else:
        time.sleep(60)


def main(scenario):
    if scenario == "init":
        waiting()
        switchyard.init()
    comm = switchyard.init()
    if scenario.startswith("wait:"):
        wait_in(comm, scenario[len("wait:") :])
    elif scenario == "leave_open":  # nothing is closed, and globals go in any order
        globals()["moe"], globals()["again"] = make(comm)
        globals()["stream"], globals()["aa_comm"] = switchyard.Stream(), comm
        globals()["array"] = switchyard.SymmetricMemory(comm, 4096).array((4,), "float32")
    elif scenario == "drop":
        moe, again = make(comm)
        cycle = [moe, comm, again]
        cycle.append(cycle)
        del moe, comm, again, cycle
        gc.collect()
    elif scenario in ("daemon", "daemon_raise"):  # a thread is in a wait when the program ends
        moe, again = make(comm)
        if comm.rank == 0:
            threading.Thread(target=again, daemon=True).start()
            time.sleep(0.2)
            if scenario == "daemon_raise":
                raise ValueError("rank 0 has had enough")
        else:
            time.sleep(0.5)
            if scenario == "daemon":
                again()
    elif scenario == "raise":
        moe, again = make(comm)
        if comm.rank == 1:
            raise ValueError("rank 1 has had enough")
        again()
    elif scenario == "exit":
        with comm:
            moe, again = make(comm)
            if comm.rank == 1:
                sys.exit(3)
            again()
    elif scenario == "exit_zero":
        moe, again = make(comm)
        try:
            sys.exit(5)
        except SystemExit:
            pass
        if comm.rank == 0:
            time.sleep(1.5)  # has something else to do, while rank 1 waits to close
        sys.exit(0)
    elif scenario == "die":
        moe, again = make(comm)
        if comm.rank == 1:
            os.kill(os.getpid(), 9)
        again()
    else:
        raise SystemExit("no such scenario: " + scenario)


main(sys.argv[1])
