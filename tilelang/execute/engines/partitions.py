"""Engine functions that move or combine whole partitions, on plain records (isa.md 10.8, 12.5).

| name | parameters | operands |
|---|---|---|
| `shuffle.<carrier>` | elements, columns at a time, 1: overlap (one thread does it all), 32 mask entries | dst src |
| `partition_reduce.<op>.<src format>.<dst format>` | elements, partitions, divisor or 0 (float32 bits) | dst data |
| `partition_combine.<op>.<format>` (integers, bits) | elements, partitions, 0 | dst data |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.dtypes import FORMATS
from tilelang.execute import layout as at
from tilelang.execute.engines import plain
from tilelang.execute.engines.blocks import ITEM_BYTES, element
from tilelang.execute.engines.jit import LOAD, STORE, inline, load_f32, load_i64, store_f32
from tilelang.numerics import alu, casts
from tilelang.numerics.prim import as_u32, bits_f32

__all__ = ["source"]

_UNTOUCHED = 255
_QUADRANT = 32
_SHUFFLE_PARAMS = 3 + _QUADRANT
_REDUCE_PARAMS = 3


@inline
def _dense(operand: int, columns: int, size: int) -> bool:
    """A row is one run of memory."""
    return load_i64(operand, at.O_COUNT + 3) == columns and load_i64(operand, at.O_STRIDE + 3) == size


def _shuffle(carrier: str) -> Callable[..., None]:
    load, store, size = LOAD[carrier], STORE[carrier], ITEM_BYTES[carrier]

    def shuffle(record: int, thread: int, threads: int) -> None:
        dst = plain.operand(record, _SHUFFLE_PARAMS, 0)
        src = plain.operand(record, _SHUFFLE_PARAMS, 1)
        columns, step = plain.param(record, 0), plain.param(record, 1)
        whole = plain.param(record, 2) != 0
        rows = load_i64(record, at.PLAIN_ROWS)
        first, last = plain.begin(record, thread, threads), plain.end(record, thread, threads)
        if whole:
            first, last = 0, rows
            if thread != 0:
                return
        held = plain.scratch(record, thread)
        dense = _dense(dst, columns, size) and _dense(src, columns, size)
        for start in range(0, columns, step):
            stop = min(start + step, columns)
            # Overlapping tiles: all reads of these columns before their writes.
            for write in range(2 if whole else 1):
                for row in range(first, last):
                    entry = plain.param(record, 3 + row % _QUADRANT)
                    if entry == _UNTOUCHED:
                        continue
                    origin = row // _QUADRANT * _QUADRANT + entry
                    buffer = held + row * step * size
                    if not whole and dense:
                        here, there = element(dst, row, 0), element(src, origin, 0)
                        for k in range(start, stop):
                            store(here, k, load(there, k))
                    elif not whole:
                        for k in range(start, stop):
                            store(element(dst, row, k), 0, load(element(src, origin, k), 0))
                    elif write == 0:
                        for k in range(start, stop):
                            store(buffer, k - start, load(element(src, origin, k), 0))
                    else:
                        for k in range(start, stop):
                            store(element(dst, row, k), 0, load(buffer, k - start))

    return shuffle


def _reduce(op: str, given: str, wanted: str) -> Callable[..., None]:
    load, store = LOAD[FORMATS[given].carrier.name], STORE[FORMATS[wanted].carrier.name]
    size = FORMATS[given].itemsize
    decode, encode, combine, divide = casts.DECODE[given], casts.ENCODE[wanted], alu.BINARY[op], alu.BINARY["divide"]

    def reduce(record: int, thread: int, threads: int) -> None:
        if plain.begin(record, thread, threads) >= plain.end(record, thread, threads):
            return
        dst = plain.operand(record, _REDUCE_PARAMS, 0)
        data = plain.operand(record, _REDUCE_PARAMS, 1)
        columns, rows = plain.param(record, 0), plain.param(record, 1)
        divisor = plain.param(record, 2)
        total = plain.scratch(record, thread)
        dense = _dense(data, columns, size)
        for row in range(rows):
            address = element(data, row, 0)
            if row == 0 and dense:
                for k in range(columns):
                    store_f32(total, k, decode(load(address, k)))
            elif row == 0:
                for k in range(columns):
                    store_f32(total, k, decode(load(element(data, row, k), 0)))
            elif dense:
                for k in range(columns):
                    store_f32(total, k, combine(load_f32(total, k), decode(load(address, k))))
            else:
                for k in range(columns):
                    store_f32(total, k, combine(load_f32(total, k), decode(load(element(data, row, k), 0))))
        if divisor != 0:
            by = bits_f32(as_u32(divisor))
            for k in range(columns):
                store_f32(total, k, divide(load_f32(total, k), by))
        for k in range(columns):
            store(element(dst, 0, k), 0, encode(load_f32(total, k)))

    return reduce


def _combine(op: str, name: str) -> Callable[..., None]:
    carrier = FORMATS[name].carrier.name
    load, store, combine = LOAD[carrier], STORE[carrier], alu.INTEGER[op]

    def reduce(record: int, thread: int, threads: int) -> None:
        if plain.begin(record, thread, threads) >= plain.end(record, thread, threads):
            return
        dst = plain.operand(record, _REDUCE_PARAMS, 0)
        data = plain.operand(record, _REDUCE_PARAMS, 1)
        total = plain.scratch(record, thread)
        for row in range(plain.param(record, 1)):
            for k in range(plain.param(record, 0)):
                value = load(element(data, row, k), 0)
                store(total, k, value if row == 0 else combine(load(total, k), value))
        for k in range(plain.param(record, 0)):
            store(element(dst, 0, k), 0, load(total, k))

    return reduce


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The engine function `name` and its number of arguments."""
    kind, *rest = name.split(".")
    make: Any = {"shuffle": _shuffle, "partition_reduce": _reduce, "partition_combine": _combine}[kind]
    return make(*rest), 3
