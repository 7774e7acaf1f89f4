"""Port micro-ops: between memory and registers.

| name | args | meaning |
|---|---|---|
| `view` | register, operand | the register is the memory (rows of adjacent items): a zero-copy input, or an output |
| `gather.<1, 2, 4, 8>` | register, columns, operand | raw items of the operand, packed |
| `scatter.<1, 2, 4, 8>` | register, operand | raw items to the operand; of items that share an address the last wins |
| `put.<1, 2, 4, 8>` | register, predicate, reverse, operand | items whose 32-bit predicate is not 0 (xor reverse) |
| `fill.<1, 2, 4, 8>` | register, columns, bits | the same item everywhere |
| `decode.<format>` | dst, src, columns | raw items to float32 |
| `encode.<format>` | dst, src | float32 to raw items |
| `widen.<int8, int16, uint8, uint16>` | dst, src, columns | to 32 bits by sign or zeros |
| `narrow.<uint8, uint16>` | dst, src | the low bits of 32 |
| `saturate.<int8, int16, uint8, uint16>` | dst, src | int32 to the nearest value in range |

`columns` is 0, or the columns of a column register. An operand is the 12 words of architecture.md section 2.
`row_decode.<format>` and `row_encode.<format>` are functions `void f(int64 source, int64 destination, int64 items)` on
adjacent items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import FORMATS
from tilelang.execute.engines.blocks import (
    ITEM_BYTES,
    arg,
    base,
    make_unary,
    pitch,
    port_columns,
    port_rows,
    set_base,
    set_pitch,
)
from tilelang.execute.engines.jit import LOAD, STORE, inline, load_i64
from tilelang.execute.layout import C_COLUMN, C_COLUMNS, C_ROW, C_ROWS, O_COUNT, O_STRIDE
from tilelang.numerics import casts
from tilelang.numerics.prim import as_i8, as_i16, as_i32, as_u8, as_u16, as_u32, select

__all__ = ["source"]

_RAW = {"1": "uint8", "2": "uint16", "4": "uint32", "8": "uint64"}


def view(uop: int, context: int) -> None:
    """Point the register at the operand's rows."""
    register = arg(uop, 0)
    operand = uop + 24
    stride = load_i64(operand, 2)
    offset = load_i64(context, C_ROW) * stride + load_i64(context, C_COLUMN) * load_i64(operand, O_STRIDE + 3)
    set_base(context, register, load_i64(operand, 0) + offset)
    set_pitch(context, register, stride)


@inline
def _unravel(operand: int, start: int) -> tuple[int, int, int, int]:
    """The index (i0, i1, i2, i3) of flat position `start` of an operand row."""
    n1, n2, n3 = load_i64(operand, O_COUNT + 1), load_i64(operand, O_COUNT + 2), load_i64(operand, O_COUNT + 3)
    if start == 0:
        return 0, 0, 0, 0
    outer, i3 = start // n3, start % n3
    outer, i2 = outer // n2, outer % n2
    return outer // n1, outer % n1, i2, i3


def _make_walk(move: Callable[..., Any]) -> Callable[..., Any]:
    """A walk over `width` items of the operand row at address `row`, from index `start`, row-major.

    It calls `move(address, stride, items, predicate, flip, position, run)` for each run of the innermost dim: item j of
    the run is at `address + j * stride` and belongs to item `position + j` of the register row at address `items`.
    """
    move = inline(move)

    @inline
    def walk(
        operand: int, row: int, start: tuple[int, int, int, int], width: int, items: int, predicate: int, flip: bool
    ) -> None:
        n1, n2, n3 = load_i64(operand, O_COUNT + 1), load_i64(operand, O_COUNT + 2), load_i64(operand, O_COUNT + 3)
        s0, s1 = load_i64(operand, O_STRIDE), load_i64(operand, O_STRIDE + 1)
        s2, s3 = load_i64(operand, O_STRIDE + 2), load_i64(operand, O_STRIDE + 3)
        i0, i1, i2, i3 = start
        position = 0
        while position < width:
            run = min(n3 - i3, width - position)
            move(row + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3, s3, items, predicate, flip, position, run)
            position += run
            i3 = 0
            i2 += 1
            if i2 == n2:
                i2 = 0
                i1 += 1
                if i1 == n1:
                    i1 = 0
                    i0 += 1

    return walk


def _make_gather(item: str) -> Callable[..., Any]:
    load, store, size = LOAD[item], STORE[item], ITEM_BYTES[item]

    def move(address: int, stride: int, items: int, predicate: int, flip: bool, position: int, run: int) -> None:
        target = items + position * size
        if stride == size:
            for j in range(run):
                store(target, j, load(address, j))
        elif stride == 0:
            value = load(address, 0)
            for j in range(run):
                store(target, j, value)
        else:
            for j in range(run):
                store(target, j, load(address + j * stride, 0))

    walk = _make_walk(move)

    def gather(uop: int, context: int) -> None:
        register, columns, operand = arg(uop, 0), arg(uop, 1), uop + 32
        width = port_columns(context, columns)
        start = _unravel(operand, load_i64(context, C_COLUMN) if columns == 0 else 0)
        row_stride = load_i64(operand, 2)
        row = load_i64(operand, 0) + load_i64(context, C_ROW) * row_stride
        items = base(context, register)
        item_pitch = pitch(context, register) if columns == 0 else size * columns
        for _ in range(port_rows(context, columns)):
            walk(operand, row, start, width, items, 0, False)
            row += row_stride
            items += item_pitch

    return gather


