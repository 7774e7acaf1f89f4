"""The dtype of a result with two inputs (language.md section 3.9)."""

from __future__ import annotations

import numpy as np

from tilelang.dtypes import FORMATS, Format

__all__ = ["promote"]

_FLOATS = ("bfloat16", "float16", "float32")
_INTEGERS = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32")


def promote(first: str, second: str) -> str:
    """The dtype of `first` and `second` combined: the wider of the two, or the narrowest one that holds both.

    | operands | result |
    |---|---|
    | float, integer | the float |
    | float, float | the wider; float16 and bfloat16: float32; two fp8 formats: bfloat16 |
    | integer, integer | the wider; mixed signs widen; int32 and uint32: float32 |

    Packed formats and scales combine with nothing but themselves; then `first` is returned and the instruction refuses.
    """
    a, b = FORMATS[first], FORMATS[second]
    if first == second or not (_numeric(a) and _numeric(b)):
        return first
    if a.is_float != b.is_float:
        return first if a.is_float else second
    if a.is_float:
        return next(name for name in (first, second, *_FLOATS) if _covers(FORMATS[name], a, b))
    if "int64" in (first, second):
        return "int64"
    return next((name for name in _INTEGERS if _holds(FORMATS[name], a, b)), "float32")


def _numeric(fmt: Format) -> bool:
    return fmt.is_float or fmt.is_integer


def _covers(fmt: Format, *others: Format) -> bool:
    return all(
        fmt.exponent >= o.exponent
        and fmt.mantissa >= o.mantissa
        and fmt.max_finite >= o.max_finite
        and fmt.has_inf >= o.has_inf
        for o in others
    )


def _range(fmt: Format) -> tuple[int, int]:
    return (0, 1) if fmt.kind == "bool" else (int(np.iinfo(fmt.host).min), int(np.iinfo(fmt.host).max))


def _holds(fmt: Format, *others: Format) -> bool:
    low, high = _range(fmt)
    return all(low <= _range(o)[0] and _range(o)[1] <= high for o in others)
