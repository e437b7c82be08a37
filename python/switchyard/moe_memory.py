"""Memory that an MoE makes for what it returns, and how its callers come to see it: on CPUs or on a GPU."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, List

import numpy

from . import _core
from .comm import Communicator
from .ep import Group
from .errors import InvalidArgument
from .tensor import Tensor, numpy_dtype


class _Owner(numpy.ndarray):  # type: ignore[type-arg]  # of NumPy 2 it has other parameters
    """Of memory. A type of its own, because NumPy lets a view of a view keep the first array of one type, and this one
    is not to be it: views of what is given out then keep the array that was given out.
    """


class _Block:
    """Memory for rows, given out to one user at a time."""

    __slots__ = ("memory", "num_rows", "given")

    def __init__(self, num_rows: int, row_bytes: int) -> None:
        self.memory = _Owner(num_rows * row_bytes, numpy.uint8)
        self.num_rows = num_rows
        #: The array that was given out last, or None: it is alive while anybody sees the memory.
        self.given: Callable[[], Any] = lambda: None

    def give(self, num_rows: int, hidden: int, dtype: "numpy.dtype[Any]") -> Any:
        array: Any = numpy.ndarray((num_rows, hidden), dtype, self.memory)
        self.given = weakref.ref(array)
        return array


class HostMemory:
    """NumPy arrays, given to torch's users as torch tensors. Memory that nobody uses any more is given out again: fresh
    memory costs a page fault every 4 KiB. A call waits for its result.
    """

    _KEPT = 8

    def __init__(self, comm: Communicator, group: Group, hidden: int, dtype: str) -> None:
        self._hidden = hidden
        self._dtype = numpy_dtype(dtype)
        self._row_bytes = hidden * self._dtype.itemsize
        self._blocks: List[_Block] = []
        self._used = group._used
        self._stream = comm.stream
        self._native = self._used.note(self._stream)

    def rows(self, like: Tensor, num_rows: int) -> Any:
        for block in self._blocks:
            if block.num_rows >= num_rows and block.given() is None:
                return block.give(num_rows, self._hidden, self._dtype)
        # A little larger than asked for; those that are too small now are given up.
        made = _Block(num_rows + num_rows // 4, self._row_bytes)
        self._blocks = [block for block in self._blocks if block.given() is not None][-self._KEPT :] + [made]
        return made.give(num_rows, self._hidden, self._dtype)

    def numbers(self, like: Tensor, count: int, dtype: str = "int32") -> Any:
        return numpy.empty(count, dtype)

    def stream(self) -> _core.Stream:
        return self._used.note(self._stream)

    def finish(self) -> None:
        self._native.synchronize(None)

    def as_callers(self, like: Any, array: Any, dtype: str) -> Any:
        """An array of ours as what the caller works with, which is what `like` is."""
        if isinstance(like, numpy.ndarray):
            same_width = like.dtype != array.dtype and like.dtype.itemsize == array.dtype.itemsize
            return array.view(like.dtype) if same_width else array
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(like, torch.Tensor):
            return array
        if dtype in ("float32", "float16", "float64"):
            return torch.from_numpy(array)
        return torch.from_numpy(array.view("int%d" % (8 * array.itemsize))).view(getattr(torch, dtype))


class CudaMemory:
    """torch tensors, from torch's own allocator. Calls are queued to torch's current stream, and nobody waits."""

    def __init__(self, group: Group, hidden: int) -> None:
        self._group = group
        self._hidden = hidden

    def rows(self, like: Tensor, num_rows: int) -> Any:
        return _torch_tensor(like).new_empty((num_rows, self._hidden))

    def numbers(self, like: Tensor, count: int, dtype: str = "int32") -> Any:
        return _torch_tensor(like).new_empty(count, dtype=getattr(sys.modules["torch"], dtype))

    def stream(self) -> _core.Stream:
        return self._group._note(None)

    def finish(self) -> None:
        pass

    def as_callers(self, like: Any, array: Any, dtype: str) -> Any:
        return array


def _torch_tensor(tensor: Tensor) -> Any:
    if hasattr(tensor.buffer, "new_empty"):
        return tensor.buffer
    raise InvalidArgument(
        "invalid argument: on a GPU an MoE takes torch tensors, not a %s; a Handle takes any CUDA array"
        % type(tensor.buffer).__name__
    )
