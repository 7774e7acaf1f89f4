"""Operators of the vector engines on float32 (isa.md section 4.1); `INTEGER` holds those on integers.

A float32 result is a number or the canonical NaN 0x7fc00000; operators that only move a value (bypass, negative,
abs_max, abs_min) keep the sign of a NaN. So results do not depend on operand order or on how the machine makes NaNs,
and writing one to a float32 tile needs no conversion.
"""

from __future__ import annotations

import numpy as np

from tilelang.numerics.casts import copy_f32, quiet
from tilelang.numerics.elementary import abs64, clamp64, exp64, log64
from tilelang.numerics.integers import INTEGER
from tilelang.numerics.prim import (
    Formula,
    Value,
    as_f32,
    as_f64,
    as_i64,
    as_u32,
    as_u64,
    bits_f32,
    bits_f64,
    f32_bits,
    f64_bits,
    select,
    sqrt,
)

__all__ = [
    "BINARY",
    "FORMULAS",
    "INTEGER",
    "REDUCTIONS",
    "SIMULATE_ONLY",
    "UNARY",
    "identity",
    "magnitude",
    "with_sign",
]

_ZERO = np.float32(0)
_ONE = np.float32(1)
_NAN = np.float32(np.nan)
_SIGN_U = np.uint32(0x80000000)
_MAGNITUDE_U = np.uint32(0x7FFFFFFF)
_INTEGRAL = np.float32(2**23)  # from here on, every float32 is an integer


def magnitude(a: Value) -> Value:
    """`a` without its sign bit."""
    return bits_f32(as_u32(f32_bits(a) & _MAGNITUDE_U))


def with_sign(size: Value, a: Value) -> Value:
    """The magnitude of `size` with the sign bit of `a`."""
    return bits_f32(as_u32(as_u32(f32_bits(size) & _MAGNITUDE_U) | as_u32(f32_bits(a) & _SIGN_U)))


# --- binary ---


def _flag(condition: Value) -> Value:
    return select(condition, _ONE, _ZERO)


def _add(a: Value, b: Value) -> Value:
    return quiet(a + b)


def _subtract(a: Value, b: Value) -> Value:
    return quiet(a - b)


def _multiply(a: Value, b: Value) -> Value:
    return quiet(a * b)


def _divide(a: Value, b: Value) -> Value:
    return quiet(a / b)


def _maximum(a: Value, b: Value) -> Value:
    # Equal operands have equal bits, but for zeros of different sign: there the AND is +0.
    tie = bits_f32(as_u32(f32_bits(a) & f32_bits(b)))
    larger = select(a > b, a, select(a == b, tie, b))
    return select((a == a) & (b == b), larger, _NAN)


def _minimum(a: Value, b: Value) -> Value:
    tie = bits_f32(as_u32(f32_bits(a) | f32_bits(b)))
    smaller = select(a < b, a, select(a == b, tie, b))
    return select((a == a) & (b == b), smaller, _NAN)


def _equal(a: Value, b: Value) -> Value:
    return _flag(a == b)


def _not_equal(a: Value, b: Value) -> Value:
    return _flag(a != b)


def _greater(a: Value, b: Value) -> Value:
    return _flag(a > b)


def _greater_equal(a: Value, b: Value) -> Value:
    return _flag(a >= b)


def _less(a: Value, b: Value) -> Value:
    return _flag(a < b)


def _less_equal(a: Value, b: Value) -> Value:
    return _flag(a <= b)


def _logical_and(a: Value, b: Value) -> Value:
    return _flag((a != _ZERO) & (b != _ZERO))


def _logical_or(a: Value, b: Value) -> Value:
    return _flag((a != _ZERO) | (b != _ZERO))


def _logical_xor(a: Value, b: Value) -> Value:
    return _flag((a != _ZERO) != (b != _ZERO))


def _abs_max(a: Value, b: Value) -> Value:
    return copy_f32(select(magnitude(a) > magnitude(b), a, b))


