"""The DMA engines against NumPy: copies, casts, transposes, gathers, scatters, fills, on 1 to 3 threads."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS
from tilelang.execute import _dma, _sequencer
from tilelang.execute import dma_layout as dma
from tilelang.execute.layout import H_FLAGS, H_FN, H_INDEX, H_LENGTH, H_SCRATCH, H_STATUS, HEADER_WORDS, SCRATCH_BYTES

Array = NDArray[Any]
ROW_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "int64"}
THREADS = (1, 2, 3)


def _array(address: int, count: int, dtype: Any) -> Array:
    nbytes = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)


def _row_function(source: Any, target: Any) -> Any:
    def convert(src: int, dst: int, n: int) -> None:
        _array(dst, n, target)[:] = _array(src, n, source).astype(target)

    return ROW_FUNCTION(convert)


ROW_FUNCTIONS = {
    "row_decode.bfloat16": _row_function(ml_dtypes.bfloat16, np.float32),
    "row_encode.bfloat16": _row_function(np.float32, ml_dtypes.bfloat16),
    "row_decode.float32": _row_function(np.float32, np.float32),
    "row_encode.float32": _row_function(np.float32, np.float32),
    "row_decode.float16": _row_function(np.float16, np.float32),
}


class Machine:
    """Runs records one by one; the status block stays for inspection."""

    def __init__(self) -> None:
        self.status = np.zeros(8, np.int64)
        self.scratch = np.zeros(max(THREADS) * SCRATCH_BYTES, np.uint8)

    def run(self, record: dma.DmaRecord, nthreads: int, **arrays: Array) -> int:
        words = list(record.words)
        assert len(words) == words[H_LENGTH]
        words[H_INDEX], words[H_STATUS], words[H_SCRATCH] = 77, self.status.ctypes.data, self.scratch.ctypes.data
        words[H_FLAGS] = _sequencer.FALLIBLE
        for word, name in record.operands:
            assert words[word] == 0
            words[word] = arrays[name].ctypes.data
        for word, name in record.engines:
            found = _dma.address(name) if name.startswith("dma.") else ctypes.cast(ROW_FUNCTIONS[name], ctypes.c_void_p).value
            assert found is not None
            words[word] = found
        end = [_sequencer.END, HEADER_WORDS, 0, 0, self.status.ctypes.data, 0, 0, 0]
        return int(_sequencer.run(np.array(words + end, np.int64), self.status, 0, nthreads))


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


def region(array: Array, partition: int | None = None, fmt: str | None = None) -> dma.Region:
    return dma.Region(fmt or BITS_NAME[array.dtype.itemsize], array.shape, array.strides, partition)


BITS_NAME = {1: "uint8", 2: "uint16", 4: "uint32", 8: "int64"}


def distinct(shape: tuple[int, ...], itemsize: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (*shape, itemsize), np.uint8).view(BITS[itemsize]).reshape(shape)


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...], itemsize: int, seed: int) -> Array:
    """A random view of `shape`: dims permuted in storage, padded and possibly reversed."""
    order = draw(st.permutations(range(len(shape))))
    padding = draw(st.lists(st.integers(1, 3), min_size=len(shape), max_size=len(shape)))
    signs = draw(st.lists(st.sampled_from([1, 1, 1, -1]), min_size=len(shape), max_size=len(shape)))
    storage = distinct(tuple(shape[d] * padding[d] for d in order), itemsize, seed)
    view = storage[tuple(slice(None, None, padding[d]) for d in order)].transpose(np.argsort(order))
    return view[tuple(slice(None, None, s) for s in signs)]


@st.composite
def factorings(draw: st.DrawFn, total_primes: list[int]) -> tuple[int, ...]:
    """A shape of up to six dims whose product is that of the primes."""
    ndim = draw(st.integers(1, 6))
    shape = [1] * ndim
    for prime in draw(st.permutations(total_primes)):
        shape[draw(st.integers(0, ndim - 1))] *= prime
    return tuple(shape)


def check_copy(machine: Machine, dst: Array, src: Array, nthreads: int, dst_part: int | None, src_part: int | None) -> None:
    """Copies and compares the whole storage of dst, so that a stray write shows."""
    base = dst.base if dst.base is not None else dst
    before = base.copy()
    expected = base.copy()
    delta = dst.ctypes.data - base.ctypes.data
    image = np.ndarray(dst.shape, dst.dtype, expected.data, delta, dst.strides)
    image[...] = src.reshape(dst.shape)
    record = dma.copy(region(dst, dst_part), region(src, src_part))
    assert machine.run(record, nthreads, dst=dst, src=src) == _sequencer.FINE
    assert np.array_equal(base, expected)
    base[...] = before


@given(data=st.data())
def test_copy_equals_numpy(machine: Machine, data: st.DataObject) -> None:
    itemsize = data.draw(st.sampled_from([1, 2, 4, 8]))
    primes = data.draw(st.lists(st.sampled_from([2, 2, 2, 3, 5, 7]), max_size=8))
    dst_shape, src_shape = data.draw(factorings(primes)), data.draw(factorings(primes))
    dst = data.draw(views(dst_shape, itemsize, 1))
    src = data.draw(views(src_shape, itemsize, 2))
    nthreads = data.draw(st.sampled_from(THREADS))
    dst_part = data.draw(st.integers(0, 128 - dst_shape[0])) if dst_shape[0] <= 128 and data.draw(st.booleans()) else None
    src_part = data.draw(st.integers(0, 128 - src_shape[0])) if src_shape[0] <= 128 and data.draw(st.booleans()) else None
    check_copy(machine, dst, src, nthreads, dst_part, src_part)
