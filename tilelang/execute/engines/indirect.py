"""Gathers and scatters along the free dimension (isa.md 5.5), bit for bit.

`indirect.gather.<carrier>.<index carrier>` and `indirect.scatter.…` walk the rows of dst that the thread owns. The byte
offsets of a group of partitions are computed once, into the thread's scratch. Words of the record: `INDIRECT_*`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.execute import layout as at
from tilelang.execute.engines.blocks import ITEM_BYTES, element
from tilelang.execute.engines.jit import LOAD, STORE, inline, load_i64, store_i64

__all__ = ["source"]


@inline
def _fail(record: int, value: int, limit: int, position: int) -> None:
    status = load_i64(record, at.H_STATUS)
    store_i64(status, 1, load_i64(record, at.H_INDEX))
    store_i64(status, 2, value)
    store_i64(status, 3, limit)
    store_i64(status, 4, position)
    store_i64(status, 0, at.E_OFFSET)


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The engine function `name` and its number of arguments."""
    _, direction, carrier, index_carrier = name.split(".")
    load, store, load_index = LOAD[carrier], STORE[carrier], LOAD[index_carrier]
    size = ITEM_BYTES[carrier]
    gather = direction == "gather"

    def indirect(record: int, thread: int, threads: int) -> None:
        dst, src = record + 8 * at.INDIRECT_DST, record + 8 * at.INDIRECT_SRC
        index = record + 8 * at.INDIRECT_INDEX
        first, rows = load_i64(record, at.INDIRECT_FIRST), load_i64(record, at.INDIRECT_ROWS)
        count, limit = load_i64(record, at.INDIRECT_COUNT), load_i64(record, at.INDIRECT_LIMIT)
        group = load_i64(record, at.INDIRECT_GROUP)
        row = max(at.PARTITIONS * thread // threads - first, 0)
        end = min(at.PARTITIONS * (thread + 1) // threads - first, rows)
        offsets = load_i64(record, at.H_SCRATCH) + thread * at.SCRATCH_BYTES
        moved, fixed = (src, dst) if gather else (dst, src)
        # A dense row needs no division to find an element.
        dense = load_i64(fixed, at.O_COUNT + 3) == count and load_i64(fixed, at.O_STRIDE + 3) == size
        wanted = min(group, rows)
        while row < end:
            base = row // group * group
            for i in range(count):
                offset = int(load_index(element(index, base + i % wanted, i // wanted), 0))
                if offset < 0 or offset >= limit:
                    _fail(record, offset, limit, i)
                    return
                store_i64(offsets, i, element(moved, 0, offset) - element(moved, 0, 0))
            stop = min(base + group, end)
            while row < stop:
                target, other = element(moved, row, 0), element(fixed, row, 0)
                for i in range(count):
                    place = other + i * size if dense else element(fixed, row, i)
                    if gather:
                        store(place, 0, load(target + load_i64(offsets, i), 0))
                    else:
                        store(target + load_i64(offsets, i), 0, load(place, 0))
                row += 1

    return indirect, 3
