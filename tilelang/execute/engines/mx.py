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
from tilelang.execute.engines.blocks import element
from tilelang.execute.engines.jit import LOAD, STORE
from tilelang.numerics import casts, mx
from tilelang.numerics.prim import as_u32, bits_f32, f32_bits, select

__all__ = ["source"]

_store_u8, _store_u32 = STORE["uint8"], STORE["uint32"]
_MAGNITUDE, _INFINITE = 0x7FFFFFFF, 0x7F800000
_NAN = np.float32(np.nan)


def _quantize(given: str, packed: str) -> Callable[..., None]:
    load, decode = LOAD[FORMATS[given].carrier.name], casts.DECODE[given]
    name, _, exponent = mx.ELEMENTS[packed]
    encode, top = casts.ENCODE[name], np.int32(exponent - 1)
    block_code, inverse_scale = mx.block_code, mx.inverse_scale

    def quantize(record: int, thread: int, threads: int) -> None:
        columns = plain.param(record, 0)
        dst, src, scale = plain.operand(record, 1, 0), plain.operand(record, 1, 1), plain.operand(record, 1, 2)
        first, last = plain.begin(record, thread, threads), plain.end(record, thread, threads)
        # A block may belong to two threads; each finds its scale, and the owner of its first row writes it.
        for start in range(first // 8 * 8, last, 8):
            for j in range(columns):
                largest = 0
                for row in range(start, start + 8):
                    for q in range(4):
                        bits = int(f32_bits(decode(load(element(src, row, 4 * j + q), 0)))) & _MAGNITUDE
                        largest = max(largest, bits)
                code = block_code(bits_f32(as_u32(min(largest, _INFINITE))), top)
                missing = code == 255
                factor = inverse_scale(as_u32(min(code, 253)))
                for row in range(max(start, first), min(start + 8, last)):
                    word = np.uint32(0)
                    for q in range(4):
                        value = decode(load(element(src, row, 4 * j + q), 0)) * factor
                        item = as_u32(encode(select(missing, _NAN, value)))
                        word = as_u32(word | as_u32(item << as_u32(8 * q)))
                    _store_u32(element(dst, row, j), 0, word)
                if start >= first:
                    _store_u8(element(scale, 32 * (start // 32) + start % 32 // 8, j), 0, code)

    return quantize


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The engine function `name` and its number of arguments."""
    _, given, packed = name.split(".")
    return _quantize(given, packed), 3
