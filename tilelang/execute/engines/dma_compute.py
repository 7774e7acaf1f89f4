"""Sums of the DMA engines (isa.md 10.3): the engine function `dma_add`.

Parameters of the plain record:

| number | meaning |
|---|---|
| 0 | elements of one pass: all of them, or those of one row of an indirect sum |
| 1 | elements of a run: each operand is strided evenly along it |
| 2 | number of sources |
| 3 | number of rows of an indirect sum; 0: a plain one |
| 4, 5, 6 | indirect: bytes between rows, their number, 1: rows out of range are left out |

Then come the operands, dst first, ADD_WORDS words each: row function (float32 to bits of dst, bits to float32 of a
source; 0 for float32), item size, 1 if the index picks its rows, address, bytes between its rows otherwise, stride
within a run, and six counts and six strides of the dims around a run. After them the words of the index tile.
Threads share the runs of each pass, so that rows with equal indices add up in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.execute import layout as at
from tilelang.execute.engines import plain
from tilelang.execute.engines.blocks import element
from tilelang.execute.engines.jit import LOAD, STORE, call_row, inline, load_f32, load_i64, store_f32
from tilelang.execute.layout import ADD_FIRST, ADD_WORDS
from tilelang.numerics import alu

__all__ = ["source"]

_PIECE = 2048  # elements at a time: three float32 buffers stay in the first two levels of cache
_FUNCTION, _SIZE, _PICKED, _ADDRESS, _ROW, _STRIDE, _COUNTS, _STRIDES = 0, 1, 2, 3, 4, 5, 6, 12
_add, _ZERO = alu.BINARY["add"], np.float32(0)
_load_i32 = LOAD["int32"]
_load_u8, _store_u8 = LOAD["uint8"], STORE["uint8"]
_load_u16, _store_u16 = LOAD["uint16"], STORE["uint16"]
_load_u32, _store_u32 = LOAD["uint32"], STORE["uint32"]


@inline
def _move(source: int, source_stride: int, target: int, target_stride: int, size: int, count: int) -> None:
    """`count` items of `size` bytes."""
    if size == 4:
        for i in range(count):
            _store_u32(target + i * target_stride, 0, _load_u32(source + i * source_stride, 0))
    elif size == 2:
        for i in range(count):
            _store_u16(target + i * target_stride, 0, _load_u16(source + i * source_stride, 0))
    else:
        for i in range(count):
            _store_u8(target + i * target_stride, 0, _load_u8(source + i * source_stride, 0))


@inline
def _address(words: int, run: int) -> int:
    """Address of the first element of run `run`."""
    address = load_i64(words, _ADDRESS)
    for k in range(5, -1, -1):
        count = load_i64(words, _COUNTS + k)
        if count > 1:  # most dims are not; divisions cost more than the test
            address += (run % count) * load_i64(words, _STRIDES + k)
            run //= count
    return address


@inline
def _piece(record: int, thread: int, moved: int, row: int, run: int, offset: int, count: int) -> None:
    """Add `count` elements from `offset` of run `run`; picked rows start `moved` bytes later, others at row `row`."""
    sources = plain.param(record, 2)
    from_zero = plain.param(record, 3) == 0
    total = plain.scratch(record, thread)
    value, raw = total + 4 * _PIECE, total + 8 * _PIECE
    first = record + 8 * ADD_FIRST
    size, stride, encode = load_i64(first, _SIZE), load_i64(first, _STRIDE), load_i64(first, _FUNCTION)
    target = _address(first, run) + offset * stride
    target += moved if load_i64(first, _PICKED) != 0 else row * load_i64(first, _ROW)
    for k in range(1, sources + 1):
        words = first + 8 * ADD_WORDS * k
        item, step, decode = load_i64(words, _SIZE), load_i64(words, _STRIDE), load_i64(words, _FUNCTION)
        address = _address(words, run) + offset * step
        address += moved if load_i64(words, _PICKED) != 0 else row * load_i64(words, _ROW)
        if step != item:
            _move(address, step, raw, item, item, count)
            address = raw
        if decode != 0:
            call_row(decode, address, value, count)
            address = value
        # The last sum goes straight to its place where nothing is left to convert.
        out = target if k == sources and encode == 0 and stride == size else total
        if k > 1:
            for i in range(count):
                store_f32(out, i, _add(load_f32(total, i), load_f32(address, i)))
        elif from_zero:
            for i in range(count):
                store_f32(out, i, _add(_ZERO, load_f32(address, i)))
        else:
            for i in range(count):
                store_f32(out, i, load_f32(address, i))
    if encode == 0:
        if stride != size:
            _move(total, size, target, stride, size, count)
    elif stride == size:
        call_row(encode, total, target, count)
    else:
        call_row(encode, total, raw, count)
        _move(raw, size, target, stride, size, count)


def dma_add(record: int, thread: int, threads: int) -> None:
    """Sums of the pieces that belong to `thread`."""
    length, run = plain.param(record, 0), plain.param(record, 1)
    rows = plain.param(record, 3)
    pieces = (run + _PIECE - 1) // _PIECE
    total = length // run * pieces
    index = record + 8 * (ADD_FIRST + ADD_WORDS * (plain.param(record, 2) + 1))
    for row in range(max(rows, 1)):
        moved = 0
        if rows > 0:
            value = int(_load_i32(element(index, row, 0), 0))
            if value < 0 or value >= plain.param(record, 5):
                if plain.param(record, 6) != 0:
                    continue
                plain.fail(record, at.E_ROW, value, plain.param(record, 5), row)
                return
            moved = value * plain.param(record, 4)
        for piece in range(total * thread // threads, total * (thread + 1) // threads):
            offset = piece % pieces * _PIECE
            _piece(record, thread, moved, row, piece // pieces, offset, min(_PIECE, run - offset))


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The engine function `name` and its number of arguments."""
    return {"dma_add": dma_add}[name], 3
