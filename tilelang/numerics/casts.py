"""Conversions between float32 and the storage formats.

`DECODE[name]` turns carrier bits into float32 (exact, except 32-bit integers, which round to nearest even).
`ENCODE[name]` turns float32 into carrier bits: nearest even, subnormals kept; a NaN becomes the quiet NaN of the
format with its sign; too large a value becomes Inf, or NaN in float8_e4m3fn, which has no Inf; integers saturate and
take 0 for NaN (isa.md sections 3.1 and 3.3).

`decode`, `encode` and `cast` apply them to NumPy arrays. The MX formats (packed and scale) have no element-wise
conversion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS, Format, format_of
from tilelang.numerics.prim import (
    Formula,
    Value,
    as_f32,
    as_f64,
    as_i8,
    as_i16,
    as_i32,
    as_u8,
    as_u16,
    as_u32,
    bits_f32,
    f32_bits,
    f64_bits,
    select,
)

__all__ = ["DECODE", "ENCODE", "FORMULAS", "cast", "copy_f32", "decode", "encode", "quiet"]

_ZERO = np.float32(0)
_NAN = np.float32(np.nan)
_SIGN_U = np.uint32(0x80000000)
_MAGNITUDE_U = np.uint32(0x7FFFFFFF)
_INF_U = np.uint32(0x7F800000)
_NAN_U = np.uint32(0x7FC00000)
_ONE_U = np.uint32(1)
# Adding 1.5 * 2^23 (2^52) leaves the nearest-even integer of x, modulo 2^22 (2^51), in the low bits of the sum.
_MAGIC = np.float32(1.5 * 2**23)
_MAGIC64 = np.float64(1.5 * 2**52)


def quiet(x: Value) -> Value:
    """`x`, any NaN replaced by 0x7fc00000: the form in which every arithmetic result leaves its formula.

    The sign and payload of a NaN that arithmetic makes or passes on depend on the machine and on operand order.
    """
    return select(x == x, x, _NAN)


def copy_f32(x: Value) -> Value:
    """`x`, any NaN replaced by the canonical one of the same sign."""
    bits = f32_bits(x)
    return bits_f32(select(x == x, bits, as_u32(as_u32(bits & _SIGN_U) | _NAN_U)))


def _encode_float32(x: Value) -> Value:
    return f32_bits(copy_f32(x))


def _decode_float32(bits: Value) -> Value:
    return bits_f32(bits)


_TF32_HALF = np.uint32(0xFFF)
_TF32_SHIFT = np.uint32(13)
_TF32_MASK = np.uint32(0xFFFFE000)


def _encode_tfloat32(x: Value) -> Value:
    bits = f32_bits(x)
    even = as_u32(as_u32(bits >> _TF32_SHIFT) & _ONE_U)
    rounded = as_u32(as_u32(as_u32(bits + _TF32_HALF) + even) & _TF32_MASK)
    return select(x == x, rounded, as_u32(as_u32(bits & _SIGN_U) | _NAN_U))


def _decode_tfloat32(bits: Value) -> Value:
    return bits_f32(as_u32(bits & _TF32_MASK))


_BF16_HALF = np.uint32(0x7FFF)
_BF16_SHIFT = np.uint32(16)


def _encode_bfloat16(x: Value) -> Value:
    bits = f32_bits(x)
    even = as_u32(as_u32(bits >> _BF16_SHIFT) & _ONE_U)
    rounded = as_u32(as_u32(bits + _BF16_HALF) + even)
    nan = as_u32(as_u32(bits & _SIGN_U) | _NAN_U)
    return as_u16(as_u32(select(x == x, rounded, nan) >> _BF16_SHIFT))


def _decode_bfloat16(bits: Value) -> Value:
    return bits_f32(as_u32(as_u32(bits) << _BF16_SHIFT))


def _make_encode(fmt: Format) -> Formula:
    """The encoder of a float format of 8 or 16 bits whose exponent is narrower than float32's."""
    shift = np.uint32(23 - fmt.mantissa)
    half = np.uint32((1 << (22 - fmt.mantissa)) - 1)
    rebias = np.uint32((127 - fmt.bias) << 23)
    min_normal = np.uint32((128 - fmt.bias) << 23)
    # In the binade of this power of two, one unit in the last place is the smallest subnormal of the format.
    magic = np.float32(2.0 ** (24 - fmt.bias - fmt.mantissa))
    magic_bits = np.uint32(magic.view(np.uint32))
    top = ((1 << fmt.exponent) - 1) << fmt.mantissa
    nan = np.uint32(top | 1 << (fmt.mantissa - 1) if fmt.has_inf else top | ((1 << fmt.mantissa) - 1))
    overflow = np.uint32(top) if fmt.has_inf else nan
    sign_shift = np.uint32(32 - 8 * fmt.itemsize)
    narrow = as_u8 if fmt.itemsize == 1 else as_u16

    def encode(x: Value) -> Value:
        bits = f32_bits(x)
        magnitude = as_u32(bits & _MAGNITUDE_U)
        even = as_u32(as_u32(magnitude >> shift) & _ONE_U)
        rounded = as_u32(as_u32(as_u32(magnitude - rebias) + half) + even)
        normal = as_u32(rounded >> shift)
        subnormal = as_u32(f32_bits(bits_f32(magnitude) + magic) - magic_bits)
        code = select(magnitude < min_normal, subnormal, normal)
        code = select(code < overflow, code, overflow)
        code = select(magnitude > _INF_U, nan, code)
        return narrow(code | as_u32(as_u32(bits & _SIGN_U) >> sign_shift))

    encode.__name__ = encode.__qualname__ = f"_encode_{fmt.name}"
    return encode


