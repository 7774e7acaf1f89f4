"""The tensor engine's transpose mode: a moving matrix with one non-zero a column picks rows of the stationary, bit
for bit.

`one_hot.<source format>.<dst format>` works on records of `tensor_layout` (the words of a matmul): dst[m, n] =
stationary[k, m] for the first k with
moving[k, n] not zero (row 0 when there is none), converted exactly when the formats differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.dtypes import FORMATS
from tilelang.execute import tensor_layout as at
from tilelang.execute.engines.blocks import element
from tilelang.execute.engines.jit import LOAD, STORE, inline, load_i64
from tilelang.execute.layout import PARTITIONS
from tilelang.numerics import casts

__all__ = ["source"]


def source(name: str) -> tuple[Callable[..., None], int]:
    """The Python function behind the engine name `name`, for the compiler, and its number of int64 arguments."""
    _, given, wanted, moving = name.split(".")
    load = LOAD[FORMATS[given].carrier.name]
    store = STORE[FORMATS[wanted].carrier.name if given == wanted else "float32"]
    probe = LOAD[FORMATS[moving].carrier.name]
    decode_moving = casts.DECODE[moving]
    convert: Callable[[Any], Any] = inline(lambda bits: bits) if given == wanted else casts.DECODE[given]

    def one_hot(record: int, thread: int, nthreads: int) -> None:
        first = load_i64(record, at.FIRST)
        low = max(0, PARTITIONS * thread // nthreads - first)
        high = min(load_i64(record, at.M), PARTITIONS * (thread + 1) // nthreads - first)
        for n in range(load_i64(record, at.N)):
            row = 0
            for k in range(load_i64(record, at.K) - 1, -1, -1):
                if decode_moving(probe(element(record + 8 * at.MOVING, k, n), 0)) != 0:
                    row = k
            for m in range(low, high):
                bits = load(element(record + 8 * at.STATIONARY, row, m), 0)
                store(element(record + 8 * at.DST, m, n), 0, convert(bits))

    return one_hot, 3
