"""Sine, cosine, tangent and arctangent of float32, computed in float64.

`sin_device` is the function of the Scalar Engine, which does not reduce its argument. The others reduce exactly: an
angle becomes a 64-bit fraction of a turn, the product of its significand with 96 bits of 2^k / (2 pi) (after Payne
and Hanek), where wrap-around is the reduction.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tilelang.numerics.alu import with_sign
from tilelang.numerics.casts import quiet
from tilelang.numerics.elementary import abs64
from tilelang.numerics.prim import (
    Formula,
    Value,
    as_f32,
    as_f64,
    as_i64,
    as_u32,
    as_u64,
    bits_f32,
    f32_bits,
    select,
)

__all__ = ["FORMULAS", "arctan", "cos_full", "sin_device", "sin_full", "tan_full"]

_ZERO64 = np.float64(0)
_ONE64 = np.float64(1)
_SIX64 = np.float64(6)
_PI = np.float64(3.141592653589793)
_HALF_PI = np.float64(1.5707963267948966)
_SIGN_U = np.uint32(0x80000000)
_ZERO_U = np.uint32(0)

# (sin r - r) / r^3 as a polynomial of r^2 for |r| <= pi/2; the sine to 2^-35.
_S0 = np.float64(-0.16666666626099305588)
_S1 = np.float64(0.0083333311064048270775)
_S2 = np.float64(-0.00019840867913785208012)
_S3 = np.float64(2.7525368817758713047e-6)
_S4 = np.float64(-2.3888627583573517679e-8)


def _sin_quarter(r: Value) -> Value:
    """The sine of float64 r, |r| <= pi/2."""
    u = r * r
    return r + r * u * (_S0 + u * (_S1 + u * (_S2 + u * (_S3 + u * _S4))))


def sin_device(x: Value) -> Value:
    """The sine for |x| <= pi; beyond, with d = |x| - pi, the cubic `-d + d^3 / 6` and the sign of x (isa.md 4.2)."""
    wide = as_f64(x)
    size = abs64(wide)
    d = size - _PI
    # As one product, the cubic has a value at infinity too.
    cubic = d * (d * d / _SIX64 - _ONE64)
    quarter = _sin_quarter(select(size > _HALF_PI, _PI - size, size))
    result = as_f32(select(size > _PI, cubic, quarter))
    flip = select(wide < _ZERO64, _SIGN_U, _ZERO_U)
    return quiet(select(wide == _ZERO64, x, bits_f32(as_u32(f32_bits(result) ^ flip))))


def _turns(exponent: int) -> tuple[int, int, int]:
    """Three 32-bit words of the fraction of 2^(exponent - 150) / (2 pi), high word first."""
    scaled = _INVERSE_TWO_PI * Fraction(2) ** (exponent - 150)
    fraction = scaled - int(scaled)
    words = int(fraction * 2**96)
    return words >> 64, words >> 32 & 0xFFFFFFFF, words & 0xFFFFFFFF


def _arctan_inverse(n: int, bits: int) -> int:
    """`2^bits arctan(1/n)` by its power series."""
    term = total = (1 << bits) // n
    divisor = 1
    while term:
        term //= -n * n
        divisor += 2
        total += term // divisor
    return total


_PI_BITS = 320
# Machin's formula; the last few bits are inexact, and the table needs 230.
_PI_FIXED = 4 * (4 * _arctan_inverse(5, _PI_BITS) - _arctan_inverse(239, _PI_BITS))
_INVERSE_TWO_PI = Fraction(1 << _PI_BITS, 2 * _PI_FIXED)
_TABLE = [_turns(exponent) for exponent in range(256)]
_TURNS_HIGH = np.array([row[0] for row in _TABLE], np.uint64)
_TURNS_MIDDLE = np.array([row[1] for row in _TABLE], np.uint64)
_TURNS_LOW = np.array([row[2] for row in _TABLE], np.uint64)

_EXPONENT_SHIFT = np.uint32(23)
_EXPONENT_MASK = np.uint32(0xFF)
_FRACTION_MASK = np.uint32(0x7FFFFF)
_IMPLICIT = np.uint32(0x800000)
_WORD_SHIFT = np.uint64(32)
_QUARTER_TURN = np.uint64(1 << 62)
_HALF_TURN = np.uint64(1 << 63)
_TURN_TO_RADIANS = np.float64(2 * 3.141592653589793 * 2.0**-64)
_INFINITY_U = np.uint32(0x7F800000)
_MAGNITUDE_U = np.uint32(0x7FFFFFFF)
_NAN64 = np.float64(np.nan)


def _phase(x: Value) -> Value:
    """`|x|` in units of 2^-64 turns, whole turns dropped."""
    bits = f32_bits(x)
    exponent = as_u32(as_u32(bits >> _EXPONENT_SHIFT) & _EXPONENT_MASK)
    fraction = as_u32(bits & _FRACTION_MASK)
    significand = as_u64(select(exponent > _ZERO_U, as_u32(fraction | _IMPLICIT), fraction))
    index = as_u64(exponent)
    high = as_u64(significand * _TURNS_HIGH[index])
    middle = as_u64(significand * _TURNS_MIDDLE[index])
    low = as_u64(significand * _TURNS_LOW[index])
    return as_u64(as_u64(high << _WORD_SHIFT) + as_u64(middle + as_u64(low >> _WORD_SHIFT)))


def _sin_phase(phase: Value) -> Value:
    """The sine of an angle in units of 2^-64 turns, as float64."""
    # Left of +-1/4 turn, the sine of the supplement: half a turn minus the angle.
    outside = as_u64(phase + _QUARTER_TURN) >= _HALF_TURN
    folded = as_i64(select(outside, as_u64(_HALF_TURN - phase), phase))
    return _sin_quarter(as_f64(folded) * _TURN_TO_RADIANS)


def _sin_magnitude(x: Value) -> Value:
    """The sine of |x|, as float64."""
    wide = as_f64(x)
    size = abs64(wide)
    # A fixed-point angle is too coarse for a small one.
    small = size < _ONE64
    return select(small, _sin_quarter(select(small, size, _ZERO64)), _sin_phase(_phase(x)))


def _finite(x: Value, result: Value) -> Value:
    """`result` for finite `x`, else NaN."""
    return select(as_u32(f32_bits(x) & _MAGNITUDE_U) < _INFINITY_U, result, _NAN64)


def sin_full(x: Value) -> Value:
    """The sine of any float32; NaN at the infinities."""
    result = as_f32(_finite(x, _sin_magnitude(x)))
    return quiet(bits_f32(as_u32(f32_bits(result) ^ as_u32(f32_bits(x) & _SIGN_U))))


def cos_full(x: Value) -> Value:
    """The cosine of any float32; NaN at the infinities."""
    return quiet(as_f32(_finite(x, _sin_phase(as_u64(_phase(x) + _QUARTER_TURN)))))


def tan_full(x: Value) -> Value:
    """The tangent of any float32; NaN at the infinities."""
    cosine = _sin_phase(as_u64(_phase(x) + _QUARTER_TURN))
    result = as_f32(_finite(x, _sin_magnitude(x) / cosine))
    return quiet(bits_f32(as_u32(f32_bits(result) ^ as_u32(f32_bits(x) & _SIGN_U))))


# (arctan t - t) / t^3 as a polynomial of t^2 for |t| <= tan(pi/8), to 2^-35.
_A0 = np.float64(-0.33333332510076206361)
_A1 = np.float64(0.19999904756215889946)
_A2 = np.float64(-0.14282029016268162777)
_A3 = np.float64(0.11044923030261759383)
_A4 = np.float64(-0.084774063617352545231)
_A5 = np.float64(0.04746113532086486483)
_QUARTER_PI = np.float64(0.7853981633974483)
_TAN_LOW = np.float64(0.41421356237309503)
_TAN_HIGH = np.float64(2.414213562373095)
_HUGE = np.float64(1e300)


def arctan(x: Value) -> Value:
    """The arctangent of any float32; +-pi/2 at the infinities."""
    wide = as_f64(x)
    size = abs64(wide)
    size = select(size > _HUGE, _HUGE, size)
    # arctan x is the base angle plus the arctangent of a number below tan(pi/8), of x turned back by the base.
    near, far = size <= _TAN_LOW, size > _TAN_HIGH
    above = select(near, size, select(far, -_ONE64, size - _ONE64))
    below = select(near, _ONE64, select(far, size, size + _ONE64))
    base = select(near, _ZERO64, select(far, _HALF_PI, _QUARTER_PI))
    t = above / below
    u = t * t
    p = _A0 + u * (_A1 + u * (_A2 + u * (_A3 + u * (_A4 + u * _A5))))
    result = as_f32(base + (t + t * u * p))
    return quiet(with_sign(result, x))


FORMULAS: tuple[Formula, ...] = (
    _sin_quarter,
    sin_device,
    _phase,
    _sin_phase,
    _sin_magnitude,
    _finite,
    sin_full,
    cos_full,
    tan_full,
    arctan,
)
