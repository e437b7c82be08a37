"""What arguments may be. Each check names the argument and what it must be, and returns the value as the binding takes
it.
"""

from __future__ import annotations

import enum
import numbers
import operator
from typing import Any, NoReturn, Optional, Sequence, Tuple, Type, TypeVar

import numpy

from .errors import InvalidArgument

Kind = TypeVar("Kind")
Choice = TypeVar("Choice", bound=enum.IntEnum)

_MOST_SECONDS = 9 * 10**9  # whose nanoseconds fit
INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX = (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1


def refuse(name: str, value: Any, must: str) -> NoReturn:
    raise InvalidArgument("invalid argument: %s is %s, must be %s" % (name, _shown(value), must))


def _shown(value: Any) -> str:
    """Never what it holds, where that could be long or a secret: bytes may be a unique id."""
    plain = value is None or isinstance(value, (bool, int, float, str, numpy.generic))
    return repr(value) if plain and not isinstance(value, bytes) else "a " + type(value).__name__


def instance(name: str, value: Any, kind: Type[Kind]) -> Kind:
    if not isinstance(value, kind):
        refuse(name, value, "a " + kind.__name__)
    return value


def whole(name: str, value: Any, least: int = 0, most: int = UINT32_MAX) -> int:
    """Of any type of integers, NumPy's among them."""
    number = _index(value)
    if number is None or not least <= number <= most:
        refuse(name, value, "a whole number from %d to %d" % (least, most))
    return number


def _index(value: Any) -> Optional[int]:
    try:
        return operator.index(value)
    except TypeError:
        return None


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, numpy.bool_)) and _index(value) not in (0, 1):
        refuse(name, value, "True or False")
    return bool(value)


def member(name: str, value: Any, kind: Type[Choice]) -> Choice:
    """Of an enumeration; its number will do."""
    try:
        return kind(operator.index(value))
    except (TypeError, ValueError):
        refuse(name, value, "one of " + ", ".join("%s.%s" % (kind.__name__, choice) for choice in kind.__members__))


def seconds(name: str, value: Any) -> float:
    if not isinstance(value, numbers.Real) or not 0 <= float(value) <= _MOST_SECONDS:
        refuse(name, value, "a number of seconds from 0 to %d" % _MOST_SECONDS)
    return float(value)


def wholes(name: str, values: Any) -> Tuple[int, ...]:
    """A shape, or counts."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        refuse(name, values, "a sequence of whole numbers")
    return tuple(whole("%s[%d]" % (name, place), value, most=INT64_MAX) for place, value in enumerate(values))


def text_of(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument("invalid argument: %s is a %s, must be a str" % (name, type(value).__name__))
    return value


def key_of(name: str, value: Any, num_bytes: int) -> bytes:
    """A secret: no message shows it."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        kind = type(value).__name__
        raise InvalidArgument("invalid argument: %s is a %s, must be %d bytes" % (name, kind, num_bytes))
    key = bytes(value)
    if len(key) != num_bytes:
        raise InvalidArgument("invalid argument: %s has %d bytes, must have %d" % (name, len(key), num_bytes))
    return key


def of_shape(name: str, shape: Sequence[int], must: Sequence[int]) -> None:
    if tuple(shape) != tuple(must):
        raise InvalidArgument("invalid argument: %s is %s, must be %s" % (name, list(shape), list(must)))
