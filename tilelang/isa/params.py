"""Kinds of non-tensor parameters: what is accepted and how it is normalised to a hashable value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.scalars import NkiScalar, VirtualRegister, whole
from tilelang.isa import enums
from tilelang.isa.operators import operator_name

__all__ = [
    "AXES",
    "BOOL",
    "BYTE_MASK",
    "ENGINE",
    "INT",
    "INT_OR_REGISTER",
    "NUMBER",
    "OPERATOR",
    "OPTIONAL_INT",
    "OPTIONAL_OPERATOR",
    "PATTERN",
    "PERF_MODE",
    "PRIORITY",
    "TILE_PAIR",
    "TRISTATE",
    "Param",
    "enum_param",
    "finite_int",
]


@dataclass(frozen=True, slots=True)
class Param:
    """One kind of parameter: a word for messages and a function that normalises or raises TileTypeError."""

    what: str
    normalise: Callable[[Any], Any]


def _index(value: Any) -> int:
    found = whole(value)
    if found is None:
        raise TileTypeError(f"expected an int known while tracing, got {type(value).__name__}")
    return found


def finite_int(value: float | int) -> float | int:
    """`value`; raises TileValueError for an int that no float holds."""
    try:
        float(value)
    except OverflowError:
        raise TileValueError(
            f"the int has {value.bit_length()} bits; numbers are taken as float32"  # type: ignore[union-attr]
        ) from None
    return value


def _number(value: Any) -> float | int:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return finite_int(value)
    if isinstance(value, bool):
        return int(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        item = value.item()
        if isinstance(item, (int, float)):
            return item
    raise TileTypeError(f"expected a number known while tracing, got {type(value).__name__}")


def _bool(value: Any) -> bool:
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise TileTypeError(f"expected True or False, got {value!r}")


def _tristate(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TileTypeError(f"expected None, True or False, got {value!r}")


def _axes(value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(_index(item) for item in value)
    return (_index(value),)


def _pattern(value: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in value):
        raise TileTypeError(f"expected [[step, num], ...], got {value!r}")
    return tuple((_index(step), _index(num)) for step, num in value)


def _pair(value: Any) -> tuple[int, ...]:
    if value is None or (isinstance(value, (list, tuple)) and len(value) == 0):
        return ()
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return tuple(_index(item) for item in value)
    raise TileTypeError(f"expected (row, column), got {value!r}")


def _mask(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise TileTypeError(f"expected a list of 32 ints, got {type(value).__name__}")
    return tuple(_index(item) for item in value)


def _priority(value: Any) -> int | None:
    return None if value is None else _index(value)


def _register_or_int(value: Any) -> Any:
    return value if isinstance(value, (VirtualRegister, NkiScalar)) else _index(value)


def enum_param(kind: type[Enum], *, values: bool = False) -> Param:
    """A parameter that takes a member of `kind` (GEN.R9); with `values`, also a member's value, a string or int."""

    def normalise(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if values and isinstance(value, (str, int)) and not isinstance(value, bool):
            try:
                return kind(value)
            except ValueError:
                pass
        choices = ", ".join(f"{kind.__name__}.{m.name}" for m in kind)
        raise TileTypeError(
            f"expected a member of {kind.__name__}, got {value!r}", rule="GEN.R9", hint=f"one of {choices}"
        )

    return Param(kind.__name__, normalise)


INT = Param("int", _index)
OPTIONAL_INT = Param("int or None", lambda v: None if v is None else _index(v))
INT_OR_REGISTER = Param("int or register", _register_or_int)
NUMBER = Param("number", _number)
BOOL = Param("bool", _bool)
TRISTATE = Param("None, True or False", _tristate)
AXES = Param("axis or axes", _axes)
PATTERN = Param("[[step, num], ...]", _pattern)
TILE_PAIR = Param("(row, column) or ()", _pair)
BYTE_MASK = Param("list of 32 ints", _mask)
PRIORITY = Param("int 0..3 or None", _priority)
OPERATOR = Param("operator", operator_name)
OPTIONAL_OPERATOR = Param("operator or None", lambda v: None if v is None else operator_name(v))
ENGINE = enum_param(enums.engine)
PERF_MODE = enum_param(enums.matmul_perf_mode, values=True)


def limited(what: str, choices: tuple[Any, ...]) -> Param:
    """A parameter that takes one of `choices`."""

    def normalise(value: Any) -> Any:
        if isinstance(value, (int, str, tuple, type(None))) and value in choices:
            return value
        raise TileValueError(f"expected one of {choices}, got {value!r}")

    return Param(what, normalise)
