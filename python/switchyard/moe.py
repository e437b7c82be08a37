"""The short form: one object for the dispatches and combines of a mixture-of-experts layer.

    moe = switchyard.MoE(comm, experts=256, topk=8, hidden=7168, max_tokens=128)
    recv, state = moe.dispatch(x, topk_idx, topk_weights)
    out = recv.empty_like()
    for expert, rows, place in recv:               # this rank's experts
        out[place] = mlp[expert](rows)
    y = moe.combine(out, state)                    # weighted with topk_weights, summed

What it receives has one shape in both modes, so that the experts' code does not depend on the mode.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy

from . import _core, checks
from .comm import Communicator, empty_like
from .ep import (
    Algorithm,
    CombineConfig,
    CombineInputs,
    CombineOutputs,
    DispatchConfig,
    DispatchInputs,
    DispatchOutputs,
    Group,
    GroupConfig,
    Handle,
    Layout,
    LayoutInfo,
    PassDir,
)
from .errors import InvalidArgument, InvalidUsage
from .lifetime import Closable
from .moe_memory import CudaMemory, HostMemory
from .tensor import Tensor, as_tensor, dtype_bytes, dtype_name

_MODES = {"ll": Algorithm.LOW_LATENCY, "ht": Algorithm.HIGH_THROUGHPUT}
#: What experts' results can be summed up in.
DTYPES = ("float32", "float16", "bfloat16")
# Of a group: bytes that rows are a multiple of, the most of them, the most experts, and tokens of a rank.
_ROW_UNIT, _MOST_ROW_BYTES, _MOST = 16, 1 << 24, 1 << 20
_BACKWARD_DISPATCH = DispatchConfig(pass_direction=PassDir.BWD)
_NONE = _core.ABSENT
_BACKWARD_COMBINE = CombineConfig(pass_direction=PassDir.BWD)

#: Up to so many tokens a rank mode="auto" takes low latency: it has fewer meetings of the ranks. Beyond, high
#: throughput, whose memory is for the rows that come, not for all that could, and which sends a row once to each node
#: (docs/python.md has the times).
LOW_LATENCY_TOKENS = 128


class Choice(NamedTuple):
    """A mode, "ll" or "ht", and why."""

    mode: str
    reason: str


def choose_mode(max_tokens: int, *, training: bool = False) -> Choice:
    """What mode="auto" means.

    >>> choose_mode(16).mode, choose_mode(4096).mode, choose_mode(16, training=True).mode
    ('ll', 'ht', 'ht')
    """
    if training:
        return Choice(
            "ht", "high throughput, because gradients have to flow back, and low latency has no backward pass"
        )
    if max_tokens <= LOW_LATENCY_TOKENS:
        return Choice(
            "ll",
            "low latency, because max_tokens is %d, and up to %d tokens a rank it is faster"
            % (max_tokens, LOW_LATENCY_TOKENS),
        )
    return Choice(
        "ht",
        "high throughput, because max_tokens is %d, and above %d tokens a rank it needs less memory and less network"
        % (max_tokens, LOW_LATENCY_TOKENS),
    )


class Received:
    """Rows for the experts of this rank: those of local expert e are tokens[offsets[e] : offsets[e] + counts[e]],
    ordered by source rank and token. Rows between are undefined. On a GPU counts are there, too; place() and iterating
    wait for them."""

    __slots__ = ("tokens", "counts", "offsets", "weights", "experts", "_seen_counts")

    def __init__(
        self,
        tokens: Any,
        counts: Any,
        offsets: "numpy.ndarray[Any, Any]",
        weights: Optional[Any],
        experts: List[int],
    ) -> None:
        self.tokens = tokens
        self.counts = counts
        self.offsets = offsets
        #: High throughput: the routing weight of each row.
        self.weights = weights
        #: The numbers of this rank's experts among all.
        self.experts = experts
        self._seen_counts: Optional[List[int]] = None

    def place(self, local: int) -> slice:
        """Where the rows of a local expert are."""
        if self._seen_counts is None:
            self._seen_counts = self.counts.tolist()
        begin = int(self.offsets[local])
        return slice(begin, begin + self._seen_counts[local])

    def __iter__(self) -> Iterator[Tuple[int, Any, slice]]:
        """(expert, its rows, their place in tokens) for each expert of this rank that got any."""
        for local, expert in enumerate(self.experts):
            place = self.place(local)
            if place.stop > place.start:
                yield expert, self.tokens[place], place

    def empty_like(self) -> Any:
        """Uninitialised memory for the experts' results."""
        return empty_like(self.tokens, self.tokens.shape)


