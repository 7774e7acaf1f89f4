"""Element-wise micro-ops against NumPy, written from isa.md section 4."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.execute.vector_engine import F32, apply, assert_same_bits, bits, read, run, sample, tile, words, write
from tilelang.dtypes import FORMATS
from tilelang.execute import layout
from tilelang.numerics import alu, functions

NAN = F32(np.nan)


def quiet(values: np.ndarray) -> np.ndarray:
    """Float32 with one NaN."""
    return np.where(np.isnan(values), NAN, values).astype(F32)


def flag(condition: np.ndarray) -> np.ndarray:
    return condition.astype(F32)


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    tie = np.where(np.signbit(a), b, a)
    return np.where(np.isnan(a) | np.isnan(b), NAN, np.where(a == b, tie, np.maximum(a, b)))


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda a, b: quiet(a + b),
    "subtract": lambda a, b: quiet(a - b),
    "multiply": lambda a, b: quiet(a * b),
    "maximum": maximum,
    "minimum": lambda a, b: -maximum(-a, -b),
    "equal": lambda a, b: flag(a == b),
    "not_equal": lambda a, b: flag(a != b),
    "greater": lambda a, b: flag(a > b),
    "greater_equal": lambda a, b: flag(a >= b),
    "less": lambda a, b: flag(a < b),
    "less_equal": lambda a, b: flag(a <= b),
    "logical_and": lambda a, b: flag((a != 0) & (b != 0)),
    "logical_or": lambda a, b: flag((a != 0) | (b != 0)),
    "logical_xor": lambda a, b: flag((a != 0) ^ (b != 0)),
    "abs_max": lambda a, b: np.where(np.abs(a) > np.abs(b), a, b),
    "abs_min": lambda a, b: np.where(np.abs(a) < np.abs(b), a, b),
    "divide": lambda a, b: quiet(a / b),
}
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": lambda a: quiet(np.abs(a)),
    "square": lambda a: quiet(a * a),
    "relu": lambda a: quiet(np.where(a <= 0, F32(0), a)),
    "reciprocal": lambda a: quiet(F32(1) / a),
    "logical_not": lambda a: flag(a == 0),
    "bypass": lambda a: a,
    "negative": lambda a: -a,
    "ceil": lambda a: quiet(np.ceil(a)),
    "floor": lambda a: quiet(np.floor(a)),
    "trunc": lambda a: quiet(np.trunc(a)),
}


def same_numbers(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, except that any NaN equals any other."""
    number = ~np.isnan(expected)
    assert np.array_equal(np.isnan(got), ~number)
    assert_same_bits(got[number], expected.astype(F32)[number])


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize(("rows", "columns", "threads"), [(128, 300, 1), (5, 1, 2), (77, 513, 4)])
def test_binary(op: str, rows: int, columns: int, threads: int) -> None:
    rng = np.random.default_rng(1)
    a, b, v = sample(rng, (rows, columns), 0.3), sample(rng, (rows, columns), 0.3), sample(rng, (rows, 1), 0.3)
    b[:, ::5] = a[:, ::5]
    with np.errstate(all="ignore"):
        same_numbers(apply([layout.uop(f"binary.{op}.tt", 2, 0, 1)], [a, b], 2, threads=threads), BINARY[op](a, b))
        if columns > 1:
            wide = np.broadcast_to(v, a.shape)
            got = apply([layout.uop(f"binary.{op}.tv", 2, 0, 1)], [a, v], 2, threads=threads)
            same_numbers(got, BINARY[op](a, wide))
            got = apply([layout.uop(f"binary.{op}.vt", 2, 1, 0)], [a, v], 2, threads=threads)
            same_numbers(got, BINARY[op](wide, a))


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str) -> None:
    a = sample(np.random.default_rng(2), (66, 401), 0.3)
    with np.errstate(all="ignore"):
        same_numbers(apply([layout.uop(f"unary.{op}", 1, 0)], [a], 1), UNARY[op](a))


def same_as_formula(name: str, formula: Callable[..., np.ndarray], *arrays: np.ndarray) -> None:
    kinds = ".tt" if len(arrays) == 2 else ""
    got = apply([layout.uop(name + kinds, 2, *range(len(arrays)))], arrays, 2)
    with np.errstate(all="ignore"):
        expected = formula(*(np.ascontiguousarray(array).reshape(-1) for array in arrays)).reshape(got.shape)
    assert_same_bits(got, expected)


@pytest.mark.parametrize("op", alu.BINARY)
def test_compiled_binary_has_the_bits_of_its_formula(op: str) -> None:
    rng = np.random.default_rng(3)
    same_as_formula(f"binary.{op}", alu.BINARY[op], sample(rng, (64, 200), 0.3), sample(rng, (64, 200), 0.3))


@pytest.mark.parametrize("op", alu.UNARY)
def test_compiled_unary_has_the_bits_of_its_formula(op: str) -> None:
    same_as_formula(f"unary.{op}", alu.UNARY[op], sample(np.random.default_rng(4), (64, 200), 0.3))


