"""Reductions and scans along the free dimension: ascending, one rounding a step, 8 rows in flight to hide the latency.

An accumulator is a column register of one scalar per row, which lives across the blocks of a row (or of a segment).

| name | args | meaning |
|---|---|---|
| `fold.<op>` | acc src mode | acc = op(acc, x) for each x of the block; mode 1: the first x of the row starts acc |
| `fold_integer.<op>.<int32, uint32>` | acc src mode | the same on integers |
| `group.<op>` | dst src inner mode identity | one result per `inner` columns; the block then has 1/inner columns |
| `group_integer.<op>.<int32, uint32>` | dst src inner mode identity | the same on integers; identity as bits |
| `emit` | dst acc | after the last block of a segment, the block becomes one column, acc; before, an empty block |
| `scan.<op0>.<op1>` with `.r0`, `.r1` | dst a b acc | acc = op1(op0(a, acc), b); dst = acc; r0, r1 swap the operands |
| `cumulate.<op>` | dst src acc | acc = op(x, acc); dst = acc |

`emit` and `group` change the block for the micro-ops after them: they come after those that need all its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.execute.engines.blocks import arg, base, pitch
from tilelang.execute.engines.jit import LOAD, STORE, inline, load_f32, load_i64, store_f32, store_i64
from tilelang.execute.layout import C_COLUMN, C_COLUMNS, C_FIRST, C_LAST, C_ROWS, C_SEGMENT, C_TEMP
from tilelang.numerics import alu
from tilelang.numerics.casts import quiet

__all__ = ["source"]

# In these, a NaN stays a NaN whatever follows, so its canonical form can wait until the end of the chain: that halves
# the latency of a step.
_BARE: dict[str, Callable[..., Any]] = {
    "add": inline(lambda a, b: a + b),
    "subtract": inline(lambda a, b: a - b),
    "multiply": inline(lambda a, b: a * b),
}
# These take all NaNs for one.
_NAN_BLIND = frozenset({*_BARE, "maximum", "minimum"})
# These give the same bits in any order.
_ORDER_FREE = frozenset({"maximum", "minimum"})
_LANES = 64


@inline
def _same(x: Any) -> Any:
    return x


@inline
def _row_addresses(address: int, stride: int, row: int, last: int) -> tuple[int, ...]:
    """Addresses of 8 rows from `row`. Past the last, the last again: its chain runs beside the others for free."""
    return (
        address + row * stride,
        address + min(row + 1, last) * stride,
        address + min(row + 2, last) * stride,
        address + min(row + 3, last) * stride,
        address + min(row + 4, last) * stride,
        address + min(row + 5, last) * stride,
        address + min(row + 6, last) * stride,
        address + min(row + 7, last) * stride,
    )


def _make_chains(formula: Callable[..., Any], item: str) -> tuple[Callable[..., Any], ...]:
    """`load(rows, i)` and `store(rows, i, values)` on 8 rows, and the fold `advance(values, rows, i, end)`."""
    load, store = LOAD[item], STORE[item]

    def load8(x: tuple[int, ...], i: int) -> tuple[Any, ...]:
        return (
            load(x[0], i),
            load(x[1], i),
            load(x[2], i),
            load(x[3], i),
            load(x[4], i),
            load(x[5], i),
            load(x[6], i),
            load(x[7], i),
        )

    def store8(x: tuple[int, ...], i: int, values: tuple[Any, ...]) -> None:
        store(x[0], i, values[0])
        store(x[1], i, values[1])
        store(x[2], i, values[2])
        store(x[3], i, values[3])
        store(x[4], i, values[4])
        store(x[5], i, values[5])
        store(x[6], i, values[6])
        store(x[7], i, values[7])

    def advance(values: tuple[Any, ...], x: tuple[int, ...], begin: int, end: int) -> tuple[Any, ...]:
        x0, x1, x2, x3, x4, x5, x6, x7 = x
        a0, a1, a2, a3, a4, a5, a6, a7 = values
        for i in range(begin, end):
            a0 = formula(a0, load(x0, i))
            a1 = formula(a1, load(x1, i))
            a2 = formula(a2, load(x2, i))
            a3 = formula(a3, load(x3, i))
            a4 = formula(a4, load(x4, i))
            a5 = formula(a5, load(x5, i))
            a6 = formula(a6, load(x6, i))
            a7 = formula(a7, load(x7, i))
        return a0, a1, a2, a3, a4, a5, a6, a7

    return inline(load8), inline(store8), inline(advance)


def _make_lanes(formula: Callable[..., Any], item: str) -> Callable[..., Any]:
    """`fold_lanes(x, stride, rows, columns, lanes)` for operators that give the same bits in any order.

    It folds at least 2 * _LANES columns of each row at `x` into the first item of a row at `lanes`; these are _LANES
    items apart.
    """
    load, store = LOAD[item], STORE[item]

    @inline
    def halve(lanes: int, rows: int, half: int) -> None:
        for _ in range(rows):
            for k in range(half):
                store(lanes, k, formula(load(lanes, k), load(lanes, half + k)))
            lanes += 4 * _LANES

    @inline
    def fold_lanes(x: int, stride: int, rows: int, columns: int, lanes: int) -> None:
        tail = columns % _LANES
        line = lanes
        for _ in range(rows):
            for k in range(_LANES):
                store(line, k, formula(load(x, k), load(x, _LANES + k)))
            for start in range(2 * _LANES, columns - tail, _LANES):
                for k in range(_LANES):
                    store(line, k, formula(load(line, k), load(x, start + k)))
            for k in range(tail):
                store(line, k, formula(load(line, k), load(x, columns - tail + k)))
            x += stride
            line += 4 * _LANES
        # Level by level, not row by row: a level waits for the one before, rows do not wait for each other.
        halve(lanes, rows, 32)
        halve(lanes, rows, 16)
        halve(lanes, rows, 8)
        halve(lanes, rows, 4)
        halve(lanes, rows, 2)
        halve(lanes, rows, 1)

    return fold_lanes


def _make_fold(
    formula: Callable[..., Any], finish: Callable[..., Any], item: str, order_free: bool
) -> Callable[..., Any]:
    load, store = LOAD[item], STORE[item]
    load8, store8, advance = _make_chains(formula, item)
    fold_lanes = _make_lanes(formula, item)

    def fold(uop: int, context: int) -> None:
        acc, src, stride = base(context, arg(uop, 0)), base(context, arg(uop, 1)), pitch(context, arg(uop, 1))
        columns, rows = load_i64(context, C_COLUMNS), load_i64(context, C_ROWS)
        begin = 1 if arg(uop, 2) != 0 and load_i64(context, C_FIRST) != 0 else 0
        if begin > 0:
            for row in range(rows):
                store(acc, row, load(src + row * stride, 0))
        if order_free and columns >= 2 * _LANES:
            lanes = load_i64(context, C_TEMP)
            fold_lanes(src, stride, rows, columns, lanes)
            src, stride, columns, begin = lanes, 4 * _LANES, 1, 0
        if columns > begin:
            for row in range(0, rows, 8):
                x = _row_addresses(src, stride, row, rows - 1)
                cells = _row_addresses(acc, 4, row, rows - 1)
                values = advance(load8(cells, 0), x, begin, columns)
                # All 8 cells are written after all were read, and repeated rows hold equal values.
                store8(cells, 0, values)
                for k in range(row, min(row + 8, rows)):
                    store(acc, k, finish(load(acc, k)))

    return fold


def _make_group(
    formula: Callable[..., Any], finish: Callable[..., Any], item: str, order_free: bool
) -> Callable[..., Any]:
    load, store = LOAD[item], STORE[item]
    load8, store8, advance = _make_chains(formula, item)
    fold_lanes = _make_lanes(formula, item)

    def group(uop: int, context: int) -> None:
        dst, src, inner, begin = arg(uop, 0), arg(uop, 1), arg(uop, 2), arg(uop, 3)
        rows, lanes = load_i64(context, C_ROWS), load_i64(context, C_TEMP)
        results = load_i64(context, C_COLUMNS) // inner
        identity = load(uop + 8 * (2 + 4), 0)
        start = (identity, identity, identity, identity, identity, identity, identity, identity)
        if order_free and inner >= 2 * _LANES:
            for k in range(results):
                fold_lanes(base(context, src) + 4 * k * inner, pitch(context, src), rows, inner, lanes)
                for row in range(rows):
                    value = load(lanes, row * _LANES)
                    value = value if begin > 0 else formula(identity, value)
                    store(base(context, dst) + row * pitch(context, dst), k, value)
        else:
            for row in range(0, rows, 8):
                x = _row_addresses(base(context, src), pitch(context, src), row, rows - 1)
                y = _row_addresses(base(context, dst), pitch(context, dst), row, rows - 1)
                for k in range(results):
                    values = load8(x, k * inner) if begin > 0 else start
                    values = advance(values, x, k * inner + begin, (k + 1) * inner)
                    store8(y, k, values)
            if inner > begin:
                for row in range(rows):
                    target = base(context, dst) + row * pitch(context, dst)
                    for k in range(results):
                        store(target, k, finish(load(target, k)))
        store_i64(context, C_COLUMN, load_i64(context, C_COLUMN) // inner)
        store_i64(context, C_COLUMNS, results)

    return group


def emit(uop: int, context: int) -> None:
    """Replace the block by its segment's accumulator, or by nothing until the segment is complete."""
    dst, acc = arg(uop, 0), base(context, arg(uop, 1))
    rows = load_i64(context, C_ROWS)
    store_i64(context, C_COLUMN, load_i64(context, C_SEGMENT))
    store_i64(context, C_COLUMNS, load_i64(context, C_LAST))
    if load_i64(context, C_LAST) != 0:
        for row in range(rows):
            store_f32(base(context, dst) + row * pitch(context, dst), 0, load_f32(acc, row))