def _make_decode(fmt: Format) -> Formula:
    """The decoder of a float format of 8 or 16 bits whose exponent is narrower than float32's."""
    shift = np.uint32(23 - fmt.mantissa)
    rebias = np.uint32((127 - fmt.bias) << 23)
    min_normal = np.uint32(1 << fmt.mantissa)
    tiny = np.float32(2.0 ** (1 - fmt.bias - fmt.mantissa))
    top = ((1 << fmt.exponent) - 1) << fmt.mantissa
    last_finite = np.uint32(top - 1 if fmt.has_inf else top + (1 << fmt.mantissa) - 2)
    last_number = np.uint32(top) if fmt.has_inf else last_finite
    magnitude_mask = np.uint32((1 << (8 * fmt.itemsize - 1)) - 1)
    sign_shift = np.uint32(32 - 8 * fmt.itemsize)

    def decode(bits: Value) -> Value:
        code = as_u32(bits)
        magnitude = as_u32(code & magnitude_mask)
        normal = as_u32(as_u32(magnitude << shift) + rebias)
        # Through an integer: multiplying a float32 subnormal would be slow on some machines.
        subnormal = f32_bits(as_f32(as_i32(magnitude)) * tiny)
        wide = select(magnitude < min_normal, subnormal, normal)
        wide = select(magnitude > last_finite, _INF_U, wide)
        wide = select(magnitude > last_number, _NAN_U, wide)
        return bits_f32(as_u32(wide | as_u32(as_u32(code << sign_shift) & _SIGN_U)))

    decode.__name__ = decode.__qualname__ = f"_decode_{fmt.name}"
    return decode


def _make_encode_narrow_integer(name: str, lo: int, hi: int, narrow: Formula) -> Formula:
    """The encoder of integers in [lo, hi], at most 16 bits wide."""
    lowest = np.float32(lo)
    highest = np.float32(hi)

    def encode(x: Value) -> Value:
        number = select(x == x, x, _ZERO)
        number = select(number < lowest, lowest, number)
        number = select(number > highest, highest, number)
        return narrow(f32_bits(number + _MAGIC))

    encode.__name__ = encode.__qualname__ = f"_encode_{name}"
    return encode


