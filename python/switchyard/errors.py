"""What Switchyard raises: one exception for each status of the library, with the library's own sentence."""

from __future__ import annotations

import builtins

__all__ = [
    "SwitchyardError",
    "DeviceError",
    "OperatingSystemError",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "RemoteError",
    "InProgress",
    "TimeoutError",
]


class SwitchyardError(RuntimeError):
    """The base of all of them. `code` is the library's status value, equal to an ncclResult_t."""

    code: int = 0


class DeviceError(SwitchyardError):
    """The device runtime (CUDA) failed."""

    code = 1


class OperatingSystemError(SwitchyardError, OSError):
    """The operating system failed a call."""

    code = 2


class InternalError(SwitchyardError):
    """A bug of Switchyard's."""

    code = 3


class InvalidArgument(SwitchyardError, ValueError):
    """This argument can never work; the message names it and what is allowed."""

    code = 4


class InvalidUsage(SwitchyardError):
    """A valid argument at the wrong moment or in the wrong configuration."""

    code = 5


class RemoteError(SwitchyardError):
    """A rank died, aborted, misbehaved or did not answer in time; the message names it."""

    code = 6


class InProgress(SwitchyardError):
    """Not done yet."""

    code = 7


class TimeoutError(SwitchyardError, builtins.TimeoutError):
    """The time limit given to a wait has passed; what it waited for goes on."""

    code = -1


#: The exception of each status value; the binding raises them.
BY_CODE = {
    kind.code: kind
    for kind in (
        DeviceError,
        OperatingSystemError,
        InternalError,
        InvalidArgument,
        InvalidUsage,
        RemoteError,
        InProgress,
        TimeoutError,
    )
}
