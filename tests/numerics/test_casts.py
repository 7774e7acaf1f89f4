"""Conversions against ml_dtypes, gfloat and plain Python: decoding exhaustive, encoding at every rounding boundary."""

from __future__ import annotations

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.numerics.oracles import bits, encoded, sample, specials, sweep
from tilelang.dtypes import FORMATS
from tilelang.numerics import casts

NARROW_FLOATS = ["bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"]
INTEGERS = ["int8", "int16", "int32", "uint8", "uint16", "uint32", "bool"]
GFLOAT = {
    "bfloat16": gfloat.formats.format_info_bfloat16,
    "float16": gfloat.formats.format_info_binary16,
    "float8_e4m3": gfloat.FormatInfo(
        name="e4m3",
        k=8,
        precision=4,
        bias=7,
        is_signed=True,
        domain=gfloat.Domain.Extended,
        has_nz=True,
        num_high_nans=7,
        has_subnormals=True,
        is_twos_complement=False,
    ),
    "float8_e4m3fn": gfloat.formats.format_info_ocp_e4m3,
    "float8_e5m2": gfloat.formats.format_info_ocp_e5m2,
}
UNCONVERTIBLE = [name for name in FORMATS if name not in casts.ENCODE]


def every_code(name: str) -> NDArray[np.unsignedinteger]:
    return np.arange(256 ** FORMATS[name].itemsize, dtype=np.uint64).astype(FORMATS[name].carrier)


