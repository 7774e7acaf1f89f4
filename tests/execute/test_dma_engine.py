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
from tilelang.execute.layout import H_FLAGS, H_INDEX, H_LENGTH, H_SCRATCH, H_STATUS, HEADER_WORDS, SCRATCH_BYTES

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
            found = (
                _dma.address(name)
                if name.startswith("dma.")
                else ctypes.cast(ROW_FUNCTIONS[name], ctypes.c_void_p).value
            )
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


def check_copy(
    machine: Machine, dst: Array, src: Array, nthreads: int, dst_part: int | None, src_part: int | None
) -> None:
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
    dst_part = (
        data.draw(st.integers(0, 128 - dst_shape[0])) if dst_shape[0] <= 128 and data.draw(st.booleans()) else None
    )
    src_part = (
        data.draw(st.integers(0, 128 - src_shape[0])) if src_shape[0] <= 128 and data.draw(st.booleans()) else None
    )
    check_copy(machine, dst, src, nthreads, dst_part, src_part)


@given(data=st.data())
def test_overlapping_copy_reads_everything_first(machine: Machine, data: st.DataObject) -> None:
    storage = distinct((40, 24), 4)
    rows, columns = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 12))
    corners = [(data.draw(st.integers(0, 20)), data.draw(st.integers(0, 12))) for _ in range(2)]
    dst, src = (storage[r : r + rows, c : c + columns] for r, c in corners)
    if rows == columns and data.draw(st.booleans()):
        src = src.T
    expected = storage.copy()
    (r, c) = corners[0]
    expected[r : r + rows, c : c + columns] = src
    record = dma.copy(region(dst, 0), region(src, 0), overlap=True)
    assert record.mode == dma.SERIAL
    assert machine.run(record, data.draw(st.sampled_from(THREADS)), dst=dst, src=src) == _sequencer.FINE
    assert np.array_equal(storage, expected)


@pytest.mark.parametrize("strides", [(0, 4), (4, 4), (8, 4), (4, 0), (0, 0), (4, 12)])
@pytest.mark.parametrize("nthreads", THREADS)
def test_last_write_wins_where_dst_meets_itself(machine: Machine, strides: tuple[int, int], nthreads: int) -> None:
    storage, src = np.zeros(64, np.uint32), distinct((4, 6), 4)
    expected = storage.copy()
    for i, j in np.ndindex(4, 6):
        expected[(i * strides[0] + j * strides[1]) // 4] = src[i, j]
    target = dma.Region("uint32", (4, 6), strides, 0)
    assert not dma.is_injective(target)
    record = dma.copy(target, region(src))
    assert record.mode == dma.SERIAL
    assert machine.run(record, nthreads, dst=storage, src=src) == _sequencer.FINE
    assert np.array_equal(storage, expected)


def test_modes_follow_ownership() -> None:
    hbm, chip = dma.Region("uint8", (4, 8), (8, 1)), dma.Region("uint8", (4, 8), (4096, 1), 32)
    assert [dma.copy(a, b).mode for a in (hbm, chip) for b in (hbm, chip)] == [
        dma.EVEN,
        dma.BY_SRC,
        dma.BY_DST,
        dma.BY_DST,
    ]
    assert dma.copy(chip, hbm).words[dma.FIRST : dma.ROW_ITEMS + 1] == [32, 4, 8]
    square = dma.Region("uint8", (8, 4), (4, 1))
    assert dma.transpose(square, chip, (1, 0)).mode == dma.EVEN  # no thread owns a column


@pytest.mark.parametrize("mode", [dma.BY_DST, dma.BY_SRC])
@pytest.mark.parametrize("thread", range(4))
def test_threads_touch_their_own_partitions_only(machine: Machine, mode: int, thread: int) -> None:
    dst, src = np.zeros((50, 6), np.uint16), distinct((50, 6), 2) | 1
    side = {dma.BY_DST: (60, None), dma.BY_SRC: (None, 60)}[mode]
    record = dma.copy(region(dst, side[0]), region(src, side[1]))
    words = np.array(record.words, np.int64)
    words[[H_STATUS, H_SCRATCH]] = machine.status.ctypes.data, machine.scratch.ctypes.data
    words[[dma.DST, dma.SRC]] = dst.ctypes.data, src.ctypes.data
    engine = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_dma.address("copy"))
    machine.status[:] = 0
    engine(words.ctypes.data, thread, 4)
    owned = np.arange(60, 110) // 32 == thread
    assert np.array_equal(dst, np.where(owned[:, None], src, 0))