def _abs_min(a: Value, b: Value) -> Value:
    return copy_f32(select(magnitude(a) < magnitude(b), a, b))


_ZERO64 = np.float64(0)
_ONE64 = np.float64(1)
_NAN64 = np.float64(np.nan)
_INF64 = np.float64(np.inf)
_MAGIC64 = np.float64(1.5 * 2**52)
_WHOLE64 = np.float64(2**24)  # from here on, every float32 is an even integer
_EXP_LIMIT = np.float64(200)  # e^200 rounds to Inf in float32, e^-200 to zero
_ONE_U64 = np.uint64(1)


def _power(a: Value, b: Value) -> Value:
    """`a ** b` with the special cases of C `powf`."""
    x = as_f64(a)
    y = as_f64(b)
    base = abs64(x)
    positive = (base > _ZERO64) & (base < _INF64)
    logarithm = select(positive, log64(select(positive, base, _ONE64)), base)
    logarithm = select(base == _ZERO64, -_INF64, logarithm)
    size = exp64(clamp64(y * logarithm, -_EXP_LIMIT, _EXP_LIMIT))

    nearest = clamp64(y, -_WHOLE64, _WHOLE64) + _MAGIC64
    odd = (nearest - _MAGIC64 == y) & (as_u64(f64_bits(nearest) & _ONE_U64) == _ONE_U64)
    fraction = (nearest - _MAGIC64 != y) & (y > -_WHOLE64) & (y < _WHOLE64)
    # The sign bit, not the sign: -0 to an odd power is -0 or -Inf.
    result = select((f32_bits(a) >= _SIGN_U) & odd, -size, size)
    result = select((x < _ZERO64) & (x > -_INF64) & fraction, _NAN64, result)
    one = (b == _ZERO) | (a == _ONE) | ((base == _ONE64) & ((y == _INF64) | (y == -_INF64)))
    return quiet(select(one, _ONE, as_f32(result)))


_IMPLICIT_I64 = np.int64(1 << 23)
_MIN_NORMAL_U = np.uint32(1 << 23)
_FRACTION_I64 = np.int64((1 << 23) - 1)
_ONE_I64 = np.int64(1)
_TWO_I64 = np.int64(2)
_ZERO_I64 = np.int64(0)
_EXPONENT_SHIFT = np.uint32(23)
_EXPONENT_SHIFT64 = np.uint64(52)
_SCALE_BIAS = np.int64(1023 - 150)
_INF = np.float32(np.inf)


def _exponent_field(bits: Value) -> Value:
    """The exponent field of float32 bits as int64; 1 for subnormals, which share its unit."""
    field = as_i64(as_u32(as_u32(bits & _MAGNITUDE_U) >> _EXPONENT_SHIFT))
    return select(field > _ZERO_I64, field, _ONE_I64)


def _significand(bits: Value) -> Value:
    """The significand of float32 bits as int64."""
    fraction = as_i64(bits) & _FRACTION_I64
    return select(as_u32(bits & _MAGNITUDE_U) >= _MIN_NORMAL_U, fraction + _IMPLICIT_I64, fraction)


def _fmod(a: Value, b: Value) -> Value:
    """The exact remainder of the truncated quotient, with the sign of `a` (C `fmodf`)."""
    a_bits, b_bits = f32_bits(a), f32_bits(b)
    a_exponent, b_exponent = _exponent_field(a_bits), _exponent_field(b_bits)
    divisor = _significand(b_bits)
    divisor = select(divisor > _ZERO_I64, divisor, _ONE_I64)
    steps = a_exponent - b_exponent
    count = select(steps > _ZERO_I64, steps, _ZERO_I64)
    # significand * 2^count modulo the divisor, by repeated squaring; the factors stay below 2^24.
    rest = _significand(a_bits) % divisor
    square = _TWO_I64 % divisor
    for _ in range(9):
        rest = select((count & _ONE_I64) == _ONE_I64, rest * square % divisor, rest)
        square = square * square % divisor
        count = count >> _ONE_I64
    scale = bits_f64(as_u64(b_exponent + _SCALE_BIAS) << _EXPONENT_SHIFT64)
    size = select(magnitude(a) < magnitude(b), magnitude(a), as_f32(as_f64(rest) * scale))
    valid = (magnitude(a) < _INF) & (b == b) & (b != _ZERO)
    return select(valid, with_sign(size, a), _NAN)


