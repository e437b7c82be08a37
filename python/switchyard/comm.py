"""Ranks that found each other: communicators, streams, symmetric memory, collectives."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy

from . import _core, checks
from .errors import InvalidArgument, InvalidUsage, SwitchyardError
from .lifetime import Closable
from .tensor import Tensor, as_tensor, numpy_dtype

UNIQUE_ID_BYTES = 128
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

    >>> import numpy, switchyard
    >>> comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    >>> stream = switchyard.Stream()
    >>> y = comm.all_reduce(numpy.arange(3.0), stream=stream)  # queued
    >>> stream.synchronize(timeout=10)
    >>> y.tolist()
    [0.0, 1.0, 2.0]
    >>> comm.close()
    """

    def __init__(self) -> None:
        _drop_idle_streams()
        self._core: _core.Stream = _core.HostStream()

    def synchronize(self, timeout: Optional[float] = None) -> None:
        """Waits until everything queued so far has run, and raises what failed since the last time.

        Every operation has a time limit of its own (Group's timeout_ns), so that this ends without a `timeout`, too.
        With one, in seconds, TimeoutError says that it has passed; everything stays queued.
        """
        self._core.synchronize(None if timeout is None else checks.seconds("timeout", timeout))

    @property
    def idle(self) -> bool:
        """Has everything queued so far run?"""
        return bool(self._core.idle)

    def close(self) -> None:
        """Waits until it is idle, then ends its thread. Not needed: an unused stream goes by itself."""
        self._core.close()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        try:
            if core is not None and not core.idle and _unused_streams is not None:
                _unused_streams.append(core)  # its last operations still need the thread
        except SwitchyardError:
            pass  # in a forked child, which has no part of it


class CudaStream(Stream):
    """A stream of CUDA, given as a torch or CuPy stream, anything with `__cuda_stream__`, or a cudaStream_t's number.

    Operations on a GPU take such objects as they are. Memory of a tensor that goes is used again by later work of the
    stream it was made on: as with torch's own operators, who uses it on another stream keeps it alive
    (Tensor.record_stream). A kernel can't raise: what failed in one is raised by the next call of its group, close()
    included, not by synchronize().
    """

    def __init__(self, comm: "Communicator", stream: Any) -> None:
        self._core = _core.CudaStream(comm._core, _cuda_handle(stream))

    def __del__(self) -> None:
        pass  # its owner has it


def _cuda_handle(stream: Any) -> int:
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr"):  # torch, CuPy
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if hasattr(stream, "__index__"):
        return checks.whole("stream", stream, most=checks.UINT64_MAX)
    checks.refuse("stream", stream, "a stream of torch or CuPy, with __cuda_stream__, or a cudaStream_t's number")


_unused_streams: List[_core.Stream] = []


def _drop_idle_streams() -> None:
    _unused_streams[:] = [core for core in _unused_streams if not core.idle]


def _has_passed(stream: Stream) -> bool:
    try:
        return stream.idle
    except SwitchyardError:
        return True  # one of CUDA that its owner has destroyed, or that failed: nothing to wait for


class UsedStreams:
    """The streams that have operations of one object to run, so that its memory outlives these."""

    def __init__(self) -> None:
        self._streams: List[Stream] = []

    def note(self, stream: Stream) -> _core.Stream:
        if not self._streams or self._streams[-1] is not stream:
            self._streams = [used for used in self._streams if used is not stream and not _has_passed(used)]
            self._streams.append(stream)
        return stream._core

    @property
    def idle(self) -> bool:
        return all(_has_passed(stream) for stream in self._streams)

    def drain(self) -> None:
        """Waits until they are idle; what failed was said, or would have been, to who waited for it."""
        while self._streams:
            try:
                self._streams[-1].synchronize()
            except SwitchyardError:
                pass
            self._streams.pop()


class CudaArray:
    """Memory of a GPU for other libraries. Types that NumPy lacks come as integers of their width: view them as theirs
    (`torch.as_tensor(array).view(torch.bfloat16)`)."""

    def __init__(self, owner: Any, address: int, shape: Sequence[int], dtype: "numpy.dtype[Any]") -> None:
        self._owner = owner
        element = dtype if dtype.isbuiltin == 1 and dtype.kind != "u" else numpy.dtype("int%d" % (8 * dtype.itemsize))
        self.__cuda_array_interface__ = {
            "shape": tuple(shape),
            "typestr": element.str,
            "data": (address, False),
            "version": 3,
        }


