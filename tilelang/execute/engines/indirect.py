"""Gathers and scatters along the free dimension (isa.md 5.5, 10.9, 10.10), bit for bit.

`indirect.gather.<carrier>.<index carrier>` and `indirect.scatter.…`, on plain records: operands dst, src, index;
parameters: indices of a row, elements an index stands for, partitions that share indices, elements of a partition, 1
when dst shares memory with src: each row is then held before it is written. A group of partitions reads its indices
from its own rows, down the columns; their byte offsets are computed once, into the thread's scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.execute import layout as at
from tilelang.execute.engines import plain
from tilelang.execute.engines.blocks import ITEM_BYTES, element, is_line, line_step
from tilelang.execute.engines.jit import LOAD, STORE, load_i64, store_i64

__all__ = ["source"]

_PARAMS = 5


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The engine function `name` and its number of arguments."""
    _, direction, carrier, index_carrier = name.split(".")
    load, store, load_index = LOAD[carrier], STORE[carrier], LOAD[index_carrier]
    size = ITEM_BYTES[carrier]
    gather = direction == "gather"

    def indirect(record: int, thread: int, threads: int) -> None:
        indices, run = plain.param(record, 0), plain.param(record, 1)
        group, limit = plain.param(record, 2), plain.param(record, 3)
        dst, src = plain.operand(record, _PARAMS, 0), plain.operand(record, _PARAMS, 1)
        index = plain.operand(record, _PARAMS, 2)
        row, end = plain.begin(record, thread, threads), plain.end(record, thread, threads)
        offsets = plain.scratch(record, thread)
        moved, fixed = (src, dst) if gather else (dst, src)
        count = indices * run
        staged, held = plain.param(record, 4) != 0, offsets + 8 * count
        # A dense row needs no division to find an element.
        dense = is_line(fixed) and line_step(fixed) == size
        index_line, index_step = is_line(index), line_step(index)
        moved_line, moved_step = is_line(moved), line_step(moved)
        wanted = min(group, load_i64(record, at.PLAIN_ROWS))
        origin = element(moved, 0, 0)
        while row < end:
            base = row // group * group
            r, column = 0, 0
            for i in range(indices):
                place = element(index, base + r, 0) + column * index_step
                if not index_line:
                    place = element(index, base + r, column)
                offset = int(load_index(place, 0))
                r += 1
                if r == wanted:
                    r, column = 0, column + 1
                if offset < 0 or offset + run > limit:
                    plain.fail(record, at.E_OFFSET, offset, limit, i)
                    return
                for k in range(run):
                    step = (offset + k) * moved_step
                    if not moved_line:
                        step = element(moved, 0, offset + k) - origin
                    store_i64(offsets, i * run + k, step)
            stop = min(base + group, end)
            while row < stop:
                target, other = element(moved, row, 0), element(fixed, row, 0)
                if staged:
                    for i in range(count):
                        store(held, i, load(target + load_i64(offsets, i), 0))
                for i in range(count):
                    place = other + i * size if dense else element(fixed, row, i)
                    if staged:
                        store(place, 0, load(held, i))
                    elif gather:
                        store(place, 0, load(target + load_i64(offsets, i), 0))
                    else:
                        store(target + load_i64(offsets, i), 0, load(place, 0))
                row += 1

    return indirect, 3
