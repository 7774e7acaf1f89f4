"""Reductions, accumulators and scans: the bits of a plain ascending loop in float32 (rulings.md 18)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.execute.test_vector_engine_elementwise import BINARY, INTEGER, same_numbers
from tests.execute.vector_engine import F32, assert_same_bits, read, run, sample, words, write
from tilelang.execute import layout
from tilelang.execute.layout import Uop

IDENTITY = {
    "add": 0.0,
    "subtract": 0.0,
    "multiply": 1.0,
    "maximum": -np.inf,
    "minimum": np.inf,
    "logical_and": 1.0,
    "logical_or": 0.0,
    "logical_xor": 0.0,
    "abs_max": 0.0,
    "abs_min": np.inf,
}
Formula = Callable[[np.ndarray, np.ndarray], np.ndarray]


def folded(x: np.ndarray, formula: Formula, start: np.ndarray | None) -> np.ndarray:
    """The ascending chain over the last axis, from `start` or from the first element."""
    with np.errstate(all="ignore"):
        state = x[..., 0] if start is None else np.broadcast_to(start, x.shape[:-1]).astype(x.dtype)
        for k in range(0 if start is not None else 1, x.shape[-1]):
            state = formula(state, x[..., k]).astype(x.dtype)
    return state


def factors(rng: np.random.Generator, shape: tuple[int, ...], special: float) -> np.ndarray:
    """Values near one, so that long products stay finite, with some zeros and, rarely, special values."""
    x = (1 + rng.standard_normal(shape) / 8).astype(F32)
    x[rng.random(shape) < 0.01] = 0
    chosen = rng.random(shape) < special
    x[chosen] = sample(rng, shape, 1.0)[chosen]
    return x


@pytest.mark.parametrize("from_first", [False, True])
@pytest.mark.parametrize("op", IDENTITY)
@given(
    rows=st.integers(1, 128),
    inner=st.sampled_from((1, 2, 9, 63, 64, 129, 256, 257, 700)),
    outer=st.sampled_from((1, 2, 5)),
    threads=st.sampled_from((1, 2, 3)),
    special=st.sampled_from((0.0, 0.002)),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=8)
def test_reduction(
    op: str, from_first: bool, rows: int, inner: int, outer: int, threads: int, special: float, seed: int
) -> None:
    x = factors(np.random.default_rng(seed), (rows, outer, inner), special)
    out = np.zeros((rows, outer), F32)
    start = None if from_first else layout.float_bits(IDENTITY[op])
    uops, segment = layout.reduction(op, 1, 0, 2, inner, outer * inner, start)
    run(
        [*read(0, x, "float32"), *uops, *write(1, out, "float32")],
        rows,
        outer * inner,
        threads=threads,
        segment=segment,
    )
    same_numbers(out, folded(x, BINARY[op], None if from_first else F32(IDENTITY[op])))


def test_a_long_sum_is_sequential() -> None:
    """Partial sums in lanes, or pairwise, would give other bits."""
    x = np.random.default_rng(1).standard_normal((128, 3000)).astype(F32)
    out = np.zeros((128, 1), F32)
    uops, segment = layout.reduction("add", 1, 0, 2, 3000, 3000, layout.float_bits(0.0))
    run([*read(0, x, "float32"), *uops, *write(1, out, "float32")], 128, 3000, segment=segment)
    expected = folded(x, BINARY["add"], F32(0))
    assert_same_bits(out[:, 0], expected)
    assert not np.array_equal(expected, x.sum(1))


@pytest.mark.parametrize("item", ["int32", "uint32"])
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize(("outer", "inner"), [(1, 300), (6, 50), (3, 400)])
def test_integer_reduction(op: str, item: str, outer: int, inner: int) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2**32, (19, outer, inner), np.uint64).astype(np.uint32).view(item)
    out = np.zeros((19, outer), item)
    uops, segment = layout.reduction(op, 1, 0, 2, inner, outer * inner, None, integer=item)
    run(
        [*layout.read_integer(0, item, 4, words(x, item)), *uops, *layout.write_integer(1, item, 4, words(out, item))],
        19,
        outer * inner,
        segment=segment,
        threads=2,
    )
    assert np.array_equal(out, folded(x, INTEGER[op], None))


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_accumulators_live_on_between_records(name: str) -> None:
    """`reduce` keeps what is there, `reset_reduce` starts anew; dst comes before the result (isa.md section 2.4)."""
    from tilelang.dtypes import FORMATS

    rng = np.random.default_rng(3)
    first, second = rng.standard_normal((2, 60, 520)).astype(F32)
    file, result = np.full((128, 1), 9, F32), np.zeros((60, 1), FORMATS[name].host)
    lanes = file[32:92]

    def record(x: np.ndarray, start: Uop, out: np.ndarray) -> None:
        run(
            [
                *read(0, x, "float32"),
                layout.uop("unary.square", 1, 0),
                *write(1, out, "float32"),
                start,
                layout.accumulate("add", 3, 1),
                layout.emit(4, 3),
                layout.scatter(4, 4, words(lanes, "float32")),
                layout.uop("unary.negative", 5, 4),
                *write(5, result, name),
            ],
            60,
            520,
            partition=32,
            threads=2,
        )

    outs = np.zeros_like(first), np.zeros_like(first)
    record(first, layout.scalar(3, 0.0), outs[0])
    record(second, layout.gather(3, 4, words(lanes, "float32"), columns=1), outs[1])
    total = folded(second * second, BINARY["add"], folded(first * first, BINARY["add"], F32(0)))
    assert_same_bits(lanes[:, 0], total)
    assert_same_bits(result[:, 0], (-total).astype(result.dtype))
    assert np.array_equal(outs[0], first * first)
    assert (file[:32] == 9).all() and (file[92:] == 9).all()


def scanned(op0: str, op1: str, a: np.ndarray, b: np.ndarray, start: np.ndarray, r0: bool, r1: bool) -> np.ndarray:
    """isa.md section 12.8, literally."""
    state, out = start, np.empty_like(a)
    with np.errstate(all="ignore"):
        for k in range(a.shape[1]):
            t = BINARY[op0](state, a[:, k]) if r0 else BINARY[op0](a[:, k], state)
            state = (BINARY[op1](b[:, k], t) if r1 else BINARY[op1](t, b[:, k])).astype(F32)
            out[:, k] = state
    return out


@pytest.mark.parametrize(("r0", "r1"), [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize(
    ("op0", "op1"),
    [
        ("multiply", "add"),
        ("subtract", "multiply"),
        ("add", "maximum"),
        ("logical_and", "subtract"),
        ("abs_max", "add"),
        ("add", "abs_min"),
    ],
)
def test_scan(op0: str, op1: str, r0: bool, r1: bool) -> None:
    rng = np.random.default_rng(4)
    for rows, columns, special in ((128, 300, 0.0), (3, 520, 0.01), (9, 1, 0.3)):
        a, b = factors(rng, (rows, columns), special), factors(rng, (rows, columns), special) - F32(1)
        start, out = rng.standard_normal((rows, 1)).astype(F32), np.zeros((rows, columns), F32)
        run(
            [
                *read(0, a, "float32"),
                *read(1, b, "float32"),
                *read(2, start, "float32", columns=1),
                layout.scan(op0, op1, 3, 0, 1, 2, r0, r1),
                *write(3, out, "float32"),
            ],
            rows,
            columns,
            threads=2,
        )
        same_numbers(out, scanned(op0, op1, a, b, start[:, 0], r0, r1))


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum"])
def test_cumulate_has_the_new_element_on_the_left(op: str) -> None:
    """isa.md section 12.7: `subtract` alternates, v - reg."""
    x = factors(np.random.default_rng(5), (70, 400), 0.0)
    out = np.zeros_like(x)
    run(
        [
            *read(0, x, "float32"),
            layout.scalar(1, IDENTITY[op]),
            layout.uop(f"cumulate.{op}", 2, 0, 1),
            *write(2, out, "float32"),
        ],
        70,
        400,
    )
    state = np.full(70, IDENTITY[op], F32)
    for k in range(400):
        state = BINARY[op](x[:, k], state).astype(F32)
        assert_same_bits(out[:, k], state)


def test_partition_reduction_is_a_group_reduction_over_a_transposed_view() -> None:
    x = np.random.default_rng(6).standard_normal((128, 90)).astype(F32)
    out = np.zeros((1, 90), F32)
    across = x.T[None]
    uops, segment = layout.reduction("add", 1, 0, 2, 128, 128 * 90, layout.float_bits(0.0))
    run([*read(0, across, "float32"), *uops, *write(1, out, "float32")], 1, 128 * 90, segment=segment, threads=2)
    assert_same_bits(out[0], folded(x.T, BINARY["add"], F32(0)))