def _mod(a: Value, b: Value) -> Value:
    """The remainder of the floored quotient, with the sign of `b` (Python `%`)."""
    rest = _fmod(a, b)
    opposite = (rest < _ZERO) != (b < _ZERO)
    zero = bits_f32(as_u32(f32_bits(b) & _SIGN_U))
    return quiet(select(rest == _ZERO, zero, select(opposite, rest + b, rest)))


# --- unary ---


def _abs(a: Value) -> Value:
    return quiet(magnitude(a))


def _square(a: Value) -> Value:
    return quiet(a * a)


def _relu(a: Value) -> Value:
    return quiet(select(a <= _ZERO, _ZERO, a))


def _rsqrt(a: Value) -> Value:
    return quiet(_ONE / sqrt(a))


def _reciprocal(a: Value) -> Value:
    return quiet(_ONE / a)


def _logical_not(a: Value) -> Value:
    return _flag(a == _ZERO)


def _negative(a: Value) -> Value:
    return copy_f32(bits_f32(as_u32(f32_bits(a) ^ _SIGN_U)))


def _truncated(a: Value) -> Value:
    # Below 2^23, adding and subtracting 2^23 rounds to an integer.
    size = magnitude(a)
    nearest = (size + _INTEGRAL) - _INTEGRAL
    nearest = select(nearest > size, nearest - _ONE, nearest)
    whole = select(size < _INTEGRAL, nearest, size)
    return with_sign(whole, a)


def _trunc(a: Value) -> Value:
    return quiet(_truncated(a))


def _floor(a: Value) -> Value:
    whole = _truncated(a)
    return quiet(select(whole > a, whole - _ONE, whole))


def _ceil(a: Value) -> Value:
    whole = _truncated(a)
    return quiet(select(whole < a, whole + _ONE, whole))


BINARY: dict[str, Formula] = {
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
    "power": _power,
    "abs_max": _abs_max,
    "abs_min": _abs_min,
    "divide": _divide,
    "fmod": _fmod,
    "mod": _mod,
}

UNARY: dict[str, Formula] = {
    "abs": _abs,
    "square": _square,
    "relu": _relu,
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "logical_not": _logical_not,
    "bypass": copy_f32,
    "ceil": _ceil,
    "floor": _floor,
    "trunc": _trunc,
    "negative": _negative,
}

# No device has these: they run in simulation and `check` refuses them.
SIMULATE_ONLY = frozenset({"divide", "fmod", "mod", "ceil", "floor", "trunc", "negative"})

_IDENTITY: dict[str, float] = {
    "add": 0.0,
    "subtract": 0.0,
    "multiply": 1.0,
    "maximum": float("-inf"),
    "minimum": float("inf"),
    "logical_and": 1.0,
    "logical_or": 0.0,
    "logical_xor": 0.0,
    "abs_max": 0.0,
    "abs_min": float("inf"),
    "bitwise_and": -1,
    "bitwise_or": 0,
    "bitwise_xor": 0,
}

# Operators of reductions: what isa.md marks `red`, and the two that only `activate2` may reduce with.
REDUCTIONS = frozenset(_IDENTITY)


def identity(op: str) -> float:
    """The value that a reduction with `op` starts from: a float, or an int for the bitwise operators (-1 is all ones).

    Raises KeyError when `op` is no reduction operator.
    """
    return _IDENTITY[op]


FORMULAS: tuple[Formula, ...] = (
    _flag,
    magnitude,
    with_sign,
    _truncated,
    _exponent_field,
    _significand,
    *BINARY.values(),
    *(formula for formula in UNARY.values() if formula is not copy_f32),
)