def _make_scatter(item: str) -> Callable[..., Any]:
    load, store, size = LOAD[item], STORE[item], ITEM_BYTES[item]

    def move(address: int, stride: int, items: int, predicate: int, flip: bool, position: int, run: int) -> None:
        source = items + position * size
        if stride == size:
            for j in range(run):
                store(address, j, load(source, j))
        elif stride == 0:
            store(address, 0, load(source, run - 1))
        else:
            for j in range(run):
                store(address + j * stride, 0, load(source, j))

    walk = _make_walk(move)

    def scatter(uop: int, context: int) -> None:
        register, operand = arg(uop, 0), uop + 24
        width = load_i64(context, C_COLUMNS)
        start = _unravel(operand, load_i64(context, C_COLUMN))
        row_stride = load_i64(operand, 2)
        row = load_i64(operand, 0) + load_i64(context, C_ROW) * row_stride
        items = base(context, register)
        for _ in range(load_i64(context, C_ROWS)):
            walk(operand, row, start, width, items, 0, False)
            row += row_stride
            items += pitch(context, register)

    return scatter


def _make_put(item: str) -> Callable[..., Any]:
    load, store, size = LOAD[item], STORE[item], ITEM_BYTES[item]
    load_flag = LOAD["uint32"]

    def move(address: int, stride: int, items: int, predicate: int, flip: bool, position: int, run: int) -> None:
        source = items + position * size
        flags = predicate + position * 4
        if stride == size:
            for j in range(run):
                if (load_flag(flags, j) != 0) != flip:
                    store(address, j, load(source, j))
        else:
            for j in range(run):
                if (load_flag(flags, j) != 0) != flip:
                    store(address + j * stride, 0, load(source, j))

    walk = _make_walk(move)

    def put(uop: int, context: int) -> None:
        register, condition, flip, operand = arg(uop, 0), arg(uop, 1), arg(uop, 2) != 0, uop + 40
        width = load_i64(context, C_COLUMNS)
        start = _unravel(operand, load_i64(context, C_COLUMN))
        row_stride = load_i64(operand, 2)
        row = load_i64(operand, 0) + load_i64(context, C_ROW) * row_stride
        items, predicate = base(context, register), base(context, condition)
        for _ in range(load_i64(context, C_ROWS)):
            walk(operand, row, start, width, items, predicate, flip)
            row += row_stride
            items += pitch(context, register)
            predicate += pitch(context, condition)

    return put


def _make_fill(item: str) -> Callable[..., Any]:
    store, size = STORE[item], ITEM_BYTES[item]

    def fill(uop: int, context: int) -> None:
        register, columns, bits = arg(uop, 0), arg(uop, 1), arg(uop, 2)
        items = base(context, register)
        item_pitch = pitch(context, register) if columns == 0 else size * columns
        for _ in range(port_rows(context, columns)):
            for i in range(port_columns(context, columns)):
                store(items, i, bits)
            items += item_pitch

    return fill


def _clamp(lowest: int, highest: int, cast: Callable[..., Any]) -> Callable[..., Any]:
    low, high = np.int32(lowest), np.int32(highest)

    def saturate(x: Any) -> Any:
        return cast(select(x < low, low, select(x > high, high, x)))

    return inline(saturate)


def _make_row(formula: Callable[..., Any], source_item: str, target_item: str) -> Callable[..., Any]:
    load, store = LOAD[source_item], STORE[target_item]

    def row(read: int, write: int, items: int) -> None:
        for i in range(items):
            store(write, i, formula(load(read, i)))

    return row


_RAW_PORTS = {"gather": _make_gather, "scatter": _make_scatter, "put": _make_put, "fill": _make_fill}
_WIDEN = {"int8": as_i32, "int16": as_i32, "uint8": as_u32, "uint16": as_u32}
_NARROW = {"uint8": as_u8, "uint16": as_u16}
_SATURATE = {
    "int8": _clamp(-(2**7), 2**7 - 1, as_i8),
    "int16": _clamp(-(2**15), 2**15 - 1, as_i16),
    "uint8": _clamp(0, 2**8 - 1, as_u8),
    "uint16": _clamp(0, 2**16 - 1, as_u16),
}


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The function of port `name` and its number of arguments. Raises KeyError when there is no such port."""
    family, _, kind = name.partition(".")
    if name == "view":
        return view, 2
    if family in _RAW_PORTS:
        return _RAW_PORTS[family](_RAW[kind]), 2
    if family == "widen":
        return make_unary(_WIDEN[kind], kind, "int32" if kind[0] == "i" else "uint32", port=True), 2
    if family == "narrow":
        return make_unary(_NARROW[kind], "uint32", kind), 2
    if family == "saturate":
        return make_unary(_SATURATE[kind], "int32", kind), 2
    carrier = FORMATS[kind].carrier.name
    if family == "decode":
        return make_unary(casts.DECODE[kind], carrier, "float32", port=True), 2
    if family == "encode":
        return make_unary(casts.ENCODE[kind], "float32", carrier), 2
    if family == "row_decode":
        return _make_row(casts.DECODE[kind], carrier, "float32"), 3
    if family == "row_encode":
        return _make_row(casts.ENCODE[kind], "float32", carrier), 3
    raise KeyError(name)
