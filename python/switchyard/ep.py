"""Expert parallelism in the shape of NCCL EP: groups, handles, dispatch, combine, complete, masks.

The dataclasses have the fields of the C structs (nccl_ep.h, docs/ep.md), keyword-only; zero and None mean default.
Tensors may be given as NumPy arrays, torch tensors, or anything else that Tensor() takes; errors name the field.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Dict, List, Optional, Type, TypeVar

import numpy

from . import _core, checks
from .comm import Communicator, UsedStreams
from .errors import InvalidArgument
from .lifetime import Closable
from .tensor import Tensor, as_tensor


Kind = TypeVar("Kind")


class Algorithm(enum.IntEnum):
    """Low latency for the few tokens of a decode step; high throughput for the many of training and prefill."""

    LOW_LATENCY = 0
    HIGH_THROUGHPUT = 1


class Layout(enum.IntEnum):
    """How received rows lie: by expert; by source rank; or once each, wherever they come from (docs/ep.md)."""

    EXPERT_MAJOR = 1
    RANK_MAJOR = 2
    FLAT = 3


class OverflowPolicy(enum.IntEnum):
    """What becomes of rows beyond max_recv_tokens_per_rank: an error, or they are left out."""

    AUTO = 0
    TRAP = 1
    DROP = 2


class ZeroCopyMode(enum.IntEnum):
    """May senders write straight into tensors that lie in windows?"""

    AUTO = 0
    OFF = 1
    ON = 2


class PassDir(enum.IntEnum):
    """Of tokens, or of their gradients along the same routing."""

    FWD = 0
    BWD = 1


class ExpertIdKind(enum.IntEnum):
    """The numbers in a received topk_idx: among this rank's experts, or among all."""

    AUTO = 0
    LOCAL = 1
    GLOBAL = 2


class DispatchQuant(enum.IntEnum):
    """How a dispatch treats values: as they are, codes with their scales forwarded, or BF16 made FP8 on the way."""

    NONE = 0
    FWD = 1
    DS_FP8E3M4 = 2


class CombineQuant(enum.IntEnum):
    """How a combine sends values: as they are, or as NVFP4."""

    NONE = 0
    NVFP4 = 1


def _check_fields(config: Any) -> None:
    """Numbers and choices of a dataclass must be what their defaults are, and are then of exactly that type."""
    for field in dataclasses.fields(config):
        kind, value = type(field.default), getattr(config, field.name)
        if isinstance(field.default, enum.IntEnum):
            value = checks.member(field.name, value, type(field.default))
        elif kind is bool:
            value = checks.flag(field.name, value)
        elif kind is int:
            most = checks.UINT64_MAX if field.name in _LONG else checks.UINT32_MAX
            value = checks.whole(field.name, value, most=most)
        object.__setattr__(config, field.name, value)


_LONG = ("rdma_buffer_size", "timeout_ns")


