"""Keeps the process's signal handlers as they are while a library is loaded.

Some network libraries below libfabric (Omni-Path's, InfiniPath's) install handlers of their own when they are loaded,
which end the process on Ctrl-C. Who handles signals is Python's to say."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from typing import Iterator

_SIGACTION_BYTES = 512  # more than any platform's struct sigaction has


@contextlib.contextmanager
def kept_handlers() -> Iterator[None]:
    sigaction = ctypes.CDLL(None).sigaction
    kept = {}
    for number in map(int, signal.valid_signals()):
        action = ctypes.create_string_buffer(_SIGACTION_BYTES)
        if sigaction(number, None, action) == 0:
            kept[number] = action
    try:
        yield
    finally:
        for number, action in kept.items():
            sigaction(number, action, None)
