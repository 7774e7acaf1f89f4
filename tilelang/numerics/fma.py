"""Fused multiply-add of float32 with one rounding, for NumPy and for machines without the instruction.

The product of two float32 is exact in float64. The sum is rounded to odd there: 53 bits are more than 2 * 24 + 2, so
the second rounding, to float32, gives what a single one would, subnormal results included.
"""

from __future__ import annotations

import numpy as np

from tilelang.numerics.casts import quiet
from tilelang.numerics.prim import Formula, Value, as_f32, as_f64, as_u64, bits_f64, f64_bits, select

__all__ = ["FORMULAS", "add_product", "fma"]

_ZERO = np.float64(0)
_ZERO_U = np.uint64(0)
_ONE_U = np.uint64(1)


def fma(a: Value, b: Value, c: Value) -> Value:
    """`a * b + c` of float32 arrays (scalars in compiled code), rounded once, to nearest even; a NaN is 0x7fc00000."""
    return add_product(as_f64(a) * as_f64(b), c)


def add_product(product: Value, c: Value) -> Value:
    """The float64 `product` of at most 48 bits, plus the float32 `c`, rounded once to float32; a NaN is 0x7fc00000."""
    addend = as_f64(c)
    total = product + addend
    # The exact error of the sum, by Knuth's TwoSum. It is NaN when the sum is no number: then no comparison holds.
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = f64_bits(total)
    even = as_u64(bits & _ONE_U) == _ZERO_U
    # The odd neighbour on the side of the exact sum; adding one to the bits moves away from zero.
    outward = (error > _ZERO) == (total > _ZERO)
    odd = select(outward, as_u64(bits + _ONE_U), as_u64(bits - _ONE_U))
    inexact = (error > _ZERO) | (error < _ZERO)
    return quiet(as_f32(bits_f64(select(inexact & even, odd, bits))))


FORMULAS: tuple[Formula, ...] = (add_product, fma)
