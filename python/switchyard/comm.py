"""Ranks that found each other: communicators, streams, symmetric memory, collectives."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy

from . import _core
from .errors import InvalidArgument, InvalidUsage, SwitchyardError
from .lifetime import Closable
from .tensor import Tensor, as_tensor, numpy_dtype

REDUCE_OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


def empty_like(value: Any, shape: Sequence[int]) -> Any:
    """Uninitialised memory of the kind and type of `value`: a NumPy array or a torch tensor."""
    if isinstance(value, numpy.ndarray):
        return numpy.empty(shape, value.dtype)
    if hasattr(value, "new_empty"):
        return value.new_empty(tuple(shape))
    raise InvalidArgument(
        "invalid argument: give `out`: there is no telling what to make for a %s" % type(value).__name__
    )


class Stream:
    """An in-order queue with a worker thread of its own: what a CUDA stream is, on a CPU.

    Operations keep their tensors alive until the stream has passed them. A wait can be interrupted (Ctrl-C); what is
    queued then goes on.
    """

    def __init__(self) -> None:
        _drop_idle_streams()
        self._core = _core.Stream()

    def synchronize(self, timeout: Optional[float] = None) -> None:
        """Waits until everything queued so far has run, and raises what failed since the last time.

        Every operation has a time limit of its own (Group's timeout_ns), so that this ends without a `timeout`, too.
        With one, in seconds, TimeoutError says that it has passed; everything stays queued.
        """
        self._core.synchronize(timeout)

    @property
    def idle(self) -> bool:
        """Has everything queued so far run?"""
        return bool(self._core.idle)

    def close(self) -> None:
        """Waits until it is idle, then ends its thread. Not needed: an unused stream goes by itself."""
        self._core.close()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.idle and _unused_streams is not None:
            _unused_streams.append(core)  # its last operations still need the thread


_unused_streams: List[_core.Stream] = []


def _drop_idle_streams() -> None:
    _unused_streams[:] = [core for core in _unused_streams if not core.idle]


class UsedStreams:
    """The streams that operations of one object were queued to, so that its memory outlives them."""

    def __init__(self) -> None:
        self._streams: List[Stream] = []

    def note(self, stream: Stream) -> _core.Stream:
        if not self._streams or self._streams[-1] is not stream:
            if stream in self._streams:
                self._streams.remove(stream)
            self._streams.append(stream)
        return stream._core

    @property
    def idle(self) -> bool:
        return all(stream.idle for stream in self._streams)

    def drain(self) -> None:
        """Waits until they are idle; what failed was said, or would have been, to who waited for it."""
        while self._streams:
            try:
                self._streams[-1].synchronize()
            except SwitchyardError:
                pass
            self._streams.pop()


class SymmetricMemory(Closable):
    """Zeroed memory of one size on all ranks, reachable by all ranks of the node: a window. Collective to make.

    Tensors in it are written straight by the senders: `memory.tensor(...)` for calls, `memory.array(...)` to work with.
    """

    def __init__(self, comm: "Communicator", num_bytes: int) -> None:
        self._core = _core.SymmetricMemory(comm._core, num_bytes)
        super().__init__(comm)

    @property
    def num_bytes(self) -> int:
        return int(self._core.size)

    def tensor(self, shape: Sequence[int], dtype: Any, offset: int = 0, name: str = "tensor") -> Tensor:
        """A place in the window, for the calls of handles."""
        return Tensor(None, dtype=dtype, shape=shape, window=self, window_offset=offset, name=name)

    def array(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> "numpy.ndarray[Any, Any]":
        """The same place as a NumPy array. While one of these exists, the memory does."""
        memory: Any = self._core  # which has the buffer protocol
        return numpy.ndarray(shape, numpy_dtype(dtype), memory, offset)

    def _release(self) -> None:
        self._core = _core.SymmetricMemory.closed()  # arrays may have the old one; the last of them ends it


class Communicator(Closable):
    """N ranks that found each other. Make one with init(), or with split() of another.

    Calls marked collective are made by all ranks in the same order. abort() may be called from any thread.
    """

    def __init__(self, core: _core.Comm) -> None:
        super().__init__(None)
        self._core = core
        self._stream: Optional[Stream] = None
        self._collectives: Optional[_core.Collectives] = None
        self._used = UsedStreams()  # by collectives
        self.rank: int = core.rank
        self.num_ranks: int = core.num_ranks
        self.num_nodes: int = core.num_nodes

    @property
    def stream(self) -> Stream:
        """The stream of calls that name none."""
        if self._stream is None:
            if self.closed:
                raise InvalidUsage("invalid usage: the communicator is closed")
            self._stream = Stream()
        return self._stream

    def split(self, color: int, key: int = 0) -> "Communicator":
        """Collective. The ranks of one colour, ordered by (key, rank), as a communicator of their own."""
        return Communicator(self._core.split(color, key))

    def barrier(self) -> None:
        """Collective. Returns when every rank came."""
        self._core.barrier()

    def abort(self, reason: str = "aborted by the program") -> None:
        """Ends every wait of this rank with an error, now; the other ranks are told. The communicator is of no use
        afterwards.
        """
        self._core.abort(reason)

    def check(self) -> None:
        """Raises what ended this communicator, if anything did."""
        self._core.check_async_error()

    # --- collectives: waiting where `stream` is None; else queued there, and `out` is ready when it has passed

    def all_reduce(self, x: Any, op: str = "sum", *, out: Any = None, stream: Optional[Stream] = None) -> Any:
        """Collective. The sum (prod, max, min, avg) over all ranks, the same bits on each. In place: out=x."""
        out = empty_like(x, x.shape) if out is None else out
        source, target = self._pair(x, out)
        self._expect(target, source.shape, source)
        return self._run("all_reduce", stream, out, source, target, _count(source.shape), _reduce_op(op))

    def all_gather(self, x: Any, *, out: Any = None, stream: Optional[Stream] = None) -> Any:
        """Collective. Every rank's x, by rank: [ranks, *x.shape]."""
        out = empty_like(x, (self.num_ranks, *x.shape)) if out is None else out
        source, target = self._pair(x, out)
        self._expect(target, (self.num_ranks, *source.shape), source)
        return self._run("all_gather", stream, out, source, target, _count(source.shape))

    def reduce_scatter(self, x: Any, op: str = "sum", *, out: Any = None, stream: Optional[Stream] = None) -> Any:
        """Collective. x is [ranks, ...]; this rank gets the sum of everybody's x[rank]."""
        self._one_for_each("x", x.shape)
        out = empty_like(x, x.shape[1:]) if out is None else out
        source, target = self._pair(x, out)
        self._expect(target, source.shape[1:], source)
        return self._run("reduce_scatter", stream, out, source, target, _count(target.shape), _reduce_op(op))

    def broadcast(self, x: Any, root: int = 0, *, stream: Optional[Stream] = None) -> Any:
        """Collective. x of the root, in everybody's x."""
        source = as_tensor(x, "x")
        return self._run("broadcast", stream, x, source, source, _count(source.shape), root)

    def all_to_all(self, x: Any, *, out: Any = None, stream: Optional[Stream] = None) -> Any:
        """Collective. x is [ranks, ...]; x[r] goes to rank r, and out[r] comes from it."""
        self._one_for_each("x", x.shape)
        out = empty_like(x, x.shape) if out is None else out
        source, target = self._pair(x, out)
        self._expect(target, source.shape, source)
        return self._run("all_to_all", stream, out, source, target, _count(source.shape[1:]))

    def all_to_all_v(
        self, x: Any, sent: Sequence[int], received: Sequence[int], *, out: Any = None, stream: Optional[Stream] = None
    ) -> Any:
        """Collective. As all_to_all, with as many rows as `sent` and `received` say for each rank, side by side."""
        for name, counts in (("sent", sent), ("received", received)):
            self._one_for_each(name, (len(counts),))
        out = empty_like(x, (sum(received), *x.shape[1:])) if out is None else out
        source, target = self._pair(x, out)
        if source.shape[0] < sum(sent):
            raise InvalidArgument("invalid argument: x has %d rows, sent adds up to %d" % (source.shape[0], sum(sent)))
        self._expect(target, (sum(received), *source.shape[1:]), source)
        row = _count(source.shape[1:])
        return self._run(
            "all_to_all_v", stream, out, source, [n * row for n in sent], target, [n * row for n in received]
        )

    def _pair(self, x: Any, out: Any) -> Sequence[Tensor]:
        return as_tensor(x, "x"), as_tensor(out, "out")

    def _expect(self, out: Tensor, shape: Sequence[int], like: Tensor) -> None:
        if tuple(out.shape) != tuple(shape) or out.dtype != like.dtype:
            raise InvalidArgument(
                "invalid argument: out is %s %s, must be %s %s" % (list(out.shape), out.dtype, list(shape), like.dtype)
            )

    def _one_for_each(self, name: str, shape: Sequence[int]) -> None:
        if not shape or shape[0] != self.num_ranks:
            raise InvalidArgument(
                "invalid argument: %s must have one part for each of the %d ranks, it has shape %s"
                % (name, self.num_ranks, list(shape))
            )

    def _run(self, operation: str, stream: Optional[Stream], result: Any, *arguments: Any) -> Any:
        if self._collectives is None:
            self._collectives = _core.Collectives(self._core)  # collective, as the first call is
        getattr(self._collectives, operation)(*arguments, self._used.note(stream or self.stream))
        if stream is None:
            self.stream.synchronize()
        return result

    def _abandon(self, error: BaseException) -> None:
        try:
            self.abort("%s: %s" % (type(error).__name__, error))
            self.close()
        except SwitchyardError:
            pass  # the exception that ended the program says more

    def _release(self) -> None:
        self._used.drain()
        if self._stream is not None:
            self._stream.close()
        if self._collectives is not None:
            self._collectives.close()
        self._core.close()


def _count(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _reduce_op(op: str) -> int:
    if op not in REDUCE_OPS:
        raise InvalidArgument("invalid argument: op is %r, allowed are %s" % (op, ", ".join(REDUCE_OPS)))
    return REDUCE_OPS[op]


def make_unique_id() -> bytes:
    """What one rank makes and all ranks give to init(). It holds the key of the job: keep it private."""
    return bytes(_core.make_unique_id())


def init(
    *,
    unique_id: Optional[bytes] = None,
    store: Optional[str] = None,
    rank: Optional[int] = None,
    num_ranks: Optional[int] = None,
    job_key: str = "",
) -> Communicator:
    """Collective. Joins the ranks of the job; returns when all have come, or raises after SWITCHYARD_TIMEOUT_MS, naming
    who has not.

    Without arguments from the environment of `switchyard run`, torchrun, mpirun or Slurm. Else with a unique id that
    rank 0 made, or a store ("file:///absolute/path", "tcp://host:port" of rank 0's host), and this process's rank.

    >>> import switchyard
    >>> comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    >>> comm.rank, comm.num_ranks
    (0, 1)
    >>> comm.close()
    """
    if unique_id is None and store is None:
        if rank is not None or num_ranks is not None:
            raise InvalidArgument("invalid argument: rank and num_ranks go with a unique_id or a store")
        return Communicator(_core.Comm.from_environment())
    if unique_id is not None and store is not None:
        raise InvalidArgument("invalid argument: give a unique_id or a store, not both")
    if rank is None or num_ranks is None:
        raise InvalidArgument("invalid argument: a unique_id or a store needs rank and num_ranks")
    if unique_id is not None:
        return Communicator(_core.Comm.from_unique_id(unique_id, rank, num_ranks))
    assert store is not None
    return Communicator(_core.Comm.from_store(store, rank, num_ranks, job_key))
