"""Pseudo-random numbers: micro-ops that draw, and the engine function that seeds (isa.md 15).

| name | args or parameters | meaning |
|---|---|---|
| `draw` | dst n, then the operand words of the lanes' states | uint32; column f comes from generator f % n |
| `uniform` | dst src | dst = uint32 src as float32 in [0, 1) |
| `between` | dst src low high | dst = low + (high - low) * src; low and high are column registers |
| `reseed` (a plain record) | address of the lanes' states | operand: the (1, 1) seed |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.execute import layout as at
from tilelang.execute.engines import plain
from tilelang.execute.engines.blocks import arg, base, element, make_unary, pitch
from tilelang.execute.engines.jit import LOAD, STORE, load_f32, load_i64, store_f32
from tilelang.execute.layout import C_COLUMN, C_COLUMNS, C_ROW, C_ROWS
from tilelang.numerics import alu, random
from tilelang.numerics.prim import as_u32, as_u64

__all__ = ["source"]

_load, _store = LOAD["uint32"], STORE["uint32"]
_STEP, _STATES, _LANE_BYTES = random.STEP, 4, 4 * random.WORDS
_add, _subtract, _multiply = alu.BINARY["add"], alu.BINARY["subtract"], alu.BINARY["multiply"]
_mixed, _advance = random.mixed, random.advance


def draw(uop: int, context: int) -> None:
    """Each generator advances once for each of its columns."""
    register, generators, operand = arg(uop, 0), arg(uop, 1), uop + 32
    stride = load_i64(operand, at.O_PARTITION_STRIDE)
    lane = load_i64(operand, at.O_ADDRESS) + load_i64(context, C_ROW) * stride
    columns, start = load_i64(context, C_COLUMNS), load_i64(context, C_COLUMN)
    items = base(context, register)
    for _ in range(load_i64(context, C_ROWS)):
        for g in range(generators):
            state = lane + 24 * g
            x, y, z, w = _load(state, 0), _load(state, 1), _load(state, 2), _load(state, 3)
            v, d = _load(state, 4), _load(state, 5)
            for i in range((g - start) % generators, columns, generators):
                t = _advance(x, v)
                x, y, z, w, v = y, z, w, v, t
                d = as_u32(d + _STEP)
                _store(items, i, as_u32(v + d))
            _store(state, 0, x)
            _store(state, 1, y)
            _store(state, 2, z)
            _store(state, 3, w)
            _store(state, 4, v)
            _store(state, 5, d)
        lane += stride
        items += pitch(context, register)


def between(uop: int, context: int) -> None:
    """Uniform numbers moved into the interval of their row."""
    dst, src = arg(uop, 0), arg(uop, 1)
    lows, highs = base(context, arg(uop, 2)), base(context, arg(uop, 3))
    write, read = base(context, dst), base(context, src)
    for row in range(load_i64(context, C_ROWS)):
        low = load_f32(lows, row)
        span = _subtract(load_f32(highs, row), low)
        for i in range(load_i64(context, C_COLUMNS)):
            store_f32(write, i, _add(low, _multiply(span, load_f32(read, i))))
        write += pitch(context, dst)
        read += pitch(context, src)


def reseed(record: int, thread: int, threads: int) -> None:
    """The vector engine's generators of this thread's lanes."""
    seed = as_u64(_load(element(plain.operand(record, 1, 0), 0, 0), 0))
    for lane in range(at.PARTITIONS * thread // threads, at.PARTITIONS * (thread + 1) // threads):
        state = plain.param(record, 0) + lane * _LANE_BYTES
        for word in range(_STATES * random.GENERATOR):
            _store(state, word, _mixed(seed, as_u64(lane * random.WORDS + word)))


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The function `name` and its number of arguments."""
    if name == "reseed":
        return reseed, 3
    if name == "uniform":
        return make_unary(random.uniform, "uint32", "float32"), 2
    return {"draw": draw, "between": between}[name], 2
