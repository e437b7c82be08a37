"""Memory that an MoE makes for what it returns, and how its callers come to see it: on CPUs or on a GPU."""

from __future__ import annotations

import sys
from typing import Any, List

import numpy

from . import _core
from .comm import Communicator
from .ep import Group
from .errors import InvalidArgument
from .tensor import Tensor, numpy_dtype


class HostMemory:
    """NumPy arrays, given to torch's users as torch tensors. Those that nobody uses any more are given out again: fresh
    memory costs a page fault every 4 KiB. A call waits for its result.
    """

    _KEPT = 8

    def __init__(self, comm: Communicator, group: Group, hidden: int, dtype: str) -> None:
        self._hidden = hidden
        self._dtype = numpy_dtype(dtype)
        self._arrays: List[Any] = []
        self._stream = group._note(comm.stream)

    def rows(self, like: Tensor, num_rows: int) -> Any:
        for array in self._arrays:
            # The list, the loop and getrefcount's argument have it, and nobody has a view of it.
            if len(array) >= num_rows and sys.getrefcount(array) <= 3:
                return array[:num_rows]
        array = numpy.empty((num_rows + num_rows // 4, self._hidden), self._dtype)
        self._arrays = [kept for kept in self._arrays if sys.getrefcount(kept) > 3][-self._KEPT :] + [array]
        return array[:num_rows]

    def numbers(self, like: Tensor, count: int, dtype: str = "int32") -> Any:
        return numpy.empty(count, dtype)

    def stream(self) -> _core.Stream:
        return self._stream

    def finish(self) -> None:
        self._stream.synchronize(None)

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