class SymmetricMemory(Closable):
    """Zeroed memory of one size on all ranks, reachable by all ranks of the node: a window. Collective to make.

    Tensors in it are written straight by the senders: `memory.tensor(...)` for calls, `memory.array(...)` to work with.

    >>> import numpy, switchyard
    >>> comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    >>> memory = switchyard.SymmetricMemory(comm, 4096)
    >>> memory.array((2, 3), "float32", offset=64).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    >>> memory.tensor((2, 3), "float32", offset=64)
    Tensor([2, 3] float32)
    >>> comm.close()
    """

    def __init__(self, comm: "Communicator", num_bytes: int) -> None:
        core = checks.instance("comm", comm, Communicator)._core
        self._core = _core.SymmetricMemory(core, checks.whole("num_bytes", num_bytes, most=checks.INT64_MAX))
        self._device = core.device
        super().__init__(comm)

    @property
    def num_bytes(self) -> int:
        return int(self._core.size)

    def tensor(self, shape: Sequence[int], dtype: Any, offset: int = 0, name: str = "tensor") -> Tensor:
        """A place in the window, for the calls of handles."""
        return Tensor(None, dtype=dtype, shape=shape, window=self, window_offset=offset, name=name)

    def array(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> Any:
        """The same place as a NumPy array; on a GPU as an object with the CUDA array interface, for torch.as_tensor or
        cupy.asarray. While one of these exists, the memory does.
        """
        memory: Any = self._core  # which has the buffer protocol
        place = self.tensor(shape, dtype, offset)  # refuses what does not fit
        if self._device.kind == _core.DeviceKind.HOST:
            return numpy.ndarray(place.shape, numpy_dtype(dtype), memory, int(offset))
        return CudaArray(memory, place.data_ptr, place.shape, numpy_dtype(dtype))

    def _release(self) -> None:
        self._core = _core.SymmetricMemory.closed()  # arrays may have the old one; the last of them ends it


class Communicator(Closable):
    """N ranks that found each other. Make one with init(), or with split() of another.

    Calls marked collective are made by all ranks in the same order. abort() may be called from any thread.

    >>> import numpy, switchyard
    >>> comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    >>> x = numpy.arange(4, dtype=numpy.float32)
    >>> comm.all_reduce(x, "max").tolist()
    [0.0, 1.0, 2.0, 3.0]
    >>> comm.all_gather(x).shape, comm.reduce_scatter(x[None]).shape
    ((1, 4), (4,))
    >>> comm.all_to_all_v(x[:3], [3], [3]).tolist()
    [0.0, 1.0, 2.0]
    >>> comm.close()
    """

    def __init__(self, core: _core.Comm) -> None:
        super().__init__(None)
        self._core = core
        self._stream: Optional[Stream] = None
        self._cuda_streams: Dict[int, CudaStream] = {}
        self._collectives: Optional[_core.Collectives] = None
        self._used = UsedStreams()  # by collectives
        self.rank: int = core.rank
        self.num_ranks: int = core.num_ranks
        self.num_nodes: int = core.num_nodes
        self._on_host: bool = core.device.kind == _core.DeviceKind.HOST
        #: "cpu" or "cuda:0": where its operations run, and where their tensors must be.
        self.device: str = "cpu" if self._on_host else "cuda:%d" % core.device.ordinal

    @property
    def stream(self) -> Stream:
        """The stream of calls that name none: one of its own on CPUs, torch's current one on a GPU."""
        if self.closed:
            raise InvalidUsage("invalid usage: the communicator is closed")
        if not self._on_host:
            torch = sys.modules.get("torch")
            if torch is None:
                raise InvalidUsage("invalid usage: torch is not loaded, so there is no current stream: give a `stream`")
            return self.stream_of(torch.cuda.current_stream(self._core.device.ordinal))
        if self._stream is None:
            self._stream = Stream()
        return self._stream

    def stream_of(self, stream: Any) -> Stream:
        """What a call's `stream` means: None, a Stream, or on a GPU whatever CudaStream takes."""
        if stream is None:
            return self.stream
        if isinstance(stream, Stream) and isinstance(stream, CudaStream) != self._on_host:
            return stream
        if self._on_host or isinstance(stream, Stream):
            raise InvalidArgument(
                "invalid argument: stream is a %s, this communicator runs on %s" % (type(stream).__name__, self.device)
            )
        handle = _cuda_handle(stream)
        if handle not in self._cuda_streams:
            self._cuda_streams[handle] = CudaStream(self, handle)
        return self._cuda_streams[handle]

    def split(self, color: int, key: int = 0) -> "Communicator":
        """Collective. The ranks of one colour, ordered by (key, rank), as a communicator of their own, which lives
        until it is closed, whatever becomes of this one.
        """
        return Communicator(self._core.split(_int32("color", color), _int32("key", key)))

    def barrier(self) -> None:
        """Collective. Returns when every rank came."""
        self._core.barrier()

    def abort(self, reason: str = "aborted by the program") -> None:
        """Ends every wait of this rank with an error, now; the other ranks are told. The communicator is of no use
        afterwards.
        """
        self._core.abort(checks.text_of("reason", reason))

    def check(self) -> None:
        """Raises what ended this communicator, if anything did."""
        self._core.check_async_error()

    # --- collectives: waiting where `stream` is None; else queued there, and `out` is ready when it has passed

    def all_reduce(self, x: Any, op: str = "sum", *, out: Any = None, stream: Any = None) -> Any:
        """Collective. The sum (prod, max, min, avg) over all ranks, the same bits on each. In place: out=x."""
        source = as_tensor(x, "x")
        out, target = self._target(x, source, out, source.shape)
        return self._run("all_reduce", stream, out, source, target, _count(source.shape), _reduce_op(op))

    def all_gather(self, x: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Collective. Every rank's x, by rank: [ranks, *x.shape]."""
        source = as_tensor(x, "x")
        out, target = self._target(x, source, out, (self.num_ranks, *source.shape))
        return self._run("all_gather", stream, out, source, target, _count(source.shape))

    def reduce_scatter(self, x: Any, op: str = "sum", *, out: Any = None, stream: Any = None) -> Any:
        """Collective. x is [ranks, ...]; this rank gets the sum of everybody's x[rank]."""
        source = as_tensor(x, "x")
        self._one_for_each("x", source.shape)
        out, target = self._target(x, source, out, source.shape[1:])
        return self._run("reduce_scatter", stream, out, source, target, _count(target.shape), _reduce_op(op))

    def broadcast(self, x: Any, root: int = 0, *, stream: Any = None) -> Any:
        """Collective. x of the root, in everybody's x."""
        source = as_tensor(x, "x")
        if not source.writable:
            raise InvalidArgument("invalid argument: x is read-only")
        root = checks.whole("root", root, most=self.num_ranks - 1)
        return self._run("broadcast", stream, x, source, source, _count(source.shape), root)

    def all_to_all(self, x: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Collective. x is [ranks, ...]; x[r] goes to rank r, and out[r] comes from it."""
        source = as_tensor(x, "x")
        self._one_for_each("x", source.shape)
        out, target = self._target(x, source, out, source.shape)
        return self._run("all_to_all", stream, out, source, target, _count(source.shape[1:]))

    def all_to_all_v(
        self, x: Any, sent: Sequence[int], received: Sequence[int], *, out: Any = None, stream: Any = None
    ) -> Any:
        """Collective. As all_to_all, with as many rows as `sent` and `received` say for each rank, side by side."""
        sent, received = checks.wholes("sent", sent), checks.wholes("received", received)
        for name, counts in (("sent", sent), ("received", received)):
            self._one_for_each(name, (len(counts),))
        source = as_tensor(x, "x")
        if source.shape[0] < sum(sent):
            raise InvalidArgument("invalid argument: x has %d rows, sent adds up to %d" % (source.shape[0], sum(sent)))
        out, target = self._target(x, source, out, (sum(received), *source.shape[1:]))
        row = _count(source.shape[1:])
        return self._run(
            "all_to_all_v", stream, out, source, [n * row for n in sent], target, [n * row for n in received]
        )

    def _target(self, x: Any, source: Tensor, out: Any, shape: Sequence[int]) -> Tuple[Any, Tensor]:
        """`out`, made where none is given, and as a tensor of this shape."""
        out = empty_like(x, shape) if out is None else out
        target = as_tensor(out, "out")
        if tuple(target.shape) != tuple(shape) or target.dtype != source.dtype:
            raise InvalidArgument(
                "invalid argument: out is %s %s, must be %s %s"
                % (list(target.shape), target.dtype, list(shape), source.dtype)
            )
        return out, target

    def _one_for_each(self, name: str, shape: Sequence[int]) -> None:
        if not shape or shape[0] != self.num_ranks:
            raise InvalidArgument(
                "invalid argument: %s must have one part for each of the %d ranks, it has shape %s"
                % (name, self.num_ranks, list(shape))
            )

    def _run(self, operation: str, stream: Any, result: Any, *arguments: Any) -> Any:
        if self._collectives is None:
            self._collectives = _core.Collectives(self._core)  # collective, as the first call is
        getattr(self._collectives, operation)(*arguments, self._used.note(self.stream_of(stream)))
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
        self._cuda_streams.clear()
        if self._collectives is not None:
            self._collectives.close()
        self._core.close()


def _count(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _reduce_op(op: str) -> int:
    if not isinstance(op, str) or op not in REDUCE_OPS:
        checks.refuse("op", op, "one of " + ", ".join(REDUCE_OPS))
    return REDUCE_OPS[op]


def _int32(name: str, value: Any) -> int:
    return checks.whole(name, value, -checks.INT32_MAX - 1, checks.INT32_MAX)


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
    device: Any = "cpu",
) -> Communicator:
    """Collective. Joins the ranks of the job; returns when all have come, or raises after SWITCHYARD_TIMEOUT_MS, naming
    who has not.

    Without arguments from the environment of `switchyard run`, torchrun, mpirun or Slurm. Else with a unique id that
    rank 0 made, or a store ("file:///absolute/path", "tcp://host:port" of rank 0's host), and this process's rank.

    device: "cpu", or "cuda" (torch's current device, or the first), "cuda:1", a torch device: where operations run.

    >>> import switchyard
    >>> comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    >>> comm.rank, comm.num_ranks
    (0, 1)
    >>> comm.close()
    """
    if unique_id is None and store is None:
        if rank is not None or num_ranks is not None:
            raise InvalidArgument("invalid argument: rank and num_ranks go with a unique_id or a store")
        return Communicator(_core.Comm.from_environment(_device_id(device)))
    if unique_id is not None and store is not None:
        raise InvalidArgument("invalid argument: give a unique_id or a store, not both")
    if rank is None or num_ranks is None:
        raise InvalidArgument("invalid argument: a unique_id or a store needs rank and num_ranks")
    rank, num_ranks = _int32("rank", rank), _int32("num_ranks", num_ranks)
    if unique_id is not None:
        key = checks.key_of("unique_id", unique_id, UNIQUE_ID_BYTES)
        return Communicator(_core.Comm.from_unique_id(key, rank, num_ranks, _device_id(device)))
    store, job_key = checks.text_of("store", store), checks.text_of("job_key", job_key)
    return Communicator(_core.Comm.from_store(store, rank, num_ranks, job_key, _device_id(device)))


def _device_id(device: Any) -> _core.DeviceId:
    kind, _, ordinal = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (ordinal and not ordinal.isdigit()):
        raise InvalidArgument("invalid argument: device is %r, allowed are 'cpu', 'cuda' and 'cuda:N'" % (device,))
    if kind == "cpu":
        return _core.DeviceId(_core.DeviceKind.HOST, 0)
    if ordinal:
        return _core.DeviceId(_core.DeviceKind.CUDA, int(ordinal))
    torch = sys.modules.get("torch")
    return _core.DeviceId(_core.DeviceKind.CUDA, 0 if torch is None else int(torch.cuda.current_device()))