def _make_encode_word(name: str, lo: int, hi: int, narrow: Formula) -> Formula:
    """The encoder of 32-bit integers in [lo, hi]."""
    lowest = np.float64(lo)
    highest = np.float64(hi)

    def encode(x: Value) -> Value:
        number = as_f64(select(x == x, x, _ZERO))
        number = select(number < lowest, lowest, number)
        number = select(number > highest, highest, number)
        return narrow(f64_bits(number + _MAGIC64))

    encode.__name__ = encode.__qualname__ = f"_encode_{name}"
    return encode


_SMALL_FLOATS = ("float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32", "bool")

DECODE: dict[str, Formula] = {
    "float32": _decode_float32,
    "tfloat32": _decode_tfloat32,
    "bfloat16": _decode_bfloat16,
    **{name: _make_decode(FORMATS[name]) for name in _SMALL_FLOATS},
    **{name: as_f32 for name in _INTEGERS},
}

ENCODE: dict[str, Formula] = {
    "float32": _encode_float32,
    "tfloat32": _encode_tfloat32,
    "bfloat16": _encode_bfloat16,
    **{name: _make_encode(FORMATS[name]) for name in _SMALL_FLOATS},
    "int8": _make_encode_narrow_integer("int8", -(2**7), 2**7 - 1, as_i8),
    "int16": _make_encode_narrow_integer("int16", -(2**15), 2**15 - 1, as_i16),
    "int32": _make_encode_word("int32", -(2**31), 2**31 - 1, as_i32),
    "uint8": _make_encode_narrow_integer("uint8", 0, 2**8 - 1, as_u8),
    "uint16": _make_encode_narrow_integer("uint16", 0, 2**16 - 1, as_u16),
    "uint32": _make_encode_word("uint32", 0, 2**32 - 1, as_u32),
    "bool": _make_encode_narrow_integer("bool", 0, 1, as_u8),
}

FORMULAS: tuple[Formula, ...] = (
    quiet,
    copy_f32,
    *(formula for formula in DECODE.values() if formula is not as_f32),
    *ENCODE.values(),
)


def _converter(table: dict[str, Formula], fmt: Any) -> tuple[Format, Formula]:
    found = format_of(fmt)
    if found.name not in table:
        raise TypeError(
            f"{found.name} has no element-wise conversion to or from float32; supported: {', '.join(table)}"
        )
    return found, table[found.name]


def _carrier_bits(bits: Any, fmt: Format) -> NDArray[Any]:
    array = np.asarray(bits)
    if array.dtype == fmt.carrier:
        return array
    if array.dtype == fmt.host:
        return array.view(fmt.carrier)
    raise TypeError(f"bits of {fmt.name} must have dtype {fmt.carrier} (or {fmt.host}), not {array.dtype}")


def decode(bits: Any, fmt: Any) -> NDArray[np.float32]:
    """The float32 values of `bits`, an array (any shape) of the carrier or host dtype of format `fmt`.

    Raises TypeError when the dtype is another one, or when `fmt` is a packed or scale format.
    """
    found, formula = _converter(DECODE, fmt)
    array = _carrier_bits(bits, found)
    return formula(array.reshape(-1)).reshape(array.shape)


def encode(values: Any, fmt: Any) -> NDArray[Any]:
    """The carrier bits of float32 `values` (any shape) in format `fmt`.

    Raises TypeError when `values` is not float32, or when `fmt` is a packed or scale format.
    """
    _, formula = _converter(ENCODE, fmt)
    array = np.asarray(values)
    if array.dtype != np.float32:
        raise TypeError(f"values to encode must be float32, not {array.dtype}")
    with np.errstate(all="ignore"):
        return formula(array.reshape(-1)).reshape(array.shape)


def cast(bits: Any, src: Any, dst: Any) -> NDArray[Any]:
    """Carrier bits of format `src` converted to carrier bits of format `dst`, through float32.

    Equal formats copy bits, so NaN payloads, and integers above 2^24, survive; every format can be copied.
    """
    source = format_of(src)
    if source == format_of(dst):
        return _carrier_bits(bits, source).copy()
    return encode(decode(bits, source), dst)
