"""Engine functions of selections, on plain records (isa.md 14.3 to 14.5).

| name | parameters | operands |
|---|---|---|
| `bounds.<ids format>.<dst format>` | ids | dst segment_ids |
| `nonzero.<src format>` | columns, index offset, padding | dst src |
| `topk` | K, n, 1: descending | val_dst idx_dst src |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.dtypes import FORMATS
from tilelang.execute import layout as at
from tilelang.execute.engines import plain
from tilelang.execute.engines.blocks import element
from tilelang.execute.engines.jit import LOAD, STORE, inline, load_i64, store_i64
from tilelang.numerics import casts
from tilelang.numerics.prim import as_f32

__all__ = ["source"]

_CORE = 16
_load_u16, _store_u16, _store_u32 = LOAD["uint16"], STORE["uint16"], STORE["uint32"]
_load_i32, _store_i32 = LOAD["int32"], STORE["int32"]
_QUIET_NAN = 0x7FC0
_ALL_WHOLE = 1 << 23  # float32 from here on are integers
_LARGEST_KEY = 0x7FFF


def _bounds(ids: str, wanted: str) -> Callable[..., None]:
    load, store = LOAD[FORMATS[ids].carrier.name], STORE[FORMATS[wanted].carrier.name]
    decode, encode = casts.DECODE[ids], casts.ENCODE[wanted]
    integer = wanted == "int32"

    @inline
    def put(dst: int, column: int, value: int) -> None:
        store(element(dst, 0, column), 0, value if integer else encode(as_f32(value)))

    def bounds(record: int, thread: int, threads: int) -> None:
        if plain.begin(record, thread, threads) >= plain.end(record, thread, threads):
            return
        n = plain.param(record, 0)
        dst, src = plain.operand(record, 1, 0), plain.operand(record, 1, 1)
        for i in range(n):
            value = decode(load(element(src, 0, i), 0))
            infinite = value - value != 0
            if not (value >= 0) or infinite or (value < _ALL_WHOLE and as_f32(int(value)) != value):
                plain.fail(record, at.E_SEGMENT, int(_load_i32(element(src, 0, i), 0)), 0, i)
                return
        start = 0
        while start < n:
            held = load(element(src, 0, start), 0)
            end = start + 1
            while end < n and load(element(src, 0, end), 0) == held:
                end += 1
            padding = decode(held) == 0
            for i in range(start, end):
                put(dst, i, n if padding else start)
                put(dst, n + i, -1 if padding else end)
            start = end

    return bounds


def _nonzero(name: str) -> Callable[..., None]:
    load, is_float = LOAD[FORMATS[name].carrier.name], FORMATS[name].is_float
    decode = casts.DECODE[name]

    @inline
    def present(bits: Any) -> bool:
        return decode(bits) != 0 if is_float else bits != 0

    def nonzero(record: int, thread: int, threads: int) -> None:
        columns, offset, padding = plain.param(record, 0), plain.param(record, 1), plain.param(record, 2)
        dst, src = plain.operand(record, 3, 0), plain.operand(record, 3, 1)
        held = plain.scratch(record, thread)
        first = load_i64(record, at.PLAIN_FIRST)
        for row in range(plain.begin(record, thread, threads), plain.end(record, thread, threads)):
            if (first + row) % _CORE:
                continue
            count = 0
            for i in range(columns):
                if present(load(element(src, row, i), 0)):
                    _store_i32(held, count, i + offset)
                    count += 1
            for i in range(columns):
                _store_i32(element(dst, row, i), 0, _load_i32(held, i) if i < count else padding)
            _store_i32(element(dst, row, columns), 0, count)

    return nonzero


@inline
def _key(bits: int, position: int) -> int:
    """Orders as bfloat16 `bits` do, NaN on top; of equal values the lower position is larger."""
    magnitude = bits & 0x7FFF
    key = -magnitude if bits & 0x8000 else magnitude
    if magnitude > 0x7F80:
        key = _LARGEST_KEY
    return (key << 32) - position


@inline
def _sift(heap: int, root: int, size: int) -> None:
    """Restore the max-heap below `root`."""
    value = load_i64(heap, root)
    child = 2 * root + 1
    while child < size:
        if child + 1 < size and load_i64(heap, child + 1) > load_i64(heap, child):
            child += 1
        if load_i64(heap, child) <= value:
            break
        store_i64(heap, root, load_i64(heap, child))
        root = child
        child = 2 * root + 1
    store_i64(heap, root, value)


def _topk(record: int, thread: int, threads: int) -> None:
    k, n, descending = plain.param(record, 0), plain.param(record, 1), plain.param(record, 2)
    values, indices = plain.operand(record, 3, 0), plain.operand(record, 3, 1)
    src = plain.operand(record, 3, 2)
    heap = plain.scratch(record, thread)
    places = heap + 8 * n
    padded = -(-k // _CORE) * _CORE
    for first in range(0, load_i64(record, at.PLAIN_ROWS), _CORE):
        # A group belongs to the thread that owns its first partition.
        if not plain.begin(record, thread, threads) <= first < plain.end(record, thread, threads):
            continue
        for e in range(n):
            store_i64(heap, e, _key(int(_load_u16(element(src, first + e % _CORE, e // _CORE), 0)), e))
        for root in range(n // 2 - 1, -1, -1):
            _sift(heap, root, n)
        for rank in range(k):
            position = -load_i64(heap, 0) & 0xFFFFFFFF
            store_i64(places, rank if descending else k - 1 - rank, position)
            store_i64(heap, 0, load_i64(heap, n - 1 - rank))
            _sift(heap, 0, n - 1 - rank)
        # All values are read before any is written: the results may lie where the source was.
        for j in range(k):
            position = load_i64(places, j)
            bits = int(_load_u16(element(src, first + position % _CORE, position // _CORE), 0))
            store_i64(heap, j, bits)
        for j in range(padded):
            row, column = first + j % _CORE, j // _CORE
            _store_u16(element(values, row, column), 0, load_i64(heap, j) if j < k else _QUIET_NAN)
            _store_u32(element(indices, row, column), 0, load_i64(places, j) if j < k else 0xFFFFFFFF)


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The engine function `name` and its number of arguments."""
    kind, *rest = name.split(".")
    if kind == "topk":
        return _topk, 3
    make: Any = {"bounds": _bounds, "nonzero": _nonzero}[kind]
    return make(*rest), 3
