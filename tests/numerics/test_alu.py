"""Operators against NumPy, C semantics and plain Python integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.numerics.oracles import bits, round_f32, sample, specials
from tilelang.numerics import alu

NAN_BITS = 0x7FC00000
INF = math.inf
F32 = np.float32
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def pairs(count: int = 20_000) -> tuple[Any, Any]:
    """All pairs of special values, and random ones."""
    x, y = (grid.ravel() for grid in np.meshgrid(specials(), specials()))
    return np.concatenate([x, sample(count, 1)]), np.concatenate([y, sample(count, 2)])


def assert_same(found: Any, expected: Any) -> None:
    """Equal bits, zeros' signs included, and NaNs canonical."""
    expected = np.asarray(expected, np.float32)
    assert found.dtype == np.float32
    canonical = np.where(np.isnan(expected), np.uint32(NAN_BITS), bits(expected))
    wrong = np.flatnonzero(bits(found) != canonical)
    assert wrong.size == 0, (wrong[:5], found[wrong[:5]], expected[wrong[:5]])


def test_tables_are_complete() -> None:
    assert set(alu.BINARY) == {
        *"add subtract multiply maximum minimum equal not_equal greater greater_equal less less_equal".split(),
        *"logical_and logical_or logical_xor power abs_max abs_min divide fmod mod".split(),
    }
    assert set(alu.UNARY) == {
        *"abs square relu rsqrt reciprocal logical_not bypass ceil floor trunc negative".split(),
    }
    assert not alu.SIMULATE_ONLY - set(alu.BINARY) - set(alu.UNARY)


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("add", np.add),
        ("subtract", np.subtract),
        ("multiply", np.multiply),
        ("divide", np.divide),
        ("fmod", np.fmod),
        ("equal", np.equal),
        ("not_equal", np.not_equal),
        ("greater", np.greater),
        ("greater_equal", np.greater_equal),
        ("less", np.less),
        ("less_equal", np.less_equal),
        ("logical_and", np.logical_and),
        ("logical_or", np.logical_or),
        ("logical_xor", np.logical_xor),
    ],
)
def test_binary_operators_agree_with_numpy(name: str, oracle: Callable[..., Any]) -> None:
    a, b = pairs()
    assert_same(alu.BINARY[name](a, b), oracle(a, b))


def test_mod_has_the_sign_of_the_divisor() -> None:
    a, b = pairs()
    assert_same(alu.BINARY["mod"](a, b), np.mod(a, b))


def test_fmod_is_exact() -> None:
    a, b = sample(2000, 8), sample(2000, 9)
    keep = np.isfinite(a) & np.isfinite(b) & (b != 0)
    a, b = a[keep], b[keep]
    exact = [
        float(math.copysign(1, x)) * float(Fraction(abs(float(x))) % Fraction(abs(float(y)))) for x, y in zip(a, b)
    ]
    assert_same(alu.BINARY["fmod"](a, b), np.array(exact, np.float32))


@pytest.mark.parametrize(("name", "oracle"), [("maximum", max), ("minimum", min)])
def test_maximum_and_minimum_order_zeros_and_propagate_nan(name: str, oracle: Callable[..., float]) -> None:
    a, b = pairs(2000)

    def one(x: float, y: float) -> float:
        if math.isnan(x) or math.isnan(y):
            return math.nan
        return oracle((x, y), key=lambda value: (value, math.copysign(1, value)))

    expected = np.array([one(x, y) for x, y in zip(a.tolist(), b.tolist())])
    assert_same(alu.BINARY[name](a, b), expected)
    assert_same(alu.BINARY[name](b, a), expected)


def test_abs_max_and_abs_min_return_the_signed_operand_and_the_second_on_a_tie() -> None:
    a = np.array([-3, -3, 3, 2, -0.0], np.float32)
    b = np.array([2, 3, -3, -5, 0.0], np.float32)
    assert_same(alu.BINARY["abs_max"](a, b), [-3, 3, -3, -5, 0.0])
    assert_same(alu.BINARY["abs_min"](a, b), [2, 3, -3, 2, 0.0])


def test_reciprocal_and_square_are_correctly_rounded() -> None:
    x = sample(20_000, 3)
    assert_same(alu.UNARY["reciprocal"](x), np.float32(1) / x)
    assert_same(alu.UNARY["square"](x), x * x)
    few = x[np.isfinite(x) & (x != 0)][:500]
    assert_same(alu.UNARY["reciprocal"](few), [round_f32(1 / Fraction(float(v))) or np.copysign(0, v) for v in few])


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("abs", np.abs),
        ("ceil", np.ceil),
        ("floor", np.floor),
        ("trunc", np.trunc),
        ("logical_not", np.logical_not),
        ("rsqrt", lambda x: np.float32(1) / np.sqrt(x)),
        ("relu", lambda x: np.where(np.isnan(x), x, np.where(x > 0, x, np.float32(0)))),
    ],
)
def test_unary_operators_agree_with_numpy(name: str, oracle: Callable[..., Any]) -> None:
    x = np.concatenate([sample(20_000, 4), np.arange(-40, 40, 0.25, dtype=np.float32)])
    assert_same(alu.UNARY[name](x), oracle(x))