class State:
    """What a combine has to know about its dispatch. It may be used any number of times."""

    __slots__ = ("moe", "handle", "num_tokens", "weights", "recv", "row_weights", "_weights_tensor", "__weakref__")

    def __init__(self, moe: "MoE", handle: Handle, num_tokens: int, weights: Any, weights_tensor: Tensor) -> None:
        self.moe = moe
        self.handle = handle
        self.num_tokens = num_tokens
        self.weights = weights
        self._weights_tensor = weights_tensor
        self.recv: Any = None
        #: switchyard.torch: recv.weights as autograd knows them.
        self.row_weights: Any = None

    def __del__(self) -> None:
        if not self.handle.closed:
            self.moe._free_handles.append(self.handle)


class MoE(Closable):
    """Dispatch and combine of a layer with `experts` experts, `topk` of them a token, rows of `hidden` elements.
    Collective to make.

    max_tokens: the most that any rank dispatches in a call. mode: "ll" (low latency), "ht" (high throughput) or "auto",
    which picks by max_tokens; `moe.mode` and `moe.reason` tell. training: gradients will flow back. Calls are
    collective, wait for their result, and come from one thread at a time; on a GPU, where x must be a torch tensor, they
    are queued to torch's current stream and wait for nothing. Low latency: an expert twice in a token is
    two rows; high throughput: one, and its last weight counts.

    >>> import numpy, switchyard
    >>> comm = switchyard.init(unique_id=switchyard.make_unique_id(), rank=0, num_ranks=1)
    >>> moe = switchyard.MoE(comm, experts=4, topk=2, hidden=8, max_tokens=16)
    >>> moe.reason
    'low latency, because max_tokens is 16, and up to 128 tokens a rank it is faster'
    >>> x = numpy.ones((1, 8), numpy.float32)
    >>> recv, state = moe.dispatch(x, numpy.array([[3, 1]]), numpy.array([[0.5, 0.25]], numpy.float32))
    >>> out = recv.empty_like()
    >>> for expert, rows, place in recv:
    ...     out[place] = rows * expert
    >>> float(moe.combine(out, state)[0, 0])
    1.75
    >>> comm.close()
    """

    def __init__(
        self,
        comm: Communicator,
        *,
        experts: int,
        topk: int,
        hidden: int,
        dtype: Any = "float32",
        max_tokens: int = 4096,
        mode: str = "auto",
        training: bool = False,
        timeout: float = 0.0,
    ) -> None:
        checks.instance("comm", comm, Communicator)
        if mode not in ("auto", *_MODES):
            checks.refuse("mode", mode, "'auto', 'll' or 'ht'")
        if mode == "ll" and training:
            raise InvalidArgument("invalid argument: mode is 'll', which has no backward pass, and training is True")
        self.dtype = dtype_name(dtype)
        if self.dtype not in DTYPES:
            checks.refuse("dtype", dtype, "one of " + ", ".join(DTYPES))
        experts = checks.whole("experts", experts, 1, _MOST)
        topk = checks.whole("topk", topk, 1, experts)
        max_tokens = checks.whole("max_tokens", max_tokens, 1, _MOST)
        element_bytes = dtype_bytes(self.dtype)
        hidden = checks.whole("hidden", hidden, 1, _MOST_ROW_BYTES // element_bytes)
        if hidden * element_bytes % _ROW_UNIT:
            must = "a multiple of %d: rows are multiples of %d bytes" % (_ROW_UNIT // element_bytes, _ROW_UNIT)
            checks.refuse("hidden", hidden, must)
        timeout_ns = int(checks.seconds("timeout", timeout) * 1e9)
        choice = choose_mode(max_tokens, training=training)
        self.mode = choice.mode if mode == "auto" else mode
        self.reason = choice.reason if mode == "auto" else "as the caller chose"
        self.experts, self.topk, self.hidden, self.max_tokens = experts, topk, hidden, max_tokens
        self.name = ""  # switchyard.torch.ops gives it one
        self._group = Group(
            comm,
            GroupConfig(
                algorithm=_MODES[self.mode],
                num_experts=experts,
                max_dispatch_tokens_per_rank=max_tokens,
                max_token_bytes=hidden * element_bytes,
                num_topk=topk,
                timeout_ns=timeout_ns,
            ),
        )
        super().__init__(comm)
        self._comm = comm
        self._is_ll = self.mode == "ll"
        self._takes_raw = self.dtype == "bfloat16"  # NumPy has no type for it
        self._free_handles: List[Handle] = []
        self._memory: Union[HostMemory, CudaMemory] = (
            HostMemory(comm, self._group, hidden, self.dtype) if comm.device == "cpu" else CudaMemory(self._group, hidden)
        )
        self._block_rows = self._group.rows_per_expert
        #: The numbers of this rank's experts among all.
        self.local_experts: List[int] = self._group.local_experts
        self._num_local = len(self.local_experts)
        self._batch_shape = _core.BatchShape(
            max_tokens, hidden, topk, experts, _core.DTYPE_CODES[self.dtype], comm._core.device
        )
        self._block_shape = (self._num_local, self._block_rows, hidden)
        self._blocks = numpy.arange(self._num_local, dtype=numpy.int32) * self._block_rows if self._is_ll else None
        self._free_handles.append(self._new_handle())  # collective in low latency, so it is made here

    @property
    def group(self) -> Group:
        return self._group

    @property
    def comm(self) -> Communicator:
        return self._comm

    @property
    def num_block_rows(self) -> int:
        """Low latency: rows of what a dispatch receives, used or not; high throughput: 0, because that depends on the
        routing.
        """
        return self._num_local * self._block_rows if self._is_ll else 0

    def dispatch(self, x: Any, topk_idx: Any, topk_weights: Any) -> Tuple[Received, State]:
        """Collective. Sends row t of x [tokens, hidden] to the experts topk_idx[t] (-1: none); topk_weights are for
        combine.

        A call that raises InvalidArgument or InvalidUsage has sent nothing: repeat it with what is right.
        """
        if type(x) is not numpy.ndarray:
            _refuse_gradients(x, topk_weights)
        tokens, indices, weights = (
            self._of_our_type("x", x),
            as_tensor(topk_idx, "topk_idx"),
            as_tensor(topk_weights, "topk_weights"),
        )
        _core.check_batch(tokens, indices, weights, self._batch_shape)
        handle = self._free_handles.pop() if self._free_handles else self._new_handle()
        state = State(self, handle, tokens.shape[0], topk_weights, weights)
        recv = (
            self._dispatch_ll(tokens, indices, state)
            if self._is_ll
            else self._dispatch_ht(tokens, indices, weights, state)
        )
        recv.tokens = self._memory.as_callers(x, recv.tokens, self.dtype)
        if recv.weights is not None:
            recv.weights = self._memory.as_callers(x, recv.weights, "float32")
        state.recv = recv
        return recv, state

    def combine(self, expert_out: Any, state: State) -> Any:
        """Collective. y[t] = the sum over k of topk_weights[t, k] times what the experts made of row t.

        expert_out has the shape of recv.tokens, and may be that.
        """
        if type(expert_out) is not numpy.ndarray:
            _refuse_gradients(expert_out)
        rows = self._rows("expert_out", expert_out, state)
        if not self._is_ll:
            weighed = self._wrap(self._memory.rows(rows, rows.shape[0]))
            _core.weigh_rows(rows, Tensor(state.recv.weights), weighed)
            rows = weighed
        return self._combine(expert_out, rows, state)

    # --- gradients: y depends on x and on topk_weights

    def combine_backward(self, grad_y: Any, expert_out: Any, state: State) -> Tuple[Any, Any]:
        """Collective. The gradients of expert_out and of the rows' weights, from that of y."""
        self._require_backward()
        self._rows("expert_out", expert_out, state)
        grad_rows = self.scatter_gradient(grad_y, state)
        weights = state.recv.weights
        return grad_rows * weights[:, None], (grad_rows * expert_out).sum(-1)

    def dispatch_backward(self, grad_rows: Any, grad_row_weights: Any, state: State) -> Tuple[Any, Any]:
        """Collective. The gradients of x and of topk_weights, from those of recv.tokens and of the rows' weights."""
        self._require_backward()
        rows = self._rows("grad_rows", grad_rows, state)
        row_weights = as_tensor(grad_row_weights, "grad_row_weights")
        _expect("grad_row_weights", row_weights, (rows.shape[0],), ("float32",))
        grad_x = empty_like(grad_rows, (state.num_tokens, self.hidden))
        grad_weights = empty_like(grad_row_weights, (state.num_tokens, self.topk))
        state.handle.combine(
            CombineInputs(tokens=rows, topk_weights=row_weights),
            CombineOutputs(tokens=self._tokens("grad_x", grad_x, None), topk_weights=grad_weights),
            config=_BACKWARD_COMBINE,
        )
        self._memory.finish()
        return grad_x, grad_weights

    # --- parts of these, for those who weigh rows themselves (switchyard.torch)

    def sum_rows(self, rows: Any, state: State) -> Any:
        """Collective, high throughput. The plain sum of each token's rows."""
        self._require_backward()
        return self._combine(rows, self._rows("rows", rows, state), state)

    def scatter_gradient(self, grad_y: Any, state: State) -> Any:
        """Collective, high throughput. A copy of each token's row of grad_y for each of its rows: the gradient of
        sum_rows.
        """
        self._require_backward()
        self._check_state(state)
        tokens = self._tokens("grad_y", grad_y, state.num_tokens)
        rows = self._memory.rows(tokens, state.recv.tokens.shape[0])
        state.handle.dispatch(
            DispatchInputs(tokens=tokens), DispatchOutputs(tokens=self._wrap(rows)), config=_BACKWARD_DISPATCH
        )
        self._memory.finish()
        return self._memory.as_callers(grad_y, rows, self.dtype)

    # --- what these are made of

    def _new_handle(self) -> Handle:
        return Handle(self._group, Layout.EXPERT_MAJOR, self.topk)

    # Decoding makes the low-latency calls for every layer of every token: they go to the binding without the
    # dataclasses of Handle.
    def _dispatch_ll(self, tokens: Tensor, indices: Tensor, state: State) -> Received:
        assert self._blocks is not None
        rows = self._memory.rows(tokens, self.num_block_rows)
        counts = self._memory.numbers(tokens, self._num_local)
        core, stream = state.handle._core, self._memory.stream()
        core.update(indices, _NONE, _NONE, _NONE, _NONE, 0, stream)
        core.dispatch(
            tokens,
            _NONE,
            _NONE,
            self._wrap(rows).reshape(self._block_shape),
            _NONE,
            _NONE,
            _NONE,
            True,
            as_tensor(counts, "counts"),
            _NONE,
            _NONE,
            _NONE,
            0,
            False,
            False,
            0,
            0,
            stream,
        )
        self._memory.finish()
        return Received(rows, counts, self._blocks, None, self.local_experts)

    def _dispatch_ht(self, tokens: Tensor, indices: Tensor, weights: Tensor, state: State) -> Received:
        counts, offsets = (self._memory.numbers(tokens, self._num_local) for _ in range(2))
        total = self._memory.numbers(tokens, 1)
        state.handle.update(
            indices, layout_info=LayoutInfo(expert_counters=counts, expert_offsets=offsets, recv_total_counter=total)
        )
        self._memory.finish()
        num_rows = int(total[0])
        rows, row_weights = self._memory.rows(tokens, num_rows), self._memory.numbers(tokens, num_rows, "float32")
        state.handle.dispatch(
            DispatchInputs(tokens=tokens, topk_weights=weights),
            DispatchOutputs(tokens=self._wrap(rows), topk_weights=row_weights),
        )
        self._memory.finish()
        return Received(rows, counts, offsets, row_weights, self.local_experts)

    def _combine(self, like: Any, rows: Tensor, state: State) -> Any:
        y = empty_like(like, (state.num_tokens, self.hidden))
        state.handle._core.combine(
            rows,
            _NONE,
            _NONE,
            self._of_our_type("y", y),
            state._weights_tensor if self._is_ll else _NONE,
            False,
            0,
            0,
            self._memory.stream(),
        )
        self._memory.finish()
        return y

    def _require_backward(self) -> None:
        if self._is_ll:
            raise InvalidUsage(
                "invalid usage: low latency has no backward pass; make the MoE with mode='ht' or training=True"
            )

    def _wrap(self, array: Any) -> Tensor:
        """An array of ours as a tensor of the layer's type."""
        return self._of_our_type("buffer", array)

    def _tokens(self, name: str, value: Any, num_tokens: Optional[int]) -> Tensor:
        """[tokens, hidden] of the layer's type; for one that NumPy lacks, unsigned integers of its width will do."""
        tensor = self._of_our_type(name, value)
        _expect(name, tensor, (tensor.shape[0] if num_tokens is None else num_tokens, self.hidden), (self.dtype,))
        return tensor

    def _check_state(self, state: State) -> None:
        if not isinstance(state, State):
            checks.refuse("state", state, "what dispatch() returned")
        if state.moe is not self:
            raise InvalidArgument("invalid argument: state is of another MoE")
        if state.recv is None:
            raise InvalidUsage("invalid usage: the state's dispatch failed")

    def _rows(self, name: str, value: Any, state: State) -> Tensor:
        self._check_state(state)
        tensor = self._of_our_type(name, value)
        _expect(name, tensor, tuple(state.recv.tokens.shape), (self.dtype,))
        return tensor.reshape(self._block_shape) if self._is_ll else tensor

    def _of_our_type(self, name: str, value: Any) -> Tensor:
        if self._takes_raw and type(value) is numpy.ndarray and value.dtype.kind == "u":
            return Tensor(value, dtype=self.dtype, name=name)
        return as_tensor(value, name)

    def _release(self) -> None:
        self._free_handles.clear()
        self._group.close()


def _expect(name: str, tensor: Tensor, shape: Tuple[int, ...], dtypes: Tuple[str, ...]) -> None:
    if tensor.shape != shape or tensor.dtype not in dtypes:
        raise InvalidArgument(
            "invalid argument: %s is %s %s, must be %s %s"
            % (name, list(tensor.shape), tensor.dtype, list(shape), " or ".join(dtypes))
        )


def _refuse_gradients(*values: Any) -> None:
    for value in values:
        if getattr(value, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
            raise InvalidUsage(
                "invalid usage: a tensor requires a gradient, which would get lost here: use switchyard.torch.dispatch "
                "and combine, or torch.no_grad()"
            )
