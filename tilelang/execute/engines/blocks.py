"""What micro-ops share: their arguments and registers, and the loops that apply a formula to a block.

`uop` and `context` are addresses of int64 words (`execute/layout.py`); the small helpers are inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.execute.engines.jit import LOAD, STORE, inline, load_i64, store_i64
from tilelang.execute.layout import (
    C_COLUMNS,
    C_FIRST,
    C_REGISTER,
    C_ROWS,
    O_ADDRESS,
    O_COUNT,
    O_NDIM,
    O_PARTITION_STRIDE,
    O_STRIDE,
)

__all__ = [
    "ITEM_BYTES",
    "arg",
    "base",
    "element",
    "flatten",
    "is_line",
    "line_step",
    "make_binary",
    "make_unary",
    "pitch",
    "port_columns",
    "port_rows",
    "set_base",
    "set_pitch",
]

ITEM_BYTES = {
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
}


@inline
def arg(uop: int, k: int) -> int:
    """Argument `k` of the micro-op."""
    return load_i64(uop, 2 + k)


@inline
def element(operand: int, row: int, column: int) -> int:
    """Address of element (row, column) of an on-chip operand, free dims flattened."""
    address = load_i64(operand, O_ADDRESS) + row * load_i64(operand, O_PARTITION_STRIDE)
    for k in range(3, -1, -1):
        count = load_i64(operand, O_COUNT + k)
        address += (column % count) * load_i64(operand, O_STRIDE + k)
        column //= count
    return address


@inline
def is_line(operand: int) -> bool:
    """Whether the elements of a row are evenly spaced: then `line_step` apart, and no division finds one."""
    return load_i64(operand, O_NDIM) == 1


@inline
def line_step(operand: int) -> int:
    """Bytes from an element of a row to the next, of an operand that `is_line`."""
    return load_i64(operand, O_STRIDE + 3)


@inline
def base(context: int, register: int) -> int:
    """Address of row 0 of a register."""
    return load_i64(context, C_REGISTER + 2 * register)


@inline
def pitch(context: int, register: int) -> int:
    """Row stride of a register in bytes."""
    return load_i64(context, C_REGISTER + 1 + 2 * register)


@inline
def set_base(context: int, register: int, address: int) -> None:
    """Point a register at `address`."""
    store_i64(context, C_REGISTER + 2 * register, address)


@inline
def set_pitch(context: int, register: int, stride: int) -> None:
    """Set the row stride of a register, in bytes."""
    store_i64(context, C_REGISTER + 1 + 2 * register, stride)


@inline
def port_columns(context: int, columns: int) -> int:
    """Columns of a port: those of the block, or `columns` when it is not 0 (a column register)."""
    return load_i64(context, C_COLUMNS) if columns == 0 else columns


@inline
def port_rows(context: int, columns: int) -> int:
    """Rows of a port: those of the group; none when a column register is already filled."""
    return load_i64(context, C_ROWS) if columns == 0 or load_i64(context, C_FIRST) != 0 else 0


@inline
def flatten(rows: int, columns: int, pitch_a: int, bytes_a: int, pitch_b: int, bytes_b: int) -> int:
    """How many columns to walk at once: all of the block when both registers are dense, else one row."""
    return rows * columns if pitch_a == bytes_a * columns and pitch_b == bytes_b * columns else columns


def make_unary(formula: Callable[..., Any], source: str, target: str, port: bool = False) -> Callable[..., Any]:
    """A micro-op `[dst, src]` that maps `formula` from items of `source` to items of `target`.

    With `port` there is a third argument, the number of columns (see `port_columns`).
    """
    load, store = LOAD[source], STORE[target]
    read_bytes, write_bytes = ITEM_BYTES[source], ITEM_BYTES[target]

    def unary(uop: int, context: int) -> None:
        dst, src = arg(uop, 0), arg(uop, 1)
        columns = arg(uop, 2) if port else 0
        rows, width = port_rows(context, columns), port_columns(context, columns)
        write, read = base(context, dst), base(context, src)
        write_pitch, read_pitch = pitch(context, dst), pitch(context, src)
        if columns > 0:
            write_pitch = write_bytes * width
            read_pitch = read_bytes * width
        run = flatten(rows, width, write_pitch, write_bytes, read_pitch, read_bytes)
        if run != width:
            rows = 1
        for _ in range(rows):
            for i in range(run):
                store(write, i, formula(load(read, i)))
            write += write_pitch
            read += read_pitch

    return unary


def make_binary(formula: Callable[..., Any], kinds: str, item: str, second: str = "") -> Callable[..., Any]:
    """A micro-op `[dst, a, b]` that maps `formula` over blocks (`t`) or columns of one scalar per row (`v`).

    `second`: the items of block b, where they differ from those of a.
    """
    load, store, load_b = LOAD[item], STORE[item], LOAD[second or item]

    def block_block(uop: int, context: int) -> None:
        dst, a, b = arg(uop, 0), arg(uop, 1), arg(uop, 2)
        rows, width = load_i64(context, C_ROWS), load_i64(context, C_COLUMNS)
        write, read_a, read_b = base(context, dst), base(context, a), base(context, b)
        write_pitch, pitch_a, pitch_b = pitch(context, dst), pitch(context, a), pitch(context, b)
        run = flatten(rows, width, pitch_a, 4, pitch_b, 4)
        if run != width and write_pitch == pitch_a:
            rows = 1
        else:
            run = width
        for _ in range(rows):
            for i in range(run):
                store(write, i, formula(load(read_a, i), load_b(read_b, i)))
            write += write_pitch
            read_a += pitch_a
            read_b += pitch_b

    def block_column(uop: int, context: int) -> None:
        dst, a, b = arg(uop, 0), arg(uop, 1), arg(uop, 2)
        write, read = base(context, dst), base(context, a)
        column = base(context, b)
        for row in range(load_i64(context, C_ROWS)):
            scalar = load(column, row)
            for i in range(load_i64(context, C_COLUMNS)):
                store(write, i, formula(load(read, i), scalar))
            write += pitch(context, dst)
            read += pitch(context, a)

    def column_block(uop: int, context: int) -> None:
        dst, a, b = arg(uop, 0), arg(uop, 1), arg(uop, 2)
        write, read = base(context, dst), base(context, b)
        column = base(context, a)
        for row in range(load_i64(context, C_ROWS)):
            scalar = load(column, row)
            for i in range(load_i64(context, C_COLUMNS)):
                store(write, i, formula(scalar, load(read, i)))
            write += pitch(context, dst)
            read += pitch(context, b)

    return {"tt": block_block, "tv": block_column, "vt": column_block}[kinds]