class _Described:
    """A dataclass of tensors, described once, when it is made, so that calls need not: `_tensors`, in the binding's
    order.
    """

    _tensors: Any

    def _describe(self, prefix: str, *names: str) -> None:
        values = [(name, getattr(self, name)) for name in names]
        tensors = [
            _core.ABSENT if value is None else as_tensor(value, "%s.%s" % (prefix, name)) for name, value in values
        ]
        object.__setattr__(self, "_tensors", tuple(tensors))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """What the ranks of a group agree on."""

    algorithm: Algorithm = Algorithm.LOW_LATENCY
    num_experts: int = 0
    max_dispatch_tokens_per_rank: int = 0
    max_recv_tokens_per_rank: int = 0
    max_token_bytes: int = 0
    rdma_buffer_size: int = 0
    num_topk: int = 0
    enable_mask: bool = False
    timeout_ns: int = 0
    zero_copy: ZeroCopyMode = ZeroCopyMode.AUTO
    overflow_policy: OverflowPolicy = OverflowPolicy.AUTO

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HandleConfig:
    """Of one handle. High throughput: each expert's rows begin at a multiple of the alignment, a power of two."""

    dispatch_output_per_expert_alignment: int = 0

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayoutInfo(_Described):
    """Where an update or a dispatch writes how many rows there are, and for whom."""

    expert_counters: Any = None
    src_rank_counters: Any = None
    expert_offsets: Any = None
    recv_total_counter: Any = None
    recv_topk_idx_kind: ExpertIdKind = ExpertIdKind.AUTO

    def __post_init__(self) -> None:
        _check_fields(self)
        self._describe("layout_info", "expert_counters", "src_rank_counters", "expert_offsets", "recv_total_counter")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DispatchInputs(_Described):
    """This rank's rows, [tokens, hidden], with what goes along."""

    tokens: Any
    topk_weights: Any = None
    scales: Any = None

    def __post_init__(self) -> None:
        self._describe("inputs", "tokens", "topk_weights", "scales")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DispatchOutputs(_Described):
    """Memory for the rows that come, and what comes along."""

    tokens: Any
    topk_weights: Any = None
    scales: Any = None
    topk_idx: Any = None

    def __post_init__(self) -> None:
        self._describe("outputs", "tokens", "topk_weights", "scales", "topk_idx")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CombineInputs(_Described):
    """What the experts made of the rows, where a dispatch put these."""

    tokens: Any
    topk_weights: Any = None
    scales: Any = None

    def __post_init__(self) -> None:
        self._describe("inputs", "tokens", "topk_weights", "scales")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CombineOutputs(_Described):
    """Memory for this rank's tokens. topk_weights: low latency reads its weights there, a backward writes gradients."""

    tokens: Any
    topk_weights: Any = None

    def __post_init__(self) -> None:
        self._describe("outputs", "tokens", "topk_weights")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DispatchConfig:
    """send_only: the receiving half comes with complete(). round_scales: scales become powers of two."""

    send_only: bool = False
    round_scales: bool = False
    pass_direction: PassDir = PassDir.FWD
    quant_recipe: DispatchQuant = DispatchQuant.NONE

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CombineConfig:
    """send_only: the receiving half comes with complete()."""

    send_only: bool = False
    pass_direction: PassDir = PassDir.FWD
    quant_recipe: CombineQuant = CombineQuant.NONE

    def __post_init__(self) -> None:
        _check_fields(self)


def _given(name: str, value: Optional[Kind], kind: Type[Kind], default: Kind) -> Kind:
    return default if value is None else checks.instance(name, value, kind)


_NO_INFO = LayoutInfo()
_HANDLE = HandleConfig()
_DISPATCH = DispatchConfig()
_COMBINE = CombineConfig()