# ---- casts ----

_HOST = {"bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float16": np.float16}


@given(data=st.data())
def test_cast_goes_through_float32(machine: Machine, data: st.DataObject) -> None:
    names = data.draw(st.sampled_from([("bfloat16", "float32"), ("float32", "bfloat16"), ("bfloat16", "float16")]))
    dst_fmt, src_fmt = names
    primes = data.draw(st.lists(st.sampled_from([2, 3, 5]), max_size=6))
    src_bits = data.draw(views(data.draw(factorings(primes)), FORMATS[src_fmt].itemsize, 3))
    dst_bits = data.draw(views(data.draw(factorings(primes)), FORMATS[dst_fmt].itemsize, 4))
    values = np.random.default_rng(5).standard_normal(src_bits.shape).astype(_HOST[src_fmt])
    src_bits[...] = values.view(src_bits.dtype)
    expected = values.astype(np.float32).astype(_HOST[dst_fmt]).reshape(dst_bits.shape)
    record = dma.copy(region(dst_bits, fmt=dst_fmt), region(src_bits, fmt=src_fmt))
    assert machine.run(record, data.draw(st.sampled_from(THREADS)), dst=dst_bits, src=src_bits) == _sequencer.FINE
    assert np.array_equal(dst_bits, expected.view(dst_bits.dtype))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("nthreads", THREADS)