def _make_scan(step: Callable[..., Any], finish: Callable[..., Any], inputs: int) -> Callable[..., Any]:
    """`[dst, a, b, acc]` with acc = step(acc, a, b); with one input `[dst, a, acc]`, where b is a."""
    load8, store8, _ = _make_chains(step, "float32")

    def scan(uop: int, context: int) -> None:
        dst, a, b, acc = arg(uop, 0), arg(uop, 1), arg(uop, inputs), base(context, arg(uop, inputs + 1))
        rows = load_i64(context, C_ROWS)
        for row in range(0, rows, 8):
            y0, y1, y2, y3, y4, y5, y6, y7 = _row_addresses(base(context, dst), pitch(context, dst), row, rows - 1)
            p0, p1, p2, p3, p4, p5, p6, p7 = _row_addresses(base(context, a), pitch(context, a), row, rows - 1)
            q0, q1, q2, q3, q4, q5, q6, q7 = _row_addresses(base(context, b), pitch(context, b), row, rows - 1)
            cells = _row_addresses(acc, 4, row, rows - 1)
            s0, s1, s2, s3, s4, s5, s6, s7 = load8(cells, 0)
            for i in range(load_i64(context, C_COLUMNS)):
                s0 = step(s0, load_f32(p0, i), load_f32(q0, i))
                s1 = step(s1, load_f32(p1, i), load_f32(q1, i))
                s2 = step(s2, load_f32(p2, i), load_f32(q2, i))
                s3 = step(s3, load_f32(p3, i), load_f32(q3, i))
                s4 = step(s4, load_f32(p4, i), load_f32(q4, i))
                s5 = step(s5, load_f32(p5, i), load_f32(q5, i))
                s6 = step(s6, load_f32(p6, i), load_f32(q6, i))
                s7 = step(s7, load_f32(p7, i), load_f32(q7, i))
                store_f32(y0, i, finish(s0))
                store_f32(y1, i, finish(s1))
                store_f32(y2, i, finish(s2))
                store_f32(y3, i, finish(s3))
                store_f32(y4, i, finish(s4))
                store_f32(y5, i, finish(s5))
                store_f32(y6, i, finish(s6))
                store_f32(y7, i, finish(s7))
            ends = finish(s0), finish(s1), finish(s2), finish(s3), finish(s4), finish(s5), finish(s6), finish(s7)
            store8(cells, 0, ends)

    return scan