class Group(Closable):
    """The ranks of a communicator that dispatch and combine together. Collective to make and to close.

    >>> import numpy, switchyard
    >>> comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    >>> config = switchyard.GroupConfig(num_experts=4, max_dispatch_tokens_per_rank=8, max_token_bytes=64)
    >>> group = switchyard.Group(comm, config)
    >>> group.local_experts
    [0, 1, 2, 3]
    >>> comm.close()
    """

    def __init__(self, comm: Communicator, config: GroupConfig) -> None:
        checks.instance("comm", comm, Communicator)
        values: Any = dataclasses.asdict(checks.instance("config", config, GroupConfig)).values()
        self._core = _core.Group(comm._core, *values)
        self._comm = comm
        self._handles: Dict[int, _core.Handle] = {}
        self._unused: List[int] = []
        self._used = UsedStreams()
        self.config = config
        #: This rank's experts, by their numbers among all, in the order of the layouts.
        self.local_experts: List[int] = self._core.local_experts
        super().__init__(comm)

    @property
    def comm(self) -> Communicator:
        return self._comm

    @property
    def rows_per_expert(self) -> int:
        """Rows of an expert's block of a low-latency expert-major tensor."""
        return int(self._core.rows_per_expert)

    @property
    def memory_bytes(self) -> int:
        """Touched memory that the library holds for this group on this rank."""
        return int(self._core.memory_bytes)

    def handle_memory_bytes(self, layout: Layout, num_topk: int) -> int:
        """How much a Handle's `memory` must have."""
        return int(self._core.handle_memory_bytes(checks.member("layout", layout, Layout), _topk(num_topk)))

    def create_handle(
        self,
        layout: Layout,
        topk_idx: Any,
        *,
        layout_info: Optional[LayoutInfo] = None,
        config: Optional[HandleConfig] = None,
        stream: Any = None,
    ) -> "Handle":
        """A Handle for top-k indices [tokens, topk], updated with them. High throughput: collective."""
        indices = as_tensor(topk_idx, "topk_idx")
        if len(indices.shape) != 2:
            raise InvalidArgument("invalid argument: topk_idx is %s, must have 2 dimensions" % (list(indices.shape),))
        handle = Handle(self, layout, indices.shape[1], config=config)
        handle.update(indices, layout_info=layout_info, stream=stream)
        return handle

    # --- masks (docs/errors.md); the group must have been made with enable_mask

    def mask_query(self, stream: Any = None) -> "numpy.ndarray[Any, Any]":
        """By rank: 1 active, 0 masked. Waits for what was queued."""
        mask = numpy.empty(self._comm.num_ranks, numpy.int32)
        target = self._note(stream)
        self._core.mask_query(Tensor(mask), self._comm.num_ranks, target)
        target.synchronize(None)
        return mask

    def mask_update(self, mask: Any, stream: Any = None) -> None:
        """Masks ranks (0) or takes them in again (1), on this rank alone."""
        given = numpy.asarray(mask)
        if given.dtype.kind not in "biu" or not numpy.isin(given, (0, 1)).all():
            raise InvalidArgument("invalid argument: mask is %s, must be whole numbers, 0 or 1 for each rank" % (mask,))
        copy = Tensor(numpy.ascontiguousarray(given, numpy.int32), name="mask")
        self._core.mask_update(copy, self._comm.num_ranks, self._note(stream))

    def mask_clean(self, stream: Any = None) -> None:
        """Collective over the ranks that are not masked: afterwards nobody is."""
        self._core.mask_clean(self._comm._core, self._note(stream))

    def async_error(self) -> bool:
        """Was a rank masked because it did not answer?"""
        return bool(self._core.async_error())

    def error_clear(self) -> None:
        self._core.error_clear()

    # --- lifetimes

    def _note(self, stream: Any) -> _core.Stream:
        """The stream of an operation, remembered as one that may use handles."""
        if self._unused:
            self._drop_unused()
        return self._used.note(self._comm.stream_of(stream))

    def _drop_unused(self) -> None:
        if self._unused and self._used.idle:
            for key in self._unused:
                self._handles.pop(key).close()
            self._unused.clear()

    def _release(self) -> None:
        self._used.drain()
        for handle in self._handles.values():
            handle.close()
        self._handles.clear()
        self._unused.clear()
        try:
            self._core.close(self._comm._core)
        finally:
            self._core.forget()


def _topk(value: Any) -> int:
    return checks.whole("num_topk", value, most=checks.INT32_MAX)