def test_cast_of_many_chunks(machine: Machine, transposed: bool, nthreads: int) -> None:
    values = np.random.default_rng(6).standard_normal((100, 333)).astype(np.float32)
    target = np.zeros((333, 100) if transposed else (100, 333), np.uint16)
    view = target.T if transposed else target
    record = dma.copy(region(view, 28, "bfloat16"), region(values, fmt="float32"))
    assert machine.run(record, nthreads, dst=target, src=values) == _sequencer.FINE
    assert np.array_equal(view, values.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_overlapping_cast(machine: Machine) -> None:
    storage = np.random.default_rng(7).standard_normal(6000).astype(np.float32)
    expected = storage[:5000].astype(ml_dtypes.bfloat16).view(np.uint16)
    target = storage.view(np.uint16)[3:5003]
    record = dma.copy(region(target, fmt="bfloat16"), region(storage[:5000], fmt="float32"), overlap=True)
    assert machine.run(record, 2, dst=target, src=storage) == _sequencer.FINE
    assert np.array_equal(target, expected)


# ---- transposes ----


@pytest.mark.parametrize("axes", [(1, 0), (2, 1, 0), (3, 1, 2, 0)])
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("nthreads", THREADS)
def test_transpose(machine: Machine, axes: tuple[int, ...], itemsize: int, nthreads: int) -> None:
    src = distinct((*(33, 5, 18)[: len(axes) - 1], 70), itemsize)
    shape = tuple(src.shape[a] for a in axes)
    size = prod(shape[1:])
    storage = distinct((shape[0], size + 7), itemsize, 1)
    dst = np.lib.stride_tricks.as_strided(
        storage, shape, (storage.strides[0], *np.empty(shape[1:], storage.dtype).strides)
    )
    expected = storage.copy()
    expected[:, :size] = src.transpose(axes).reshape(shape[0], size)
    record = dma.transpose(region(dst, 1), region(src), axes)
    assert record.mode == dma.BY_DST
    assert machine.run(record, nthreads, dst=storage, src=src) == _sequencer.FINE
    assert np.array_equal(storage, expected)


@pytest.mark.parametrize(
    "formats", [("uint8", "uint8"), ("bfloat16", "bfloat16"), ("float32", "float32"), ("int32", "uint32")]
)
@pytest.mark.parametrize("nthreads", THREADS)
def test_pe_transpose_moves_bits(machine: Machine, formats: tuple[str, str], nthreads: int) -> None:
    data = distinct((100, 2, 63), FORMATS[formats[1]].itemsize)
    dst = np.zeros((126, 100), data.dtype)
    record = dma.pe_transpose(region(dst, 2, formats[0]), region(data, 5, formats[1]))
    assert machine.run(record, nthreads, dst=dst, src=data) == _sequencer.FINE
    assert np.array_equal(dst, data.reshape(100, 126).T)


@pytest.mark.parametrize("nthreads", THREADS)
def test_pe_transpose_widens(machine: Machine, nthreads: int) -> None:
    data = distinct((100, 126), 1)
    dst = np.zeros((126, 100), np.uint16)
    record = dma.pe_transpose(region(dst, 2, "bfloat16"), region(data, 5, "float8_e4m3"))
    assert machine.run(record, nthreads, dst=dst, src=data) == _sequencer.FINE
    assert np.array_equal(dst, data.T)
    wide = np.zeros((126, 100), np.float32)
    values = np.random.default_rng(8).standard_normal((100, 126)).astype(ml_dtypes.bfloat16)
    record = dma.pe_transpose(region(wide, 2, "float32"), region(values.view(np.uint16), 5, "bfloat16"))
    assert machine.run(record, nthreads, dst=wide, src=values) == _sequencer.FINE
    assert np.array_equal(wide, values.T.astype(np.float32))


# ---- fills ----


@given(data=st.data())
def test_fill(machine: Machine, data: st.DataObject) -> None:
    itemsize = data.draw(st.sampled_from([1, 2, 4, 8]))
    shape = data.draw(factorings([2, 2, 3, 5]))
    dst = data.draw(views(shape, itemsize, 9))
    bits = data.draw(st.integers(0, 2 ** (8 * itemsize) - 1))
    expected = dst.base.copy()
    image = np.ndarray(dst.shape, dst.dtype, expected.data, dst.ctypes.data - dst.base.ctypes.data, dst.strides)
    image[...] = np.array([bits], np.uint64).astype(f"uint{8 * itemsize}").view(dst.dtype)[0]
    partition = data.draw(st.sampled_from([None, 3]))
    record = dma.fill(region(dst, partition), bits)
    assert machine.run(record, data.draw(st.sampled_from(THREADS)), dst=dst) == _sequencer.FINE
    assert np.array_equal(dst.base, expected)


def test_large_fill_and_copy(machine: Machine) -> None:
    a, b = np.zeros((1000, 1111), np.uint32), np.zeros((1111, 1000), np.uint32)
    assert machine.run(dma.fill(region(a), 0x7FC00000), 3, dst=a) == _sequencer.FINE
    assert (a == 0x7FC00000).all()
    a[...] = distinct(a.shape, 4)
    assert machine.run(dma.copy(region(b), region(a.T)), 3, dst=b, src=a) == _sequencer.FINE
    assert np.array_equal(b, a.T)


# ---- gathers and scatters ----


def index_region(index: Array, fmt: str) -> dma.Region:
    return dma.Region(fmt, index.shape, index.strides, 0)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int8", "uint16", "int64"])
@pytest.mark.parametrize("on_chip", [False, True])
@pytest.mark.parametrize("nthreads", THREADS)
def test_gather_rows(machine: Machine, dtype: str, on_chip: bool, nthreads: int) -> None:
    table, dst = distinct((50, 3, 40), 2), np.zeros((96, 60), np.uint16)
    index = np.zeros((96, 8), dtype)[:, :1]
    index[:, 0] = np.random.default_rng(10).integers(0, 50, 96)
    rows = table[:, ::2, 5:35]
    src = dma.Region("uint16", (96, *rows.shape[1:]), (0, *rows.strides[1:]))
    record = dma.gather(region(dst, 32 if on_chip else None), src, index_region(index, dtype), table.strides[0], 50)
    assert record.mode == (dma.BY_DST if on_chip else dma.EVEN)
    assert machine.run(record, nthreads, dst=dst, src=rows, index=index) == _sequencer.FINE
    assert np.array_equal(dst, rows[index[:, 0]].reshape(96, 60))


@pytest.mark.parametrize("shape", [(32, 180), (5760,), (2, 48, 60), (96, 2, 2, 15)])
@pytest.mark.parametrize("is_scatter", [False, True])
@pytest.mark.parametrize("nthreads", THREADS)
def test_direct_side_may_have_any_shape(
    machine: Machine, shape: tuple[int, ...], is_scatter: bool, nthreads: int
) -> None:
    table, direct = distinct((200, 60), 4), distinct(shape, 4, 1)
    index = np.random.default_rng(11).permutation(200)[:96].astype(np.int32)[:, None]
    expected, gathered = table.copy(), table[index[:, 0]].reshape(shape)
    expected[index[:, 0]] = direct.reshape(96, 60)
    rows = dma.Region("uint32", (96, 60), (0, 4))
    if is_scatter:
        record = dma.scatter(rows, region(direct, 0), index_region(index, "int32"), 240, 200)
        assert machine.run(record, nthreads, dst=table, src=direct, index=index) == _sequencer.FINE
        assert np.array_equal(table, expected)
    else:
        record = dma.gather(region(direct, 0), rows, index_region(index, "int32"), 240, 200)
        assert machine.run(record, nthreads, dst=direct, src=table, index=index) == _sequencer.FINE
        assert np.array_equal(direct, gathered)


@pytest.mark.parametrize("nthreads", THREADS)
def test_scatter_takes_the_last_of_equal_indices(machine: Machine, nthreads: int) -> None:
    table, src = distinct((10, 33), 1), distinct((128, 33), 1, 1)
    index = np.random.default_rng(12).integers(0, 10, (128, 1)).astype(np.uint32)
    expected = table.copy()
    for row in range(128):
        expected[index[row, 0]] = src[row]
    record = dma.scatter(dma.Region("uint8", (128, 33), (0, 1)), region(src, 0), index_region(index, "uint32"), 33, 10)
    assert machine.run(record, nthreads, dst=table, src=src, index=index) == _sequencer.FINE
    assert np.array_equal(table, expected)


@pytest.mark.parametrize("is_scatter", [False, True])
@pytest.mark.parametrize("nthreads", THREADS)
def test_invalid_index_is_an_error_or_skipped(machine: Machine, is_scatter: bool, nthreads: int) -> None:
    table, direct = distinct((10, 4), 4), distinct((128, 4), 4, 1)
    index = (np.arange(128) % 10).astype(np.int32)[:, None]
    index[[9, 70, 127], 0] = [10, -1, 2**31 - 1]
    valid = (index[:, 0] >= 0) & (index[:, 0] < 10)
    rows, before = dma.Region("uint32", (128, 4), (0, 4)), (table.copy(), direct.copy())
    for skip in (False, True):
        if is_scatter:
            record = dma.scatter(rows, region(direct, 0), index_region(index, "int32"), 16, 10, skip)
            code = machine.run(record, nthreads, dst=table, src=direct, index=index)
        else:
            record = dma.gather(region(direct, 0), rows, index_region(index, "int32"), 16, 10, skip)
            code = machine.run(record, nthreads, dst=direct, src=table, index=index)
        if not skip:
            assert code == _sequencer.INDEX
            assert machine.status[:5].tolist() == [_sequencer.INDEX, 77, 10, 10, 9]
            assert np.array_equal(table, before[0])
            assert np.array_equal(direct, before[1])
    assert code == _sequencer.FINE
    for row in np.flatnonzero(valid):
        if is_scatter:
            before[0][index[row, 0]] = direct[row]
        else:
            before[1][row] = table[index[row, 0]]
    assert np.array_equal(table, before[0])
    assert np.array_equal(direct, before[1])


@pytest.mark.parametrize("is_scatter", [False, True])
@pytest.mark.parametrize("nthreads", THREADS)
def test_indirect_cast(machine: Machine, is_scatter: bool, nthreads: int) -> None:
    rng = np.random.default_rng(13)
    table = rng.standard_normal((50, 70)).astype(np.float32)
    direct = rng.standard_normal((40, 70)).astype(ml_dtypes.bfloat16)
    index = rng.permutation(50)[:40].astype(np.int32)[:, None]
    rows, near = dma.Region("float32", (40, 70), (0, 4)), dma.Region("bfloat16", (40, 70), (140, 2), 3)
    expected = table.copy()
    if is_scatter:
        expected[index[:, 0]] = direct.astype(np.float32)
        record = dma.scatter(rows, near, index_region(index, "int32"), 280, 50)
        assert machine.run(record, nthreads, dst=table, src=direct, index=index) == _sequencer.FINE
        assert np.array_equal(table, expected)
    else:
        record = dma.gather(near, rows, index_region(index, "int32"), 280, 50)
        assert machine.run(record, nthreads, dst=direct, src=table, index=index) == _sequencer.FINE
        assert np.array_equal(direct.view(np.uint16), table[index[:, 0]].astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("axes", [(1, 0), (2, 1, 0), (3, 1, 2, 0)])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("nthreads", THREADS)
def test_gather_transposed(machine: Machine, axes: tuple[int, ...], skip: bool, nthreads: int) -> None:
    # 160 of the 2 x 128 entries of the index tile count, column by column.
    inner = (3, 1, 50)[3 - (len(axes) - 1) :]
    table, index = distinct((300, *inner), 2), np.zeros((128, 4), np.uint32)[:, ::2]
    index[...] = np.random.default_rng(14).integers(0, 300, (128, 2))
    flat = index.T.ravel()[:160].copy()
    limit = 280 if skip else 300
    shape = tuple((160, *inner)[a] for a in axes)
    dst = distinct(shape, 2, 1)
    expected = np.where(flat < limit, table[flat].transpose(axes), dst)
    src = dma.Region("uint16", (160, *inner), (0, *table.strides[1:]))
    record = dma.gather_transposed(
        region(dst, 4), src, index_region(index, "uint32"), axes, table.strides[0], limit, skip
    )
    assert record.mode == dma.BY_DST
    assert machine.run(record, nthreads, dst=dst, src=table, index=index) == _sequencer.FINE
    assert np.array_equal(dst, expected)


# ---- builders ----


def test_builders_refuse_what_does_not_fit() -> None:
    a, b = dma.Region("uint8", (4, 8), (8, 1)), dma.Region("uint8", (4, 9), (9, 1))
    index = dma.Region("int32", (4, 1), (4, 4), 0)
    with pytest.raises(ValueError, match="element count"):
        dma.copy(a, b)
    with pytest.raises(ValueError, match="element count"):
        dma.gather(a, b, index, 8, 4)
    with pytest.raises(ValueError, match="as many indices"):
        dma.gather(dma.Region("uint8", (8, 4), (4, 1)), dma.Region("uint8", (8, 4), (0, 1)), index, 8, 4)
    with pytest.raises(ValueError, match="transposed by"):
        dma.gather_transposed(a, a, index, (1, 0), 8, 4)
    seven = dma.Region("uint8", (2,) * 7, tuple(3**k for k in range(7)))
    with pytest.raises(ValueError, match="at most 6 dims"):
        dma.dma_operand(seven)
    merged = dma.dma_operand(dma.Region("uint8", (2,) * 8, (64, 32, 16, 8, 4, 2, 1, 1)))
    assert merged[2:15] == [2, 1, 1, 1, 1, 128, 2, 0, 0, 0, 0, 1, 1]


def test_stop_flag_ends_a_copy(machine: Machine) -> None:
    dst, src = np.zeros(1 << 20, np.uint8), distinct((1 << 20,), 1)
    words = np.array(dma.copy(region(dst), region(src)).words, np.int64)
    words[[H_STATUS, H_SCRATCH]] = machine.status.ctypes.data, machine.scratch.ctypes.data
    words[[dma.DST, dma.SRC]] = dst.ctypes.data, src.ctypes.data
    engine = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_dma.address("copy"))
    for stopped in (1, 0):
        machine.status[:] = [0] * 7 + [stopped]
        engine(words.ctypes.data, 0, 1)
        assert np.array_equal(dst, src) is not bool(stopped)


def test_addresses() -> None:
    assert _dma.address("dma.copy") == _dma.address("copy") != 0
    with pytest.raises(KeyError):
        _dma.address("paste")
