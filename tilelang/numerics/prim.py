"""Primitives of the arithmetic formulas: their NumPy meaning.

A formula is a plain function built from `+ - * /`, comparisons, integer operators and these primitives. Called with
NumPy arrays (one dimension or more) it computes element-wise; compiled by Numba it computes the same bits on scalars.
`execute/engines/jit.py` gives each function in `PRIMITIVES` its scalar meaning.

Rules that keep both meanings equal:

* no branch on data (`select` instead), so that loops vectorise;
* constants are typed module globals (`np.float32(...)`, `np.uint32(...)`), never Python literals, because Numba
  widens those;
* Numba computes 8- to 32-bit integers in 64 bits, so each sum, product or left shift is wrapped (`as_u32`) before
  anything looks at its upper bits; signed and unsigned integers never meet in one operator;
* a float becomes an integer by adding a power of two and reading the bits: the `as_i*` and `as_u*` primitives take
  integers only, because converting an unrepresentable float differs between machines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "PRIMITIVES",
    "Formula",
    "Value",
    "as_f32",
    "as_f64",
    "as_i8",
    "as_i16",
    "as_i32",
    "as_i64",
    "as_like",
    "as_u8",
    "as_u16",
    "as_u32",
    "as_u64",
    "as_unsigned",
    "bits_f32",
    "bits_f64",
    "f32_bits",
    "f64_bits",
    "select",
    "sqrt",
]

Value = Any  # a NumPy array, or a Numba scalar of the same type
Formula = Callable[..., Value]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def select(condition: Value, a: Value, b: Value) -> Value:
    """`a` where `condition` holds, else `b`; both have one type and both are evaluated."""
    return np.where(condition, a, b)


def f32_bits(x: Value) -> Value:
    """The bits of float32 `x`, as uint32."""
    return np.asarray(x, np.float32).view(np.uint32)


def bits_f32(bits: Value) -> Value:
    """The float32 whose bits are the uint32 `bits`."""
    return np.asarray(bits, np.uint32).view(np.float32)


def f64_bits(x: Value) -> Value:
    """The bits of float64 `x`, as uint64."""
    return np.asarray(x, np.float64).view(np.uint64)


def bits_f64(bits: Value) -> Value:
    """The float64 whose bits are the uint64 `bits`."""
    return np.asarray(bits, np.uint64).view(np.float64)


def as_f32(x: Value) -> Value:
    """Float64 or an integer to float32, to nearest even."""
    return np.asarray(x).astype(np.float32, copy=False)


def as_f64(x: Value) -> Value:
    """Float32 or an integer to float64, to nearest even (exact up to 53 bits)."""
    return np.asarray(x).astype(np.float64, copy=False)


def as_i8(x: Value) -> Value:
    """An integer modulo 2^8, as int8."""
    return np.asarray(x).astype(np.int8, copy=False)


def as_i16(x: Value) -> Value:
    """An integer modulo 2^16, as int16."""
    return np.asarray(x).astype(np.int16, copy=False)


def as_i32(x: Value) -> Value:
    """An integer modulo 2^32, as int32."""
    return np.asarray(x).astype(np.int32, copy=False)


def as_i64(x: Value) -> Value:
    """An integer modulo 2^64, as int64; narrower ones are sign- or zero-extended by their type."""
    return np.asarray(x).astype(np.int64, copy=False)


def as_u8(x: Value) -> Value:
    """An integer modulo 2^8, as uint8."""
    return np.asarray(x).astype(np.uint8, copy=False)


def as_u16(x: Value) -> Value:
    """An integer modulo 2^16, as uint16."""
    return np.asarray(x).astype(np.uint16, copy=False)


def as_u32(x: Value) -> Value:
    """An integer modulo 2^32, as uint32."""
    return np.asarray(x).astype(np.uint32, copy=False)


def as_u64(x: Value) -> Value:
    """An integer modulo 2^64, as uint64; narrower ones are sign- or zero-extended by their type."""
    return np.asarray(x).astype(np.uint64, copy=False)


def as_like(x: Value, like: Value) -> Value:
    """The integer `x` modulo the width of `like`, in the type of `like`."""
    return np.asarray(x).astype(np.asarray(like).dtype, copy=False)


def as_unsigned(x: Value) -> Value:
    """The bits of the integer `x` in the unsigned type of the same width."""
    array = np.asarray(x)
    return array.view(_UNSIGNED[array.dtype.itemsize])


def sqrt(x: Value) -> Value:
    """Correctly rounded square root of float32 or float64 `x`; NaN below zero, -0 for -0."""
    return np.sqrt(x)


PRIMITIVES: tuple[Formula, ...] = (
    select,
    f32_bits,
    bits_f32,
    f64_bits,
    bits_f64,
    as_f32,
    as_f64,
    as_i8,
    as_i16,
    as_i32,
    as_i64,
    as_u8,
    as_u16,
    as_u32,
    as_u64,
    as_like,
    as_unsigned,
    sqrt,
)