class Handle:
    """One routing of tokens to experts, with the places where their rows went.

    Low latency: any number of handles share a group's buffers; making the first one is collective. High throughput:
    local to make, an update is collective. A handle that nobody uses any more goes when nothing of its group is
    running; close() waits for that.

    >>> import numpy, switchyard
    >>> comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    >>> config = switchyard.GroupConfig(
    ...     num_experts=2, max_dispatch_tokens_per_rank=4, max_token_bytes=64, enable_mask=True
    ... )
    >>> group = switchyard.Group(comm, config)
    >>> handle = group.create_handle(switchyard.Layout.EXPERT_MAJOR, numpy.array([[1], [1], [0]]))
    >>> x = numpy.arange(3, dtype=numpy.float32)[:, None] * numpy.ones(16, numpy.float32)
    >>> rows, counts = numpy.empty((2, group.rows_per_expert, 16), numpy.float32), numpy.empty(2, numpy.int32)
    >>> handle.dispatch(
    ...     switchyard.DispatchInputs(tokens=x),
    ...     switchyard.DispatchOutputs(tokens=rows),
    ...     layout_info=switchyard.LayoutInfo(expert_counters=counts),
    ... )
    >>> y, weights = numpy.empty_like(x), numpy.full((3, 1), 0.5, numpy.float32)
    >>> handle.combine(switchyard.CombineInputs(tokens=rows), switchyard.CombineOutputs(tokens=y, topk_weights=weights))
    >>> comm.stream.synchronize()
    >>> counts.tolist(), rows[1, :2, 0].tolist(), y[:, 0].tolist()
    ([1, 2], [0.0, 1.0], [0.0, 0.5, 1.0])
    >>> group.mask_query().tolist(), group.async_error()
    ([1], False)
    >>> comm.close()
    """

    def __init__(
        self, group: Group, layout: Layout, num_topk: int, *, config: Optional[HandleConfig] = None, memory: Any = None
    ) -> None:
        checks.instance("group", group, Group)._drop_unused()
        alignment = _given("config", config, HandleConfig, _HANDLE).dispatch_output_per_expert_alignment
        if alignment & (alignment - 1):
            raise InvalidArgument(
                "invalid argument: dispatch_output_per_expert_alignment is %d, must be a power of two" % alignment
            )
        self._core: Any = _core.Handle(
            group._comm._core,
            group._core,
            checks.member("layout", layout, Layout),
            _topk(num_topk),
            alignment,
            _core.ABSENT if memory is None else as_tensor(memory, "memory"),
        )
        self._group = group
        group._handles[id(self._core)] = self._core
        self.layout = Layout(layout)
        self.num_topk = int(num_topk)

    @property
    def group(self) -> Group:
        return self._group

    @property
    def closed(self) -> bool:
        return id(self._core) not in self._group._handles

    def update(
        self, topk_idx: Any, *, layout_info: Optional[LayoutInfo] = None, stream: Any = None
    ) -> None:
        """Routes tokens: topk_idx is [tokens, topk], int32 or int64, -1 for none.

        Low latency reads the indices later: don't change them before dispatch and combine have run. High throughput:
        collective.
        """
        if layout_info is not None and self._group.config.algorithm == Algorithm.LOW_LATENCY:
            raise InvalidArgument(
                "invalid argument: layout_info of a low-latency handle goes to dispatch, not to update"
            )
        info = _given("layout_info", layout_info, LayoutInfo, _NO_INFO)
        self._core.update(
            as_tensor(topk_idx, "topk_idx"), *info._tensors, info.recv_topk_idx_kind, self._group._note(stream)
        )

    def dispatch(
        self,
        inputs: DispatchInputs,
        outputs: DispatchOutputs,
        *,
        layout_info: Optional[LayoutInfo] = None,
        config: Optional[DispatchConfig] = None,
        stream: Any = None,
    ) -> None:
        """Collective. Sends each token's row to the ranks of its experts. Queued; outputs are there when the stream has
        passed.
        """
        options = _given("config", config, DispatchConfig, _DISPATCH)
        info = _given("layout_info", layout_info, LayoutInfo, _NO_INFO)
        self._core.dispatch(
            *checks.instance("inputs", inputs, DispatchInputs)._tensors,
            *checks.instance("outputs", outputs, DispatchOutputs)._tensors,
            layout_info is not None,
            *info._tensors,
            info.recv_topk_idx_kind,
            options.send_only,
            options.round_scales,
            options.pass_direction,
            options.quant_recipe,
            self._group._note(stream),
        )

    def combine(
        self,
        inputs: CombineInputs,
        outputs: CombineOutputs,
        *,
        config: Optional[CombineConfig] = None,
        stream: Any = None,
    ) -> None:
        """Collective. Brings the experts' rows back to their tokens and adds them up. Queued, as dispatch."""
        options = _given("config", config, CombineConfig, _COMBINE)
        self._core.combine(
            *checks.instance("inputs", inputs, CombineInputs)._tensors,
            *checks.instance("outputs", outputs, CombineOutputs)._tensors,
            options.send_only,
            options.pass_direction,
            options.quant_recipe,
            self._group._note(stream),
        )

    def complete(self, *, stream: Any = None) -> None:
        """The receiving half of the oldest operation with send_only; without one, nothing."""
        self._core.complete(self._group._note(stream))

    def close(self) -> None:
        """Its memory is given back when nothing uses it any more; nobody waits for that. A second call does nothing."""
        if not self.closed:
            del self._group._handles[id(self._core)]
            self._core.close()

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if value is None:
            self.close()

    def __del__(self) -> None:
        group = getattr(self, "_group", None)  # none where the constructor failed
        if group is not None and not self.closed:
            group._unused.append(id(self._core))
