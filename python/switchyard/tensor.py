"""Tensors: whatever holds numbers, described for the library without a copy.

NumPy arrays need nothing from here (the binding reads them itself); this module knows the others. torch is never
imported: a torch tensor is recognised by what it offers.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy

from . import _core, checks
from .errors import InvalidArgument

Tensor = _core.Tensor
as_tensor = (
    _core.as_tensor
)  # (value, name): `value` itself if it is a Tensor, else one over it; errors name the argument
Described = Tuple[Any, int, Sequence[int], Any, bool, Optional[_core.DeviceId]]
_HOST = _core.DeviceId(_core.DeviceKind.HOST, 0)
_ANY_GPU = -1


def _gpu(ordinal: int) -> _core.DeviceId:
    return _core.DeviceId(_core.DeviceKind.CUDA, ordinal)


# Names of other libraries for our types; what ml_dtypes and torch call FP8 is OCP's.
_ALIASES = {
    "float8_e4m3fn": "float8_e4m3",
    "float4_e2m1fn_x2": "float4x2",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
}
# Names that mean another type there: E4M3 of ml_dtypes without "fn" has infinities, as IEEE's formats have.
_NUMPY_NAMES = {"float8_e4m3": "IEEE's float8_e4m3"}


def dtype_name(dtype: Any) -> str:
    """The library's name of a type given as a name, a NumPy or ml_dtypes type, or a torch type.

    >>> dtype_name("bfloat16"), dtype_name(numpy.float16), dtype_name(numpy.dtype("int64"))
    ('bfloat16', 'float16', 'int64')
    """
    if isinstance(dtype, str):
        name = dtype
    elif type(dtype).__module__ == "torch":
        name = str(dtype)
    else:
        try:
            name = _NUMPY_NAMES.get(numpy.dtype(dtype).name, numpy.dtype(dtype).name)
        except TypeError:
            name = str(dtype)
    name = name[len("torch.") :] if name.startswith("torch.") else name
    return _ALIASES.get(name, name)


def dtype_bytes(dtype: Any) -> int:
    """Bytes of one element.

    >>> dtype_bytes("bfloat16")
    2
    """
    return int(_core.DTYPE_BYTES[_known(dtype_name(dtype), "dtype")])


def numpy_dtype(dtype: Any) -> "numpy.dtype[Any]":
    """The NumPy type that holds a library type: its own, one of ml_dtypes where that is installed, or unsigned integers
    as wide.
    """
    name = dtype_name(dtype)
    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    ml_dtypes = sys.modules.get("ml_dtypes")
    narrow = getattr(ml_dtypes, {"float8_e4m3": "float8_e4m3fn"}.get(name, name), None)
    if narrow is not None and name != "float4x2":
        return numpy.dtype(narrow)
    return numpy.dtype("uint%d" % (8 * dtype_bytes(name)))


def _known(name: str, argument: str) -> str:
    if name not in _core.DTYPE_CODES:
        raise InvalidArgument(
            "invalid argument: %s has elements of type %s, known are %s"
            % (argument, name, ", ".join(_core.DTYPE_CODES))
        )
    return name


def code_of(dtype: Any) -> Optional[int]:
    """The library's number of a type, None where it has none."""
    return _core.DTYPE_CODES.get(dtype_name(dtype))


def _code(found: str, wanted: Optional[Any], argument: str) -> int:
    """The type's code; a wanted one may reinterpret elements of the same width."""
    if wanted is None:
        return _core.DTYPE_CODES[_known(found, argument)]
    name = _known(dtype_name(wanted), "dtype of " + argument)
    width = _core.DTYPE_BYTES.get(found, numpy.dtype(found).itemsize if found in ("uint16", "int16") else 0)
    if width != _core.DTYPE_BYTES[name]:
        raise InvalidArgument(
            "invalid argument: %s has elements of type %s, which can't be viewed as %s" % (argument, found, name)
        )
    return _core.DTYPE_CODES[name]


def _refuse_strides(argument: str, shape: Sequence[int]) -> None:
    raise InvalidArgument(
        "invalid argument: %s, of shape %s, is not contiguous: rows must follow each other without gaps; "
        "pass a contiguous copy" % (argument, list(shape))
    )


def _refuse_device(argument: str, device: str) -> None:
    raise InvalidArgument(
        "invalid argument: %s is on %s: pass memory of the host or of a CUDA device" % (argument, device)
    )


