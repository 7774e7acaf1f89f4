"""Float64 kernels under the float32 functions: exponential, logarithm, and their relatives.

Each is accurate to about 2^-31 or better, so the one rounding to float32 that follows decides the error. Arguments
are bounded by the caller; float64 then neither overflows nor goes subnormal. The polynomials are minimax
approximations (Remez exchange); `tests/numerics` derives them again and compares.
"""

from __future__ import annotations

import numpy as np

from tilelang.numerics.prim import Formula, Value, as_u64, bits_f64, f64_bits, select

__all__ = ["FORMULAS", "abs64", "clamp64", "exp64", "exp_parts64", "expm1_64", "log1p64", "log64"]

_ZERO = np.float64(0)
_ONE = np.float64(1)
_TWO = np.float64(2)
_MAGIC = np.float64(1.5 * 2**52)  # adding it leaves the nearest integer in the low bits of the sum
_MAGIC_BIAS = np.float64(1.5 * 2**52 + 1023)
_MAGIC_U = np.uint64(0x4338000000000000)
_ONE_U = np.uint64(0x3FF0000000000000)
_EXPONENT_SHIFT = np.uint64(52)
_LOG2_E = np.float64(1.4426950408889634)
_LN_2 = np.float64(0.6931471805599453)

# (e^r - 1 - r) / r^2 for |r| <= ln(2)/2; e^r to 2^-32, e^r - 1 to 2^-31.
_E0 = np.float64(0.50000000134911263234)
_E1 = np.float64(0.1666666675661606173)
_E2 = np.float64(0.041666464684222059168)
_E3 = np.float64(0.008333285945415049792)
_E4 = np.float64(0.0013933676041741220677)
_E5 = np.float64(0.00019907628517124882871)

# (2 atanh(s) / s - 2) / s^2 as a polynomial of s^2; the logarithm of [sqrt(1/2), sqrt(2)] to 2^-44.
_L0 = np.float64(0.66666666675846743822)
_L1 = np.float64(0.39999995604516028582)
_L2 = np.float64(0.28572111163839525983)
_L3 = np.float64(0.22176098317956931759)
_L4 = np.float64(0.19585541154579839259)

# The same for s <= 1/3: the logarithm of [1, 2] to 2^-33.
_P0 = np.float64(0.66666675622140997143)
_P1 = np.float64(0.39998877729055362439)
_P2 = np.float64(0.28616885178737678642)
_P3 = np.float64(0.21427653758077800705)
_P4 = np.float64(0.24300949803078482224)

_SQRT_HALF_U = np.uint64(0x3FE6A09E667F3BCD)
_FRACTION_U = np.uint64(0x000FFFFFFFFFFFFF)


def abs64(x: Value) -> Value:
    """The magnitude of float64 `x` (-0 stays)."""
    return select(x < _ZERO, -x, x)


def clamp64(x: Value, lo: Value, hi: Value) -> Value:
    """Float64 `x` limited to [lo, hi]; a NaN stays."""
    x = select(x < lo, lo, x)
    return select(x > hi, hi, x)


def exp_parts64(x: Value) -> tuple[Value, Value]:
    """`(scale, e)` with `e^x = scale * (1 + e)`, scale a power of two and e in [-0.3, 0.42]; |x| <= 700."""
    shifted = x * _LOG2_E + _MAGIC
    r = x - (shifted - _MAGIC) * _LN_2
    q = _E0 + r * (_E1 + r * (_E2 + r * (_E3 + r * (_E4 + r * _E5))))
    # The shift drops all of the sum but its low bits, the integer.
    scale = bits_f64(as_u64(as_u64(f64_bits(shifted) << _EXPONENT_SHIFT) + _ONE_U))
    return scale, r + r * r * q


def exp64(x: Value) -> Value:
    """`e^x` for |x| <= 700."""
    scale, e = exp_parts64(x)
    return scale + scale * e


def expm1_64(x: Value) -> Value:
    """`e^x - 1` for |x| <= 700, with full relative accuracy around zero."""
    scale, e = exp_parts64(x)
    return (scale - _ONE) + scale * e


def log64(x: Value) -> Value:
    """Natural logarithm of a positive, normal, finite float64."""
    # x = 2^k m with m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) moves the binades to start there.
    moved = as_u64(as_u64(f64_bits(x) - _SQRT_HALF_U) + _ONE_U)
    exponent = as_u64(moved >> _EXPONENT_SHIFT)
    m = bits_f64(as_u64(as_u64(moved & _FRACTION_U) + _SQRT_HALF_U))
    k = bits_f64(as_u64(exponent + _MAGIC_U)) - _MAGIC_BIAS
    f = m - _ONE
    s = f / (m + _ONE)
    u = s * s
    p = _L0 + u * (_L1 + u * (_L2 + u * (_L3 + u * _L4)))
    return k * _LN_2 + s * (_TWO + u * p)


def log1p64(x: Value) -> Value:
    """`ln(1 + x)` for 0 <= x <= 1, with full relative accuracy around zero."""
    s = x / (x + _TWO)
    u = s * s
    p = _P0 + u * (_P1 + u * (_P2 + u * (_P3 + u * _P4)))
    return s * (_TWO + u * p)


FORMULAS: tuple[Formula, ...] = (abs64, clamp64, exp_parts64, exp64, expm1_64, log64, log1p64)