@pytest.mark.parametrize("name", functions.ACTIVATIONS)
def test_compiled_activation_has_the_bits_of_its_formula(name: str) -> None:
    rng = np.random.default_rng(5)
    arrays = [sample(rng, (64, 300), 0.1) for _ in range(2 if name == "prelu" else 1)]
    same_as_formula(f"activation.{name}", functions.ACTIVATIONS[name], *arrays)


@pytest.mark.parametrize(
    ("name", "function"), [("exp", math.exp), ("tanh", math.tanh), ("erf", math.erf), ("arctan", math.atan)]
)
def test_activation_is_close_to_the_mathematical_function(name: str, function: Callable[[float], float]) -> None:
    x = np.linspace(-9, 9, 999, dtype=F32)[None]
    got = apply([layout.uop(f"activation.{name}", 1, 0)], [x], 1)
    expected = np.array([[function(float(value)) for value in x[0]]])
    assert np.all(np.abs(got - expected) <= 2 * np.spacing(np.abs(expected).astype(F32)))


def rounded(value: Fraction) -> np.float32:
    """A fraction to the nearest float32, ties to even."""
    low = F32(float(value))
    candidates = [np.nextafter(low, F32(-np.inf)), low, np.nextafter(low, F32(np.inf))]
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - value), int(bits(np.array([c]))[0]) & 1))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=5)
def test_scale_and_bias_round_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((8, 40)) * 2.0 ** rng.integers(-6, 7, (8, 40))).astype(F32)
    scale = rng.standard_normal((8, 1)).astype(F32)
    # Near cancellation, where two roundings differ from one.
    bias = np.array([-F32(x[p, 0] * scale[p, 0]) for p in range(8)], F32)[:, None]
    got = apply([layout.uop("fma.vv", 3, 0, 1, 2)], [x, scale, bias], 3)
    for p in range(8):
        for f in range(40):
            exact = Fraction(float(x[p, f])) * Fraction(float(scale[p, 0])) + Fraction(float(bias[p, 0]))
            assert got[p, f] == rounded(exact)


def test_scale_and_bias_give_one_nan() -> None:
    x = np.array([[np.inf, -np.inf, np.nan, 1]], F32)
    ports = [layout.scalar(1, 0.0), layout.scalar(2, 1.0), layout.uop("fma.vv", 3, 0, 1, 2)]
    assert_same_bits(apply(ports, [x], 3), np.array([[NAN, NAN, NAN, 1]], F32))


INTEGER: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "logical_and": lambda a, b: (a != 0) & (b != 0),
    "logical_or": lambda a, b: (a != 0) | (b != 0),
    "logical_xor": lambda a, b: (a != 0) ^ (b != 0),
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("item", ["int32", "uint32"])
@pytest.mark.parametrize("op", INTEGER)
def test_integers_are_exact_and_wrap(op: str, item: str) -> None:
    rng = np.random.default_rng(8)
    dtype = np.dtype(item)
    a = rng.integers(0, 2**32, (31, 500), np.uint64).astype(np.uint32).view(dtype)
    b = rng.integers(0, 2**32, (31, 500), np.uint64).astype(np.uint32).view(dtype)
    a[:, ::4], b[:, 1::5], b[:, ::7] = a[:, ::4] >> 28, 0, a[:, ::7]
    v, out = b[:, :1].copy(), np.zeros_like(a)
    ports = [
        *layout.read_integer(0, item, 4, words(a, item)),
        *layout.read_integer(1, item, 4, words(b, item)),
        *layout.read_integer(2, item, 4, words(v, item), columns=1),
    ]
    for kinds, x, y, left, right in (("tt", 0, 1, a, b), ("tv", 0, 2, a, v), ("vt", 2, 0, v, a)):
        end = [layout.uop(f"integer.{op}.{item}.{kinds}", 3, x, y), *layout.write_integer(3, item, 4, words(out, item))]
        run([*ports, *end], 31, 500, threads=2)
        assert np.array_equal(out, INTEGER[op](left, right).astype(dtype))


@pytest.mark.parametrize("name", ["uint8", "int8", "uint16", "int16", "uint32", "int32"])
@pytest.mark.parametrize("op", ["left_shift", "right_shift", "bitwise_xor", "invert"])
def test_bit_operators_work_on_the_bits_of_any_width(op: str, name: str) -> None:
    """Shifts are logical; a count outside [0, width) gives 0 (isa.md section 4.1)."""
    rng = np.random.default_rng(9)
    dtype = np.dtype(name)
    width = 8 * dtype.itemsize
    a = rng.integers(0, 2**width, (6, 300), np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    b = rng.integers(-3, width + 3, (6, 300)).astype(dtype)
    out = tile(6, (300,), name)
    size = dtype.itemsize
    operator = "integer.invert.uint32" if op == "invert" else f"integer.{op}.uint32.tt"
    run(
        [
            *layout.read_bits(0, size, words(a, name)),
            *layout.read_bits(1, size, words(b, name)),
            layout.uop(operator, 2, 0, *([] if op == "invert" else [1])),
            *layout.write_integer(2, name, size, words(out, name)),
        ],
        6,
        300,
    )
    for got, x, count in zip(bits(out).flat, bits(a).flat, bits(b).flat):
        x, count, mask = int(x), int(count), 2**width - 1
        shift = count if count < width else width
        expected = {
            "left_shift": x << shift & mask,
            "right_shift": x >> shift,
            "bitwise_xor": x ^ count,
            "invert": ~x & mask,
        }
        assert got == expected[op]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["uint8", "bfloat16", "float32"])
