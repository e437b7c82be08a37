"""Switchyard: moves the tokens of mixture-of-experts models between ranks. NumPy is all it needs; see
docs/python.md.
"""

from ._signals import kept_handlers

with kept_handlers():
    from ._core import __version__

from .comm import Communicator, CudaStream, Stream, SymmetricMemory, init, make_unique_id
from .ep import (
    Algorithm,
    CombineConfig,
    CombineInputs,
    CombineOutputs,
    CombineQuant,
    DispatchConfig,
    DispatchInputs,
    DispatchOutputs,
    DispatchQuant,
    ExpertIdKind,
    Group,
    GroupConfig,
    Handle,
    HandleConfig,
    Layout,
    LayoutInfo,
    OverflowPolicy,
    PassDir,
    ZeroCopyMode,
)
from .errors import (
    DeviceError,
    InProgress,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    OperatingSystemError,
    RemoteError,
    SwitchyardError,
    TimeoutError,
)
from .moe import MoE, Received, State, choose_mode
from .tensor import Tensor

__all__ = [
    "__version__",
    "Algorithm",
    "CombineConfig",
    "CombineInputs",
    "CombineOutputs",
    "CombineQuant",
    "Communicator",
    "CudaStream",
    "DeviceError",
    "DispatchConfig",
    "DispatchInputs",
    "DispatchOutputs",
    "DispatchQuant",
    "ExpertIdKind",
    "Group",
    "GroupConfig",
    "Handle",
    "HandleConfig",
    "InProgress",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "Layout",
    "LayoutInfo",
    "MoE",
    "OperatingSystemError",
    "OverflowPolicy",
    "PassDir",
    "Received",
    "RemoteError",
    "State",
    "Stream",
    "SwitchyardError",
    "SymmetricMemory",
    "Tensor",
    "TimeoutError",
    "ZeroCopyMode",
    "choose_mode",
    "init",
    "make_unique_id",
]