def _is_dense(shape: Sequence[int], strides: Optional[Sequence[int]], item: int) -> bool:
    if strides is None or 0 in shape:
        return True
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def describe(
    buffer: Any,
    dtype: Optional[Any],
    shape: Optional[Sequence[int]],
    window: Optional[Any],
    window_offset: Any,
    argument: str,
) -> Described:
    """(address, type code, shape, what to keep alive, writable, device if known) of anything that Tensor() takes; in
    place of the address a tensor that is to be viewed otherwise, or a window, with the place in it next to the shape.
    """
    if shape is not None:
        shape = checks.wholes("shape of " + argument, shape)
    if window is not None:
        if buffer is not None or dtype is None or shape is None:
            raise InvalidArgument("invalid argument: %s in a window needs buffer None, a dtype and a shape" % argument)
        memory = getattr(window, "_core", None)
        if not isinstance(memory, _core.SymmetricMemory):
            checks.refuse("window of " + argument, window, "a SymmetricMemory")
        offset = checks.whole("offset of %s in its window" % argument, window_offset, most=checks.INT64_MAX)
        return memory, _code(dtype_name(dtype), None, argument), shape, offset, True, None
    if isinstance(buffer, _core.Tensor):
        return (
            buffer,
            _code(buffer.dtype, dtype, argument),
            buffer.shape if shape is None else shape,
            buffer,
            buffer.writable,
            buffer.device,
        )
    if isinstance(buffer, (int, numpy.integer)):
        if dtype is None or shape is None:
            raise InvalidArgument("invalid argument: %s is an address and needs a dtype and a shape" % argument)
        address = checks.whole(argument, buffer, most=checks.UINT64_MAX)
        return address, _code(dtype_name(dtype), None, argument), shape, None, True, None
    if shape is not None:
        raise InvalidArgument(
            "invalid argument: %s has a shape of its own; `shape` goes with an address or a window" % argument
        )
    if isinstance(buffer, numpy.ndarray):
        return _of_numpy(buffer, dtype, argument)
    if hasattr(buffer, "data_ptr") and hasattr(buffer, "is_contiguous"):
        return _of_torch(buffer, dtype, argument)
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(buffer, name, None)
        if interface is not None:
            return _of_interface(buffer, interface, name, dtype, argument)
    if hasattr(buffer, "__dlpack__"):
        return _of_dlpack(buffer, dtype, argument)
    try:
        return _of_numpy(numpy.frombuffer(buffer, numpy.uint8), dtype, argument)
    except (TypeError, ValueError, BufferError):
        pass
    raise InvalidArgument(
        "invalid argument: %s is a %s, allowed are NumPy arrays, torch tensors, objects with DLPack or an array "
        "interface, and addresses with dtype and shape" % (argument, type(buffer).__name__)
    )


def _of_numpy(array: "numpy.ndarray[Any, Any]", dtype: Optional[Any], argument: str) -> Described:
    if not array.flags.c_contiguous:
        _refuse_strides(argument, array.shape)
    if not array.dtype.isnative:
        raise InvalidArgument("invalid argument: %s has bytes in the other order (%s)" % (argument, array.dtype.str))
    address = array.__array_interface__["data"][0]
    return address, _code(dtype_name(array.dtype), dtype, argument), array.shape, array, array.flags.writeable, _HOST


def _of_torch(tensor: Any, dtype: Optional[Any], argument: str) -> Described:
    if tensor.device.type not in ("cpu", "cuda"):
        _refuse_device(argument, str(tensor.device))
    if str(tensor.layout) != "torch.strided":
        raise InvalidArgument(
            "invalid argument: %s is sparse (%s), must be dense: pass its to_dense()" % (argument, tensor.layout)
        )
    shape = tuple(tensor.shape)
    if not tensor.is_contiguous():
        _refuse_strides(argument, shape)
    device = _HOST if tensor.device.type == "cpu" else _gpu(tensor.device.index)
    return tensor.data_ptr(), _code(dtype_name(tensor.dtype), dtype, argument), shape, tensor, True, device


def _of_interface(buffer: Any, interface: Dict[str, Any], name: str, dtype: Optional[Any], argument: str) -> Described:
    element = numpy.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    if not element.isnative or not _is_dense(shape, interface.get("strides"), element.itemsize):
        _refuse_strides(argument, shape)
    address, read_only = interface["data"]
    device = _gpu(_ANY_GPU) if name == "__cuda_array_interface__" else _HOST
    return address, _code(dtype_name(element), dtype, argument), shape, buffer, not read_only, device


# DLPack's structs, as far as reading goes (the format is public and frozen).
class _DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
_DL_HOST, _DL_CUDA, _DL_PINNED = 1, 2, 3

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _of_dlpack(buffer: Any, dtype: Optional[Any], argument: str) -> Described:
    kind, ordinal = (int(number) for number in buffer.__dlpack_device__())
    if kind not in (_DL_HOST, _DL_CUDA, _DL_PINNED):
        _refuse_device(argument, "a device of DLPack's kind %d" % kind)
    # Stream -1: whoever reads the memory is in the right stream already, as the caller has seen to.
    capsule = buffer.__dlpack__() if kind != _DL_CUDA else buffer.__dlpack__(stream=-1)
    # The capsule is not consumed: its own destructor gives the tensor back, so it is what is kept.
    table = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(table.shape[i] for i in range(table.ndim))
    item = table.bits // 8
    strides = [table.strides[i] * item for i in range(table.ndim)] if table.strides else None
    if not _is_dense(shape, strides, item) or table.lanes != 1:
        _refuse_strides(argument, shape)
    name = "%s%d" % (_DL_CODES.get(table.code, "code %d of " % table.code), table.bits)
    address = (table.data or 0) + table.byte_offset
    device = _gpu(ordinal) if kind == _DL_CUDA else _HOST
    return address, _code(name, dtype, argument), shape, capsule, True, device
