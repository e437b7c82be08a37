"""When native objects go.

A communicator, its groups, their handles and the memory made for them must go in that order, on all ranks alike, and
some of it waits for the other ranks. Python's garbage collector knows none of this. So every native object is owned
here, in a tree below its communicator, until it is closed or the program ends:

  - close() (or `with`) closes what was made from an object first, newest first, then the object;
  - a handle or stream that nobody uses any more goes when nothing of it is running;
  - a communicator or group that nobody closes stays until the program ends. Then all are closed, newest first; or, when
    an exception ends the program, aborted, so that no rank waits for one that is gone. (Not for a SystemExit, of which
    Python tells nobody: `with` sees it.)
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Any, List, Optional, TypeVar

from . import _core
from .errors import SwitchyardError

Self = TypeVar("Self", bound="Closable")


class Closable:
    """A native object with others made from it."""

    def __init__(self, parent: Optional["Closable"]) -> None:
        self._parent = parent
        self._children: List[Closable] = []
        self._closed = False
        (_roots if parent is None else parent._children).append(self)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Closes what was made from this, newest first, then this. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            while self._children:
                self._children[-1].close()
        finally:
            siblings = _roots if self._parent is None else self._parent._children
            if self in siblings:
                siblings.remove(self)
            self._release()

    def _release(self) -> None:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if value is None:
            self.close()
        else:
            self._abandon(value)

    def _abandon(self, error: BaseException) -> None:
        """An exception ends its use. Others may not come to a close() now, so what has to be collective waits for its
        parent's end.
        """


_roots: List[Closable] = []
_PATIENCE_S = 2.0


def _forget_in_child() -> None:
    _roots.clear()  # the binding leaves natives of the parent alone


os.register_at_fork(after_in_child=_forget_in_child)


def close_everything() -> None:
    """At the end of the program."""
    ended_by = getattr(sys, "last_value", None)
    if ended_by is not None:
        for root in reversed(_roots[:]):
            root._abandon(ended_by)
    while _roots:
        root = _roots[-1]
        try:
            root.close()
        except SwitchyardError as error:
            print("switchyard: while the program ends: %s" % error, file=sys.stderr)
        if _roots and _roots[-1] is root:  # whatever went wrong, it is not tried again
            _roots.pop()
    # Their waits are over now. Daemon threads that were in one leave the binding before Python goes.
    deadline = time.monotonic() + _PATIENCE_S
    while _core.num_without_gil() > 0 and time.monotonic() < deadline:
        time.sleep(0.001)


atexit.register(close_everything)
