"""Engine function of quantize_mx (isa.md 11.3), on plain records.

| name | parameters | operands |
|---|---|---|
| `quantize_mx.<src format>.<dst format>` | packed columns | dst src dst_scale |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import FORMATS
from tilelang.execute.engines import plain
from tilelang.execute.engines.blocks import element, is_line, line_step
from tilelang.execute.engines.jit import LOAD, STORE, load_f32, store_f32
from tilelang.numerics import casts, mx
from tilelang.numerics.prim import as_u32, bits_f32, select

__all__ = ["source"]

_load_u32, _store_u8, _store_u32 = LOAD["uint32"], STORE["uint8"], STORE["uint32"]
_MAGNITUDE, _INFINITE = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_NAN, _ZERO = np.float32(np.nan), np.uint32(0)
_BLOCK = 8  # rows that share a scale
_CHUNK = 2048  # elements of a row at a time; a chunk of a block stays in the first-level or second-level cache
# Scratch of a thread: magnitudes, then factors, of each column; the bytes of one row; the block in float32.
_BYTES = 4 * _CHUNK
_VALUES = _BYTES + _CHUNK


def _quantize(given: str, packed: str) -> Callable[..., None]:
    load, decode = LOAD[FORMATS[given].carrier.name], casts.DECODE[given]
    itemsize = FORMATS[given].itemsize
    name, _, exponent = mx.ELEMENTS[packed]
    encode, top = casts.ENCODE[name], np.int32(exponent - 1)
    block_code, inverse_scale = mx.block_code, mx.inverse_scale

    def quantize(record: int, thread: int, threads: int) -> None:
        columns = 4 * plain.param(record, 0)
        dst, src, scale = plain.operand(record, 1, 0), plain.operand(record, 1, 1), plain.operand(record, 1, 2)
        first, last = plain.begin(record, thread, threads), plain.end(record, thread, threads)
        factors = plain.scratch(record, thread)
        narrow, values = factors + _BYTES, factors + _VALUES
        reads_rows = is_line(src) and line_step(src) == itemsize
        writes_rows = is_line(dst) and line_step(dst) == 4
        # A block may belong to two threads; each finds its scale, and the owner of its first row writes it.
        for start in range(first // _BLOCK * _BLOCK, last, _BLOCK):
            for base in range(0, columns, _CHUNK):
                count = min(_CHUNK, columns - base)
                for i in range(count):
                    _store_u32(factors, i, _ZERO)
                for r in range(_BLOCK):
                    row = values + 4 * _CHUNK * r
                    if reads_rows:
                        line = element(src, start + r, base)
                        for i in range(count):
                            store_f32(row, i, decode(load(line, i)))
                    else:
                        for i in range(count):
                            store_f32(row, i, decode(load(element(src, start + r, base + i), 0)))
                    for i in range(count):
                        magnitude = as_u32(_load_u32(row, i) & _MAGNITUDE)
                        _store_u32(factors, i, max(_load_u32(factors, i), magnitude))
                for j in range(count // 4):
                    largest = _ZERO
                    for q in range(4):
                        largest = max(largest, _load_u32(factors, 4 * j + q))
                    code = block_code(bits_f32(as_u32(min(largest, _INFINITE))), top)
                    factor = select(code == 255, _NAN, inverse_scale(as_u32(min(code, 253))))
                    for q in range(4):
                        store_f32(factors, 4 * j + q, factor)
                    if start >= first:
                        at_row = 32 * (start // 32) + start % 32 // _BLOCK
                        _store_u8(element(scale, at_row, base // 4 + j), 0, code)
                for r in range(max(first - start, 0), min(last - start, _BLOCK)):
                    row = values + 4 * _CHUNK * r
                    line = element(dst, start + r, base // 4) if writes_rows else narrow
                    for i in range(count):
                        factor = load_f32(factors, i)
                        value = load_f32(row, i) * factor
                        _store_u8(line, i, encode(select(factor == factor, value, _NAN)))
                    if not writes_rows:
                        for j in range(count // 4):
                            _store_u32(element(dst, start + r, base // 4 + j), 0, _load_u32(narrow, j))

    return quantize


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The engine function `name` and its number of arguments."""
    _, given, packed = name.split(".")
    return _quantize(given, packed), 3