def test_bypass_and_negative_keep_the_sign_of_a_nan() -> None:
    x = sample(1000, 5)
    nan = np.isnan(x)
    sign = bits(x) & 0x80000000
    assert (bits(alu.UNARY["bypass"](x)) == np.where(nan, sign | NAN_BITS, bits(x))).all()
    assert (bits(alu.UNARY["negative"](x)) == np.where(nan, sign ^ (NAN_BITS | 0x80000000), bits(x) ^ 0x80000000)).all()


def test_power_has_the_special_cases_of_c() -> None:
    values = [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, INF, -INF, math.nan, 2.0**24, 3e38]
    a, b = (grid.ravel() for grid in np.meshgrid(np.array(values, F32), np.array([*values, 2.0**24 - 1], F32)))

    def one(x: float, y: float) -> float:
        try:
            return math.pow(x, y)  # C pow
        except OverflowError:
            odd = y == math.floor(y) and y % 2 == 1
            return -INF if x < 0 and odd else INF
        except ValueError:
            if x != 0:
                return math.nan
            odd = y == math.floor(y) and y % 2 == 1
            return math.copysign(INF, x) if odd else INF

    assert_same(alu.BINARY["power"](a, b), [one(x, y) for x, y in zip(a.tolist(), b.tolist())])


def test_power_is_within_an_ulp() -> None:
    rng = np.random.default_rng(6)
    a = np.exp(rng.uniform(-87, 88, 200_000)).astype(np.float32)
    b = (rng.uniform(-100, 88, 200_000) / np.log(a.astype(np.float64))).astype(np.float32)
    near = (1 + rng.normal(0, 1e-4, 200_000)).astype(np.float32)
    far = rng.normal(0, 1e5, 200_000).astype(np.float32)
    a, b = (
        np.concatenate([a, near, rng.uniform(0, 10, 1000).astype(F32)]),
        np.concatenate([b, far, np.full(1000, 2, F32)]),
    )
    exact = np.power(a.astype(np.float64), b)
    found = alu.BINARY["power"](a, b)
    finite = exact < 2.0**128 * (1 - 2.0**-25)
    error = np.abs(found.astype(np.float64) - exact)[finite] / np.spacing(exact[finite].astype(np.float32))
    assert error.max() < 0.51
    assert np.isinf(found[~finite]).all()


def test_identity() -> None:
    x = sample(1000, 7)
    for op in alu.REDUCTIONS & set(alu.BINARY) - {"subtract", "logical_and", "logical_or", "logical_xor"}:
        number = x[~np.isnan(x) & ((x != 0) | (op != "add"))]
        found = alu.BINARY[op](np.full_like(number, alu.identity(op)), number)
        assert_same(found, number)
    flags = np.array([0, 1], np.float32)
    for op in ("logical_and", "logical_or", "logical_xor"):
        assert_same(alu.BINARY[op](np.full_like(flags, alu.identity(op)), flags), flags)
    words = np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32)
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        assert (alu.INTEGER[op](np.full_like(words, alu.identity(op)), words) == words).all()
    assert alu.identity("subtract") == 0
    with pytest.raises(KeyError):
        alu.identity("power")


# --- integers ---

WORDS = [
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    127,
    128,
    255,
    2**15,
    2**16 - 1,
    2**24 + 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
]


def python_operator(name: str, width: int) -> Callable[[int, int], int]:
    mask = (1 << width) - 1
    return {
        "bitwise_and": lambda a, b: a & b,
        "bitwise_or": lambda a, b: a | b,
        "bitwise_xor": lambda a, b: a ^ b,
        "left_shift": lambda a, b: (a & mask) << b if 0 <= b < width else 0,
        "right_shift": lambda a, b: (a & mask) >> b if 0 <= b < width else 0,
        "invert": lambda a, b: ~a,
        "add": lambda a, b: a + b,
        "subtract": lambda a, b: a - b,
        "multiply": lambda a, b: a * b,
        "maximum": max,
        "minimum": min,
        "equal": lambda a, b: a == b,
        "not_equal": lambda a, b: a != b,
        "greater": lambda a, b: a > b,
        "greater_equal": lambda a, b: a >= b,
        "less": lambda a, b: a < b,
        "less_equal": lambda a, b: a <= b,
        "logical_and": lambda a, b: bool(a and b),
        "logical_or": lambda a, b: bool(a or b),
        "logical_xor": lambda a, b: bool(a) != bool(b),
    }[name]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("name", alu.INTEGER)
def test_integer_operators_wrap(name: str, dtype: type) -> None:
    a, b = (
        grid.ravel()
        for grid in np.meshgrid(np.array(WORDS, np.uint32).astype(dtype), np.array(WORDS, np.uint32).astype(dtype))
    )
    found = alu.INTEGER[name](a) if name == "invert" else alu.INTEGER[name](a, b)
    one = python_operator(name, 8 * np.dtype(dtype).itemsize)
    expected = np.array([int(one(x, y)) & 0xFFFFFFFF for x, y in zip(a.tolist(), b.tolist())], np.uint32).astype(dtype)
    assert found.dtype == dtype
    assert found.tolist() == expected.tolist()
