"""Whole-row micro-ops: batch-norm statistics, the eight largest values, searches for eight values.

Source: isa.md sections 12.13 to 12.17.

The record walks whole rows (`block = WHOLE_ROW`). Results are narrower than the block: `resize` sets its columns then.

| name | args | meaning |
|---|---|---|
| `resize` | columns | the block has that many columns, from 0 on, for the micro-ops after it |
| `bn_stats` | dst src | 6 columns: count, mean and sum of squared differences of the even, then of the odd columns |
| `bn_aggr` | dst src | 2 columns: mean and variance of (count, mean, sum of squares) triples |
| `max8` | dst src | 8 columns: the largest values in descending order; NaN above all, equal ones in order |
| `find_index8` | dst src values | uint32, 8 columns: first occurrence that no lower slot has taken, or all ones |
| `match_replace8` | dst index src values bits | dst: src, found elements made `bits`; index: higher slots first |

Sums run in ascending order from +0, products and differences are rounded apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.execute.engines.blocks import arg, base, pitch, set_pitch
from tilelang.execute.engines.jit import LOAD, STORE, inline, load_f32, load_i64, store_f32, store_i64
from tilelang.execute.layout import C_COLUMN, C_COLUMNS, C_ROWS, C_TEMP, TEMP
from tilelang.numerics.casts import quiet
from tilelang.numerics.prim import as_f32, as_i32, f32_bits, select

__all__ = ["source"]

_ZERO = np.float32(0)
_LARGEST_KEY = np.int32(0x7FFFFFFF)
_SIGN_SHIFT = np.int32(31)
_SLOTS = 8
_CHUNK = 64
_load_u32, _store_u32 = LOAD["uint32"], STORE["uint32"]


def resize(uop: int, context: int) -> None:
    """Set the columns of the block; they may be more than the row had, so that `TEMP` gets a pitch of their own."""
    store_i64(context, C_COLUMN, 0)
    store_i64(context, C_COLUMNS, arg(uop, 0))
    set_pitch(context, TEMP, 4 * arg(uop, 0))


def bn_stats(uop: int, context: int) -> None:
    """Count, mean and sum of squared differences of even and odd columns."""
    dst, src = arg(uop, 0), arg(uop, 1)
    columns = load_i64(context, C_COLUMNS)
    odd = columns // 2
    even = columns - odd
    set_pitch(context, dst, 4 * 6)
    for row in range(load_i64(context, C_ROWS)):
        x = base(context, src) + row * pitch(context, src)
        y = base(context, dst) + row * pitch(context, dst)
        # One loop for both sums: their chains hide each other's latency.
        sum_even, sum_odd = _ZERO, _ZERO
        for k in range(odd):
            sum_even = sum_even + load_f32(x, 2 * k)
            sum_odd = sum_odd + load_f32(x, 2 * k + 1)
        if even > odd:
            sum_even = sum_even + load_f32(x, columns - 1)
        mean_even = sum_even / as_f32(even)
        mean_odd = sum_odd / as_f32(odd) if odd > 0 else _ZERO
        m2_even, m2_odd = _ZERO, _ZERO
        for k in range(odd):
            d_even = load_f32(x, 2 * k) - mean_even
            d_odd = load_f32(x, 2 * k + 1) - mean_odd
            m2_even = m2_even + d_even * d_even
            m2_odd = m2_odd + d_odd * d_odd
        if even > odd:
            d_even = load_f32(x, columns - 1) - mean_even
            m2_even = m2_even + d_even * d_even
        store_f32(y, 0, as_f32(even))
        store_f32(y, 1, quiet(mean_even))
        store_f32(y, 2, quiet(m2_even))
        store_f32(y, 3, as_f32(odd))
        store_f32(y, 4, quiet(mean_odd))
        store_f32(y, 5, quiet(m2_odd))


def bn_aggr(uop: int, context: int) -> None:
    """Mean and variance of triples."""
    dst, src = arg(uop, 0), arg(uop, 1)
    triples = load_i64(context, C_COLUMNS) // 3
    set_pitch(context, dst, 4 * 2)
    for row in range(load_i64(context, C_ROWS)):
        x = base(context, src) + row * pitch(context, src)
        y = base(context, dst) + row * pitch(context, dst)
        count, total, inside = _ZERO, _ZERO, _ZERO
        for k in range(triples):
            count = count + load_f32(x, 3 * k)
            total = total + load_f32(x, 3 * k) * load_f32(x, 3 * k + 1)
            inside = inside + load_f32(x, 3 * k + 2)
        mean = total / count
        between = _ZERO
        for k in range(triples):
            difference = load_f32(x, 3 * k + 1) - mean
            between = between + load_f32(x, 3 * k) * (difference * difference)
        store_f32(y, 0, quiet(mean))
        store_f32(y, 1, quiet((inside + between) / count))


@inline
def _key(x: Any) -> Any:
    """An int32 that orders as float32 `x` does: both zeros alike, NaN on top."""
    bits = as_i32(f32_bits(x))
    ordered = as_i32(bits ^ as_i32(as_i32(bits >> _SIGN_SHIFT) & _LARGEST_KEY))
    return select(x == x, select(x == _ZERO, np.int32(0), ordered), _LARGEST_KEY)


def max8(uop: int, context: int) -> None:
    """The eight largest values; equal ones keep their order and their bits."""
    dst, src = arg(uop, 0), arg(uop, 1)
    columns = load_i64(context, C_COLUMNS)
    set_pitch(context, dst, 4 * _SLOTS)
    for row in range(load_i64(context, C_ROWS)):
        x = base(context, src) + row * pitch(context, src)
        best = base(context, dst) + row * pitch(context, dst)
        found = 0
        for start in range(0, columns, _CHUNK):
            stop = min(start + _CHUNK, columns)
            if found == _SLOTS:
                smallest = _key(load_f32(best, _SLOTS - 1))
                larger = False
                for i in range(start, stop):
                    larger |= _key(load_f32(x, i)) > smallest
                if not larger:
                    continue
            for i in range(start, stop):
                value = load_f32(x, i)
                key = _key(value)
                if found < _SLOTS or key > _key(load_f32(best, _SLOTS - 1)):
                    slot = min(found, _SLOTS - 1)
                    while slot > 0 and _key(load_f32(best, slot - 1)) < key:
                        store_f32(best, slot, load_f32(best, slot - 1))
                        slot -= 1
                    store_f32(best, slot, value)
                    found = min(found + 1, _SLOTS)


@inline
def _position(x: int, columns: int, wanted: Any, begin: int) -> int:
    """The first column from `begin` that equals `wanted`, or `columns`."""
    while begin < columns:
        stop = min(begin + _CHUNK, columns)
        present = False
        for i in range(begin, stop):
            present |= load_f32(x, i) == wanted
        if present:
            for i in range(begin, stop):
                if load_f32(x, i) == wanted:
                    return i
        begin = stop
    return columns


@inline
def _match(x: int, columns: int, values: int, index: int, slot: int, first: int, step: int) -> int:
    """Find `values[slot]` after the position that the last equal slot took; slots run from `first` by `step`."""
    wanted = load_f32(values, slot)
    begin = 0
    for other in range(first, slot, step):
        if load_f32(values, other) == wanted:
            taken = load_i64(index, other)
            begin = max(begin, taken + 1)
    return _position(x, columns, wanted, begin)


def find_index8(uop: int, context: int) -> None:
    """Positions of eight values."""
    dst, src, values = arg(uop, 0), arg(uop, 1), arg(uop, 2)
    columns, index = load_i64(context, C_COLUMNS), load_i64(context, C_TEMP)
    set_pitch(context, dst, 4 * _SLOTS)
    for row in range(load_i64(context, C_ROWS)):
        x = base(context, src) + row * pitch(context, src)
        v = base(context, values) + row * (4 * _SLOTS)
        y = base(context, dst) + row * pitch(context, dst)
        for slot in range(_SLOTS):
            position = _match(x, columns, v, index, slot, 0, 1)
            store_i64(index, slot, position)
            _store_u32(y, slot, position if position < columns else -1)


def match_replace8(uop: int, context: int) -> None:
    """Positions of eight values, and the data with those elements replaced."""
    dst, found, src, values, bits = arg(uop, 0), arg(uop, 1), arg(uop, 2), arg(uop, 3), arg(uop, 4)
    columns, index = load_i64(context, C_COLUMNS), load_i64(context, C_TEMP)
    set_pitch(context, found, 4 * _SLOTS)
    for row in range(load_i64(context, C_ROWS)):
        x = base(context, src) + row * pitch(context, src)
        v = base(context, values) + row * (4 * _SLOTS)
        y = base(context, dst) + row * pitch(context, dst)
        z = base(context, found) + row * pitch(context, found)
        for i in range(columns):
            store_f32(y, i, load_f32(x, i))
        for slot in range(_SLOTS - 1, -1, -1):
            position = _match(x, columns, v, index, slot, _SLOTS - 1, -1)
            store_i64(index, slot, position)
            _store_u32(z, slot, position if position < columns else -1)
            if position < columns:
                _store_u32(y, position, bits)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "resize": resize,
    "bn_stats": bn_stats,
    "bn_aggr": bn_aggr,
    "max8": max8,
    "find_index8": find_index8,
    "match_replace8": match_replace8,
}


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The function of micro-op `name` and its number of arguments. Raises KeyError when there is none."""
    return _FUNCTIONS[name], 2
