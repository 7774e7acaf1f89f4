"""Microscaling formats: scales, packed elements, and the scale of a block (isa.md 3.1, 11.2, 11.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilelang.numerics.casts import DECODE
from tilelang.numerics.prim import (
    Formula,
    Value,
    as_f32,
    as_i32,
    as_u32,
    as_u64,
    bits_f32,
    bits_f64,
    f32_bits,
    select,
)

__all__ = [
    "ELEMENTS",
    "FORMULAS",
    "LARGEST_SAFE_CODE",
    "block_code",
    "e2m1_value",
    "inverse_scale",
    "joint_scale",
    "scale_row",
    "scale_value",
    "unpack",
]

# Packed format -> format of one element, its bits, and the exponent of its largest power of two.
ELEMENTS = {
    "float8_e4m3fn_x4": ("float8_e4m3fn", 8, 8),
    "float8_e5m2_x4": ("float8_e5m2", 8, 15),
    "float4_e2m1fn_x4": ("float4_e2m1fn", 4, 2),
}
# Up to this code an element times its scale stays below 2^128: the largest elements are below 2^16.
LARGEST_SAFE_CODE = 238

_ONE, _TWO, _THREE, _SEVEN = (np.uint32(n) for n in (1, 2, 3, 7))
_EXPONENT, _NAN_CODE = np.uint32(23), np.uint32(255)
_NAN, _SMALLEST = np.uint32(0x7FC00000), np.uint32(0x00400000)
_HALF, _ZERO, _UNIT, _LIFT = np.float32(0.5), np.float32(0), np.float32(1), np.float32(2.0**100)
_INFINITY = np.float32(np.inf)
_SIGN, _EIGHT = np.uint32(31), np.uint32(3)
_LIFTED, _NOTHING, _BIAS = np.int32(100), np.int32(0), np.int32(127)
_LOWEST, _HIGHEST, _ALL_ONES = np.int32(0), np.int32(254), np.int32(255)
_WIDE_BIAS, _WIDE_EXPONENT = np.uint64(1023 - 254), np.uint64(52)
_WIDE_NAN = np.uint64(0x7FF8000000000000)
_LAST = np.uint32(254)


def scale_value(code: Value) -> Value:
    """The float32 2^(code - 127) of a uint32 `code`; NaN for 255."""
    power = as_u32(code << _EXPONENT)
    bits = select(code == _NAN_CODE, _NAN, select(code == np.uint32(0), _SMALLEST, power))
    return bits_f32(bits)


def joint_scale(first: Value, second: Value) -> Value:
    """The float64 2^(first + second - 254) of two uint32 codes; NaN when one of them is 255."""
    missing = (first == _NAN_CODE) | (second == _NAN_CODE)
    bits = as_u64(as_u64(as_u64(first) + as_u64(second) + _WIDE_BIAS) << _WIDE_EXPONENT)
    return bits_f64(select(missing, _WIDE_NAN, bits))


def inverse_scale(code: Value) -> Value:
    """The float32 2^(127 - code) of a uint32 `code` up to 253."""
    return bits_f32(as_u32(as_u32(_LAST - code) << _EXPONENT))


def e2m1_value(code: Value) -> Value:
    """The float32 of a float4_e2m1fn in the low 4 bits of a uint32."""
    exponent, fraction = as_u32((code >> _ONE) & _THREE), as_u32(code & _ONE)
    shift = as_u32(select(exponent == np.uint32(0), _ONE, exponent) - _ONE)
    halves = select(exponent == np.uint32(0), fraction, as_u32((fraction + _TWO) << shift))
    magnitude = as_f32(halves) * _HALF
    return bits_f32(as_u32(f32_bits(magnitude) | as_u32((code >> _EIGHT) << _SIGN)))


def block_code(largest: Value, top: Value) -> Value:
    """The scale code (int32) of a block whose largest magnitude is the float32 `largest`: floor(log2) less `top`.

    255 for infinities and NaN. `top` is the exponent that the largest scaled element gets, an int32.
    """
    small = largest < _UNIT
    lifted = select(small, largest * _LIFT, largest)
    exponent = as_i32(as_i32(f32_bits(lifted) >> _EXPONENT) - _BIAS - select(small, _LIFTED, _NOTHING))
    code = as_i32(exponent - top + _BIAS)
    code = select(code < _LOWEST, _LOWEST, select(code > _HIGHEST, _HIGHEST, code))
    code = select(largest == _ZERO, _LOWEST, code)
    return select(largest < _INFINITY, code, _ALL_ONES)


def scale_row(partition: int) -> int:
    """Row of the scale tensor for `partition` of the data."""
    return 32 * (partition // 32) + partition % 32 // 8


def unpack(bits: NDArray[np.generic], packed: str) -> NDArray[np.float32]:
    """Elements of packed `bits` as float32, one more dim of 4 at the end."""
    name, width, _ = ELEMENTS[packed]
    words = np.asarray(bits).astype(np.uint32)[..., None] >> np.arange(0, 4 * width, width, dtype=np.uint32)
    codes = words & np.uint32((1 << width) - 1)
    found: NDArray[np.float32] = e2m1_value(codes) if width == 4 else DECODE[name](codes.astype(np.uint8))
    return found


FORMULAS: tuple[Formula, ...] = (scale_value, joint_scale, inverse_scale, e2m1_value, block_code)