def _scan(op0: str, op1: str, reverse0: bool, reverse1: bool) -> Callable[..., Any]:
    blind = op0 in _NAN_BLIND and op1 in _NAN_BLIND
    first = _BARE.get(op0, alu.BINARY[op0]) if blind else alu.BINARY[op0]
    second = _BARE.get(op1, alu.BINARY[op1]) if blind else alu.BINARY[op1]

    @inline
    def step(s: Any, a: Any, b: Any) -> Any:
        if reverse0:
            t = first(s, a)
        else:
            t = first(a, s)
        if reverse1:
            return second(b, t)
        return second(t, b)

    return _make_scan(step, quiet if blind else _same, 2)


def _cumulate(op: str) -> Callable[..., Any]:
    formula = _BARE.get(op, alu.BINARY[op])

    @inline
    def step(s: Any, a: Any, b: Any) -> Any:
        return formula(a, s)

    return _make_scan(step, quiet if op in _BARE else _same, 1)


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The function of micro-op `name` and its number of arguments. Raises KeyError when there is none."""
    family, *parts = name.split(".")
    if family == "emit":
        return emit, 2
    if family == "scan":
        op0, op1, *reverse = parts
        return _scan(op0, op1, "r0" in reverse, "r1" in reverse), 2
    if family == "cumulate":
        return _cumulate(parts[0]), 2
    make = {"fold": _make_fold, "group": _make_group}[family.removesuffix("_integer")]
    op = parts[0]
    if family.endswith("_integer"):
        return make(alu.INTEGER[op], _same, parts[1], op in _ORDER_FREE), 2
    return make(_BARE.get(op, alu.BINARY[op]), quiet if op in _BARE else _same, "float32", op in _ORDER_FREE), 2
