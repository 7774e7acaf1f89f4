"""What the tests of the vector engine share: tiles in memory, records, and calls of the engine on several threads."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS
from tilelang.execute import layout
from tilelang.execute.engines import addresses
from tilelang.execute.layout import Uop

F32 = np.float32
MAX_THREADS = 4
GUARD = 0xA5
_ENGINE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_scratch = np.zeros(layout.SCRATCH_BYTES * MAX_THREADS + layout.SCRATCH_ALIGN, np.uint8)

SPECIAL = np.array(
    [
        0x00000000,
        0x80000000,
        0x3F800000,
        0xBF800000,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0xFFC00001,
        0x7F800001,
        0x00000001,
        0x80000001,
        0x007FFFFF,
        0x00800000,
        0x7F7FFFFF,
        0xFF7FFFFF,
        0x40490FDB,
        0x33800000,
        0x4B800001,
    ],
    np.uint32,
).view(F32)


def sample(rng: np.random.Generator, shape: tuple[int, ...], special: float = 0.1) -> NDArray[F32]:
    """Float32 values of many magnitudes, a share of them special."""
    values = (rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 13, shape)).astype(F32)
    chosen = rng.random(shape) < special
    values[chosen] = rng.choice(SPECIAL, int(chosen.sum()))
    return values


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """The bit patterns of an array."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def assert_same_bits(got: NDArray[Any], expected: NDArray[Any]) -> None:
    """Both arrays are of one dtype and agree in every bit."""
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(bits(got), bits(expected))


def tile(rows: int, shape: Sequence[int], name: str, order: Sequence[int] | None = None, pad: int = 3) -> NDArray[Any]:
    """An empty tile of `rows` partitions by `shape`, between guard bytes; `order`: of its free dims in memory."""
    dtype = FORMATS[name].host
    order = list(range(len(shape))) if order is None else list(order)
    memory = np.empty((rows, *(shape[k] + pad for k in order)), dtype)
    memory.view(np.uint8)[...] = GUARD
    inner = memory[(slice(None), *(slice(1, 1 + shape[k]) for k in order))]
    return inner.transpose(0, *(1 + order.index(k) for k in range(len(shape))))


def memory_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """All bytes of the memory that a tile is a view of."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return base.view(np.uint8)


def words(array: NDArray[Any], name: str) -> list[int]:
    """The operand words of a view `[partition, free dims…]`."""
    form = FORMATS[name]
    assert array.dtype.itemsize == form.itemsize
    dims = list(zip(array.shape[1:], array.strides[1:]))
    return layout.operand(form.code, form.itemsize, array.strides[0], dims, array.ctypes.data)


def read(register: int, array: NDArray[Any], name: str, columns: int = 0) -> list[Uop]:
    """The read port of a tile."""
    return layout.read(register, name, FORMATS[name].itemsize, words(array, name), columns)


def write(register: int, array: NDArray[Any], name: str) -> list[Uop]:
    """The write port of a tile."""
    return layout.write(register, name, FORMATS[name].itemsize, words(array, name))


def run(uops: Iterable[Uop], rows: int, columns: int, *, threads: int = 1, partition: int = 0, **options: int) -> None:
    """Encode one pipeline record and run it, thread after thread."""
    record, functions, _ = layout.pipeline(list(uops), rows, partition, columns, **options)
    found = addresses(name for _, name in functions)
    for word, name in functions:
        record[word] = found[name]
    aligned = -(-_scratch.ctypes.data // layout.SCRATCH_ALIGN) * layout.SCRATCH_ALIGN
    record[layout.H_SCRATCH] = aligned
    memory = np.array(record, np.int64)
    engine = _ENGINE(record[layout.H_FN])
    for thread in reversed(range(threads)):
        engine(memory.ctypes.data, thread, threads)


def apply(uops: Iterable[Uop], inputs: Sequence[NDArray[F32]], result: int, **options: int) -> NDArray[F32]:
    """Run micro-ops on float32 tiles `[P, F]` in registers 0, 1, …; returns register `result`, of the same shape."""
    rows, columns = inputs[0].shape
    out = np.zeros((rows, columns), F32)
    ports = [
        uop
        for k, array in enumerate(inputs)
        for uop in read(k, array, "float32", 0 if array.shape[1] == columns else 1)
    ]
    run([*ports, *uops, layout.scatter(result, 4, words(out, "float32"))], rows, columns, **options)
    return out


@st.composite
def walks(draw: st.DrawFn) -> tuple[int, tuple[int, ...], tuple[int, ...], int, int, int]:
    """(rows, free shape, memory order of the free dims, threads, first partition, seed)."""
    rows = draw(st.integers(1, 128))
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, {1: 600, 2: 30, 3: 9, 4: 5}[rank])) for _ in range(rank))
    order = tuple(draw(st.permutations(range(rank))))
    threads = draw(st.sampled_from((1, 2, 3, 4)))
    partition = draw(st.integers(0, 128 - rows))
    return rows, shape, order, threads, partition, draw(st.integers(0, 2**32 - 1))