def neighbours(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Float32 x with the float32 below and above."""
    up, down = np.float32(np.inf), np.float32(-np.inf)
    with np.errstate(all="ignore"):
        return np.concatenate([x, np.nextafter(x, up), np.nextafter(x, down)])


def boundaries(name: str) -> NDArray[np.float32]:
    """All finite values of a format, midpoints between them, half a step above the largest, and their neighbours."""
    values = casts.decode(every_code(name), name)
    values = np.unique(values[np.isfinite(values)].astype(np.float64))
    top = values[-1] + (values[-1] - values[-2]) / 2
    middles = np.concatenate([(values[1:] + values[:-1]) / 2, [top, -top]])
    with np.errstate(over="ignore"):
        points = np.concatenate([values, middles]).astype(np.float32)
    return np.concatenate([neighbours(points), -np.zeros(1, np.float32), specials()])


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_decode_is_exhaustively_ml_dtypes(name: str) -> None:
    codes = every_code(name)
    expected = codes.view(FORMATS[name].host).astype(np.float32)
    found = casts.decode(codes, name)
    nan = np.isnan(expected)
    assert (np.isnan(found) == nan).all()
    assert (bits(found)[~nan] == bits(expected)[~nan]).all()
    assert (np.signbit(found) == np.signbit(expected)).all()


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_decode_agrees_with_gfloat(name: str) -> None:
    codes = every_code(name)[:: 1 if FORMATS[name].itemsize == 1 else 97]
    expected = np.array([gfloat.decode_float(GFLOAT[name], int(code)).fval for code in codes], np.float32)
    assert np.array_equal(casts.decode(codes, name), expected, equal_nan=True)


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_encode_at_every_rounding_boundary(name: str) -> None:
    x = boundaries(name)
    found, expected = casts.encode(x, name), encoded(x, name)
    wrong = np.flatnonzero(found != expected)
    assert wrong.size == 0, (x[wrong[:5]], found[wrong[:5]], expected[wrong[:5]])


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_encode_of_any_float32(name: str) -> None:
    x = sample(200_000, 1)
    assert (casts.encode(x, name) == encoded(x, name)).all()


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_values_survive_a_round_trip(name: str) -> None:
    codes = every_code(name)
    values = casts.decode(codes, name)
    assert (casts.encode(values, name) == codes)[~np.isnan(values)].all()


def test_float32_keeps_numbers_and_makes_nans_canonical() -> None:
    x = sample(100_000, 2)
    found = casts.encode(x, "float32")
    nan = np.isnan(x)
    assert (found == bits(x))[~nan].all()
    assert (found[nan] == ((bits(x)[nan] & 0x80000000) | 0x7FC00000)).all()
    assert (bits(casts.decode(bits(x), "float32")) == bits(x)).all()


def test_tfloat32_rounds_to_ten_bits() -> None:
    x = neighbours(sample(100_000, 3))
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        quantum = 2.0 ** (np.maximum(np.frexp(wide)[1], -125) - 11)
        expected = (np.rint(wide / quantum) * quantum).astype(np.float32)
    found = casts.decode(casts.encode(x, "tfloat32"), "tfloat32")
    finite = np.isfinite(x)
    assert (bits(found) == bits(expected))[finite].all()
    assert (bits(found)[np.isinf(x)] == bits(x)[np.isinf(x)]).all()
    assert (bits(found)[np.isnan(x)] & 0x7FFFFFFF == 0x7FC00000).all()
    assert (casts.encode(x, "tfloat32") & 0x1FFF == 0).all()


def integer_oracle(x: NDArray[np.float32], lo: int, hi: int) -> list[int]:
    def one(value: float) -> int:
        if np.isnan(value):
            return 0
        return round(min(max(value, lo), hi))  # Python rounds to nearest even

    return [one(value) for value in x.tolist()]


@pytest.mark.parametrize("name", INTEGERS)
def test_encode_of_integers_rounds_and_saturates(name: str) -> None:
    fmt = FORMATS[name]
    lo, hi = (0, 1) if name == "bool" else (np.iinfo(fmt.carrier).min, np.iinfo(fmt.carrier).max)
    near = np.arange(-70_000, 70_000, 0.5)[:: 1 if fmt.itemsize == 2 else 37]
    edges = np.array([lo, lo - 1, lo - 0.5, lo + 0.5, hi, hi - 0.5, hi + 0.5, hi + 1, 0.5, 1.5, 2.5, -0.5, -1.5])
    x = np.concatenate([neighbours(np.concatenate([near, edges]).astype(np.float32)), sample(5000, 4)])
    found = casts.encode(x, name)
    assert found.dtype == fmt.carrier
    assert found.tolist() == integer_oracle(x, lo, hi)


@pytest.mark.parametrize("name", INTEGERS)
def test_decode_of_integers_rounds_to_nearest_even(name: str) -> None:
    fmt = FORMATS[name]
    random = np.random.default_rng(5).integers(0, 2**32, 5000, dtype=np.uint32)
    edges = np.array([0, 1, 2**24 - 1, 2**24, 2**24 + 1, 2**24 + 3, 2**31 - 1, 2**31, 2**32 - 1, 2**25 + 2], np.uint32)
    carrier = np.concatenate([edges, random]).astype(fmt.carrier)
    # Double rounding is no danger: every 32-bit integer is exact in float64.
    assert (bits(casts.decode(carrier, name)) == bits(carrier.astype(np.float64).astype(np.float32))).all()


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("bfloat16", 1 + 2**-8, 0x3F80),
        ("bfloat16", 1 + 3 * 2**-8, 0x3F82),
        ("bfloat16", 3.4e38, 0x7F80),
        ("bfloat16", 1e-40, 0x0001),
        ("float16", 65519, 0x7BFF),
        ("float16", 65520, 0x7C00),
        ("float16", 2**-25, 0),
        ("float16", 1.5 * 2**-24, 2),
        ("float8_e4m3", 247.9, 0x77),
        ("float8_e4m3", 248, 0x78),
        ("float8_e4m3", 2**-10, 0),
        ("float8_e4m3", 1.01 * 2**-10, 1),
        ("float8_e4m3fn", 448, 0x7E),
        ("float8_e4m3fn", 464, 0x7E),
        ("float8_e4m3fn", 465, 0x7F),
        ("float8_e5m2", 61439, 0x7B),
        ("float8_e5m2", 61440, 0x7C),
        ("float8_e5m2", 1.125, 0x3C),
        ("float8_e5m2", 1.375, 0x3E),
        ("uint8", 0.5, 0),
        ("uint8", 1.5, 2),
        ("uint8", 2.5, 2),
        ("uint8", 254.5, 254),
        ("uint8", 300, 255),
        ("uint8", -3, 0),
        ("int8", -1.5, -2),
        ("int8", 254.5, 127),
        ("int32", np.nan, 0),
        ("int32", np.inf, 2**31 - 1),
        ("uint32", -np.inf, 0),
        ("bool", 7, 1),
    ],
)
def test_conformance_vectors(name: str, value: float, code: int) -> None:
    assert casts.encode(np.array([value], np.float32), name).tolist() == [code]


def test_cast_goes_through_float32_unless_the_formats_are_equal() -> None:
    wide = np.array([2**24 + 1], np.int32)
    assert casts.cast(wide, "int32", "int32").tolist() == [2**24 + 1]
    assert casts.cast(wide, "int32", "float32").view(np.float32).tolist() == [2.0**24]
    assert casts.cast(wide, "int32", "uint32").tolist() == [2**24]
    payload = np.array([0x7F800001], np.uint32)
    assert casts.cast(payload, "float32", "float32").tolist() == payload.tolist()
    assert casts.cast(payload, "float32", "bfloat16").tolist() == [0x7FC0]


def test_cast_copies() -> None:
    carrier = np.arange(4, dtype=np.uint8)
    result = casts.cast(carrier, "uint8", "uint8")
    result[0] = 9
    assert carrier[0] == 0


def test_shapes_and_host_arrays() -> None:
    host = np.ones((2, 3, 4), ml_dtypes.bfloat16)
    assert casts.decode(host, "bfloat16").shape == (2, 3, 4)
    assert casts.decode(host[:, ::2, 1:3], "bfloat16").tolist() == np.ones((2, 2, 2)).tolist()
    assert casts.encode(np.float32(1).reshape(()), "float16").shape == ()


@pytest.mark.parametrize("name", UNCONVERTIBLE)
def test_packed_and_scale_formats_have_no_conversion(name: str) -> None:
    carrier = np.zeros(2, FORMATS[name].carrier)
    with pytest.raises(TypeError, match=f"{name} has no element-wise conversion"):
        casts.decode(carrier, name)
    with pytest.raises(TypeError, match=f"{name} has no element-wise conversion"):
        casts.encode(np.zeros(2, np.float32), name)
    assert (casts.cast(carrier, name, name) == carrier).all()


def test_wrong_types_are_errors() -> None:
    with pytest.raises(TypeError, match="bits of bfloat16 must have dtype uint16"):
        casts.decode(np.zeros(2, np.uint8), "bfloat16")
    with pytest.raises(TypeError, match="must be float32, not float64"):
        casts.encode(np.zeros(2), "bfloat16")
    with pytest.raises(TypeError, match="not a tile dtype"):
        casts.encode(np.zeros(2, np.float32), "float7")


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_encode_sweep(name: str) -> None:
    x = sweep(251)
    assert (casts.encode(x, name) == encoded(x, name)).all()
