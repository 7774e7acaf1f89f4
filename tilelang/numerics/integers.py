"""Integer operators: bit operators on any carrier of at most 32 bits, and the 32-bit arithmetic of GpSimd (isa.md
section 4.1).

Both operands have one type, which is the type of the result; results wrap modulo 2^width, flags are 1 and 0.
"""

from __future__ import annotations

import numpy as np

from tilelang.numerics.prim import Formula, Value, as_like, as_u32, as_unsigned, select

__all__ = ["FORMULAS", "INTEGER"]

_WIDTH_U = np.uint32(32)
_SHIFT_MASK_U = np.uint32(31)
_ZERO_U = np.uint32(0)


def _bitwise_and(a: Value, b: Value) -> Value:
    return as_like(a & b, a)


def _bitwise_or(a: Value, b: Value) -> Value:
    return as_like(a | b, a)


def _bitwise_xor(a: Value, b: Value) -> Value:
    return as_like(a ^ b, a)


def _invert(a: Value) -> Value:
    return as_like(~a, a)


def _left_shift(a: Value, b: Value) -> Value:
    # The count is read as unsigned; from the width on, the result is 0.
    count = as_u32(as_unsigned(b))
    shifted = as_u32(as_u32(as_unsigned(a)) << as_u32(count & _SHIFT_MASK_U))
    return as_like(select(count < _WIDTH_U, shifted, _ZERO_U), a)


def _right_shift(a: Value, b: Value) -> Value:
    count = as_u32(as_unsigned(b))
    shifted = as_u32(as_u32(as_unsigned(a)) >> as_u32(count & _SHIFT_MASK_U))
    return as_like(select(count < _WIDTH_U, shifted, _ZERO_U), a)


def _add(a: Value, b: Value) -> Value:
    return as_like(a + b, a)


def _subtract(a: Value, b: Value) -> Value:
    return as_like(a - b, a)


def _multiply(a: Value, b: Value) -> Value:
    return as_like(a * b, a)


def _maximum(a: Value, b: Value) -> Value:
    return select(a > b, a, b)


def _minimum(a: Value, b: Value) -> Value:
    return select(a < b, a, b)


def _equal(a: Value, b: Value) -> Value:
    return as_like(a == b, a)


def _not_equal(a: Value, b: Value) -> Value:
    return as_like(a != b, a)


def _greater(a: Value, b: Value) -> Value:
    return as_like(a > b, a)


def _greater_equal(a: Value, b: Value) -> Value:
    return as_like(a >= b, a)


def _less(a: Value, b: Value) -> Value:
    return as_like(a < b, a)


def _less_equal(a: Value, b: Value) -> Value:
    return as_like(a <= b, a)


def _truth(a: Value) -> Value:
    return a != as_like(_ZERO_U, a)


def _logical_and(a: Value, b: Value) -> Value:
    return as_like(_truth(a) & _truth(b), a)


def _logical_or(a: Value, b: Value) -> Value:
    return as_like(_truth(a) | _truth(b), a)


def _logical_xor(a: Value, b: Value) -> Value:
    return as_like(_truth(a) != _truth(b), a)


INTEGER: dict[str, Formula] = {
    "bitwise_and": _bitwise_and,
    "bitwise_or": _bitwise_or,
    "bitwise_xor": _bitwise_xor,
    "left_shift": _left_shift,
    "right_shift": _right_shift,
    "invert": _invert,
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "maximum": _maximum,
    "minimum": _minimum,
    "equal": _equal,
    "not_equal": _not_equal,
    "greater": _greater,
    "greater_equal": _greater_equal,
    "less": _less,
    "less_equal": _less_equal,
    "logical_and": _logical_and,
    "logical_or": _logical_or,
    "logical_xor": _logical_xor,
}
"""Operator name to formula `f(a, b)`; `invert` takes one operand."""

FORMULAS: tuple[Formula, ...] = (_truth, *INTEGER.values())
