"""The engine of vector, scalar and gpsimd instructions: it walks its rows in blocks and runs the micro-ops on each.

See architecture.md section 3 and `execute/layout.py` for the words of the record, the micro-ops and the context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.execute.engines.jit import call, inline, load_i64, store_i64
from tilelang.execute.layout import (
    BLOCK,
    C_COLUMN,
    C_COLUMNS,
    C_FIRST,
    C_LAST,
    C_REGISTER,
    C_ROW,
    C_ROWS,
    C_SEGMENT,
    C_TEMP,
    C_TOTAL,
    CONTEXT_WORDS,
    H_SCRATCH,
    PARTITIONS,
    PIPE_BLOCK,
    PIPE_COLUMNS,
    PIPE_FIRST,
    PIPE_ITEM,
    PIPE_PARTITION,
    PIPE_ROWS,
    PIPE_SEGMENT,
    PIPE_UOPS,
    REGISTER_ITEMS,
    REGISTERS,
    SCRATCH_BYTES,
    TEMP,
)

__all__ = ["source"]

_CONTEXT_BYTES = 8 * CONTEXT_WORDS
# Odd multiples of the cache line keep equal columns of different registers out of one cache set.
_REGISTER_PAD = 192


@inline
def _run(
    record: int, context: int, register_bytes: int, column: int, columns: int, first: bool, last: bool, segment: int
) -> None:
    """Run all micro-ops on one block."""
    store_i64(context, C_COLUMN, column)
    store_i64(context, C_COLUMNS, columns)
    store_i64(context, C_FIRST, first)
    store_i64(context, C_LAST, last)
    store_i64(context, C_SEGMENT, segment)
    address = context + _CONTEXT_BYTES
    pitch = load_i64(record, PIPE_ITEM) * columns
    for register in range(REGISTERS):
        store_i64(context, C_REGISTER + 2 * register, address)
        store_i64(context, C_REGISTER + 2 * register + 1, pitch)
        address += register_bytes
    uop = record + 8 * load_i64(record, PIPE_FIRST)
    for _ in range(load_i64(record, PIPE_UOPS)):
        call(load_i64(uop, 0), uop, context)
        uop += 8 * load_i64(uop, 1)


def pipeline(record: int, thread: int, threads: int) -> None:
    """Run the record's micro-ops on the rows that `thread` owns."""
    partition = load_i64(record, PIPE_PARTITION)
    row = max(PARTITIONS * thread // threads - partition, 0)
    end = min(PARTITIONS * (thread + 1) // threads - partition, load_i64(record, PIPE_ROWS))
    total = load_i64(record, PIPE_COLUMNS)
    segment = load_i64(record, PIPE_SEGMENT)
    if segment == 0:
        segment = total
    block = load_i64(record, PIPE_BLOCK)
    if block < 0:
        block = total
    elif block == 0:
        block = BLOCK
    # Short segments share a block; a long one is cut into blocks.
    step = segment
    if segment <= block:
        step = block - block % segment
        block = step
    width = min(block, total)
    group = min(max(REGISTER_ITEMS // width, 1), PARTITIONS)
    register_bytes = max(REGISTER_ITEMS, width) * load_i64(record, PIPE_ITEM) + _REGISTER_PAD
    context = load_i64(record, H_SCRATCH) + thread * SCRATCH_BYTES
    store_i64(context, C_TEMP, context + _CONTEXT_BYTES + TEMP * register_bytes)
    store_i64(context, C_TOTAL, total)
    while row < end:
        rows = min(group, end - row)
        store_i64(context, C_ROW, row)
        store_i64(context, C_ROWS, rows)
        for start in range(0, total, step):
            stop = min(start + step, total)
            for column in range(start, stop, block):
                columns = min(block, stop - column)
                last = column + columns == stop
                _run(record, context, register_bytes, column, columns, column == start, last, start // segment)
        row += rows


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The engine function `name` and its number of arguments."""
    return {"pipeline": pipeline}[name], 3