def test_select_keeps_bits(name: str, reverse: bool) -> None:
    rng = np.random.default_rng(10)
    size = FORMATS[name].itemsize
    raw = [rng.integers(0, 256, (50, 320, size), np.uint8).view(f"u{size}")[..., 0] for _ in range(2)]
    predicate, out = rng.integers(0, 3, (50, 320)).astype(np.uint8), np.zeros_like(raw[0])
    item = f"uint{8 * size}"
    for kinds in ("tt", "tv"):
        if kinds == "tv":
            other = layout.gather(1, size, words(raw[1], item), columns=1)
            expected = np.where((predicate != 0) ^ reverse, raw[0], raw[1][:, :1])
        else:
            other = layout.read_items(1, size, words(raw[1], item))[0]
            expected = np.where((predicate != 0) ^ reverse, raw[0], raw[1])
        run(
            [
                *layout.read_items(0, size, words(raw[0], item)),
                other,
                *layout.read_bits(2, 1, words(predicate, "uint8")),
                layout.uop(f"select.{size}.{kinds}", 3, 2, 0, 1, int(reverse)),
                layout.scatter(3, size, words(out, item)),
            ],
            50,
            320,
            threads=2,
        )
        assert np.array_equal(out, expected)


@given(
    pattern=st.lists(st.tuples(st.integers(-(2**20), 2**20), st.integers(1, 9)), min_size=1, max_size=4),
    offset=st.integers(-(2**31), 2**31 - 1),
    multiplier=st.integers(-(2**31), 2**31 - 1),
    threads=st.sampled_from((1, 2)),
)
@settings(max_examples=12)
def test_affine_values_wrap(pattern: list[tuple[int, int]], offset: int, multiplier: int, threads: int) -> None:
    counts = [count for _, count in pattern]
    columns = math.prod(counts)
    out = np.zeros((40, columns), np.int32)
    ports = [layout.affine(0, pattern, offset, multiplier), layout.scatter(0, 4, words(out, "int32"))]
    run(ports, 40, columns, threads=threads, partition=64)
    index = np.stack(np.unravel_index(np.arange(columns), counts)).astype(np.int64)
    steps = np.array([step for step, _ in pattern], np.int64)
    wide = offset + np.arange(40, dtype=np.int64)[:, None] * multiplier + (steps[:, None] * index).sum(0)
    assert np.array_equal(out, wide.astype(np.int32))


def test_causal_mask_from_affine_values() -> None:
    """affine_select: pattern [[-1, F]], multiplier 1, greater_equal keeps f <= p (isa.md section 14.2)."""
    x = sample(np.random.default_rng(11), (128, 300), 0).astype(FORMATS["bfloat16"].host)
    out = np.zeros_like(x)
    run(
        [
            layout.affine(0, [(-1, 300)], 0, 1),
            layout.fill(1, 4, 0, columns=1),
            layout.uop("integer.greater_equal.int32.tv", 2, 0, 1),
            *layout.read_items(3, 2, words(x, "bfloat16")),
            layout.fill(4, 2, 0xFF80, columns=1),
            layout.uop("select.2.tv", 5, 2, 3, 4, 0),
            layout.scatter(5, 2, words(out, "bfloat16")),
        ],
        128,
        300,
    )
    keep = np.arange(300)[None] <= np.arange(128)[:, None]
    assert np.array_equal(bits(out), np.where(keep, bits(x), 0xFF80))


def test_range_select_from_column_numbers() -> None:
    """isa.md section 12.11: both comparisons of f32(range_start + f) with bounds of the row."""
    rng = np.random.default_rng(12)
    x = sample(rng, (64, 400), 0)
    low, high = rng.integers(0, 200, (64, 1)).astype(F32), rng.integers(200, 460, (64, 1)).astype(F32)
    out, lowest = np.zeros_like(x), float(np.finfo(F32).min)
    run(
        [
            *read(0, x, "float32"),
            *read(1, low, "float32", 1),
            *read(2, high, "float32", 1),
            layout.affine(3, [(1, 400)], 40, 0),
            layout.uop("decode.int32", 4, 3, 0),
            layout.uop("binary.greater_equal.tv", 5, 4, 1),
            layout.uop("binary.less.tv", 6, 4, 2),
            layout.uop("binary.logical_and.tt", 7, 5, 6),
            layout.scalar(8, lowest),
            layout.uop("select.4.tv", 9, 7, 0, 8, 0),
            *write(9, out, "float32"),
        ],
        64,
        400,
    )
    i = (40 + np.arange(400)).astype(F32)[None]
    assert np.array_equal(out, np.where((i >= low) & (i < high), x, F32(lowest)))
