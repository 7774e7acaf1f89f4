"""Ports of the vector engine: every format, any access pattern, any slice of rows over threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.execute.vector_engine import (
    F32,
    assert_same_bits,
    bits,
    memory_of,
    read,
    run,
    sample,
    tile,
    walks,
    words,
    write,
)
from tilelang.dtypes import FORMATS
from tilelang.execute import layout
from tilelang.execute.engines import address

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
Walk = tuple[int, tuple[int, ...], tuple[int, ...], int, int, int]


def canonical(values: np.ndarray) -> np.ndarray:
    """`values` with quiet NaNs of the format, signs kept: rulings.md 17 by way of ml_dtypes."""
    wide = values.astype(F32)
    return np.where(np.isnan(wide), np.copysign(F32(np.nan), wide), wide).astype(values.dtype)


def random_tile(
    rng: np.random.Generator, rows: int, shape: tuple[int, ...], name: str, order: tuple[int, ...]
) -> np.ndarray:
    """A tile of random bits."""
    array = tile(rows, shape, name, order)
    raw = array.view(FORMATS[name].carrier)
    raw[...] = rng.integers(0, 1 << 8 * FORMATS[name].itemsize, array.shape, dtype=np.uint64).astype(raw.dtype)
    return array


@pytest.mark.parametrize("name", FLOATS)
@given(walk=walks())
@settings(max_examples=8)
def test_read_and_write_convert_like_ml_dtypes(name: str, walk: Walk) -> None:
    rows, shape, order, threads, partition, seed = walk
    rng = np.random.default_rng(seed)
    source = random_tile(rng, rows, shape, name, order)
    wide, narrow = tile(rows, shape, "float32", order[::-1]), tile(rows, shape, name, order)
    before = memory_of(narrow).copy()
    columns = int(np.prod(shape))
    options = {"threads": threads, "partition": partition}
    run([*read(0, source, name), *write(0, wide, "float32")], rows, columns, **options)
    run([*read(0, wide, "float32"), *write(0, narrow, name)], rows, columns, **options)
    values = source.astype(F32)
    assert_same_bits(wide, np.where(np.isnan(values), np.copysign(F32(np.nan), values), values))
    assert_same_bits(narrow, canonical(source))
    after = memory_of(narrow).copy()
    memory_of(narrow)[...] = before
    narrow[...] = canonical(source)
    assert np.array_equal(after, memory_of(narrow))


@pytest.mark.parametrize("name", FLOATS)
def test_write_rounds_like_ml_dtypes(name: str) -> None:
    values = sample(np.random.default_rng(5), (37, 700), special=0.05)
    out = tile(37, (700,), name)
    run([*read(0, values, "float32"), *write(0, out, name)], 37, 700)
    with np.errstate(all="ignore"):
        expected = np.where(np.isnan(values), np.copysign(F32(np.nan), values), values).astype(FORMATS[name].host)
    if name != "float8_e4m3fn":
        assert_same_bits(out, expected)
    else:
        finite = np.isfinite(expected.astype(F32))
        assert_same_bits(out[finite], expected[finite])
        assert np.isnan(out[~finite].astype(F32)).all()


@pytest.mark.parametrize("name", INTEGERS)
def test_float_to_integer_rounds_to_even_and_saturates(name: str) -> None:
    values = np.concatenate(
        [sample(np.random.default_rng(6), (1, 900)), F32([[0.5, 1.5, 2.5, -0.5, -1.5, 2**31, 2**32, -(2**31)]])], 1
    )
    out = tile(1, (values.shape[1],), name)
    run([*read(0, values, "float32"), *write(0, out, name)], 1, values.shape[1])
    info = np.iinfo(FORMATS[name].host)
    expected = np.array(
        [0 if np.isnan(v) else int(np.clip(np.rint(np.float64(v)), info.min, info.max)) for v in values[0]], out.dtype
    )
    assert np.array_equal(out[0], expected)


@pytest.mark.parametrize("name", [*INTEGERS, "bool"])
def test_integer_to_float(name: str) -> None:
    source = random_tile(np.random.default_rng(7), 20, (300,), name, (0,))
    if name == "bool":
        source.view(np.uint8)[...] &= 1
    out = np.zeros((20, 300), F32)
    run([*read(0, source, name), *write(0, out, "float32")], 20, 300)
    assert np.array_equal(out, source.astype(F32))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@given(walk=walks(), mirror=st.booleans())
@example(walk=(128, (1,), (0,), 2, 0, 1), mirror=False)
@example(walk=(3, (2, 300), (1, 0), 1, 5, 2), mirror=True)
@settings(max_examples=10)
def test_raw_copies_keep_every_bit(itemsize: int, walk: Walk, mirror: bool) -> None:
    rows, shape, order, threads, partition, seed = walk
    rng = np.random.default_rng(seed)
    name = {1: "uint8", 2: "uint16", 4: "uint32", 8: "int64"}[itemsize]
    source = random_tile(rng, rows, shape, name, order)
    out = tile(rows, shape, name, order[::-1])
    before = memory_of(out).copy()
    view = source[..., ::-1] if mirror else source
    run(
        [layout.gather(0, itemsize, words(view, name)), layout.scatter(0, itemsize, words(out, name))],
        rows,
        int(np.prod(shape)),
        threads=threads,
        partition=partition,
        item=itemsize if itemsize == 8 else 4,
    )
    assert np.array_equal(out, view)
    # The same copy by NumPy touches the same bytes.
    after = memory_of(out).copy()
    memory_of(out)[...] = before
    out[...] = view
    assert np.array_equal(after, memory_of(out))


def test_view_is_the_memory() -> None:
    source = sample(np.random.default_rng(8), (128, 513))
    out = tile(128, (513,), "float32")
    uops = [
        layout.view(0, words(source, "float32")),
        layout.view(1, words(out, "float32")),
        layout.uop("unary.negative", 1, 0),
    ]
    run(uops, 128, 513, threads=3)
    expected = -source
    assert np.array_equal(out[~np.isnan(source)], expected[~np.isnan(source)])


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_only_own_rows_are_written(threads: int) -> None:
    """A thread alone writes exactly the partitions that it owns."""
    for thread in range(threads):
        out = np.zeros((100, 5), np.uint32)
        record, functions, _ = layout.pipeline(
            [layout.fill(0, 4, 7), layout.scatter(0, 4, words(out, "uint32"))], 100, 20, 5
        )
        _call(record, functions, thread, threads)
        owned = np.arange(20, 120)
        owned = (owned >= 128 * thread // threads) & (owned < 128 * (thread + 1) // threads)
        assert np.array_equal(out[:, 0] == 7, owned)


def _call(record: list[int], functions: list[tuple[int, str]], thread: int, threads: int) -> None:
    import ctypes

    scratch = np.zeros(layout.SCRATCH_BYTES * threads + 64, np.uint8)
    for word, name in functions:
        record[word] = address(name)
    record[layout.H_SCRATCH] = -(-scratch.ctypes.data // 64) * 64
    memory = np.array(record, np.int64)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(record[0])(memory.ctypes.data, thread, threads)


@pytest.mark.parametrize("columns", [1, 7, 256, 600])
def test_last_of_several_items_at_one_address_wins(columns: int) -> None:
    source = sample(np.random.default_rng(9), (4, columns), special=0)
    cell = np.zeros((4, 1), F32)
    repeated = np.lib.stride_tricks.as_strided(cell, (4, columns), (cell.strides[0], 0))
    run([*read(0, source, "float32"), *write(0, repeated, "float32")], 4, columns)
    assert np.array_equal(cell[:, 0], source[:, -1])
    pairs = np.lib.stride_tricks.as_strided(cell, (4, columns, 3), (cell.strides[0], 0, 0))
    wide = np.repeat(source, 3, 1)
    run([*read(0, wide, "float32"), *write(0, pairs, "float32")], 4, 3 * columns)
    assert np.array_equal(cell[:, 0], source[:, -1])


def test_broadcast_reads() -> None:
    source = sample(np.random.default_rng(10), (6, 5), special=0)
    view = np.lib.stride_tricks.as_strided(source, (6, 3, 5, 2), (source.strides[0], 0, 4, 0))
    out = np.zeros((6, 30), F32)
    run([*read(0, view, "float32"), *write(0, out, "float32")], 6, 30)
    assert np.array_equal(out, view.reshape(6, 30))


@given(walk=walks(), reverse=st.booleans(), itemsize=st.sampled_from((1, 2, 4)), flag=st.sampled_from((1, 2, 4)))
@settings(max_examples=12)
def test_put_writes_where_the_predicate_holds(walk: Walk, reverse: bool, itemsize: int, flag: int) -> None:
    rows, shape, order, threads, partition, seed = walk
    rng = np.random.default_rng(seed)
    name, flag_name = f"uint{8 * itemsize}", f"uint{8 * flag}"
    source, out = random_tile(rng, rows, shape, name, order), random_tile(rng, rows, shape, name, order[::-1])
    predicate = tile(rows, shape, flag_name, order)
    predicate[...] = rng.integers(0, 3, predicate.shape)
    expected = np.where((predicate != 0) ^ reverse, source, out)
    run(
        [
            *layout.read_items(0, itemsize, words(source, name)),
            *layout.read_bits(1, flag, words(predicate, flag_name)),
            layout.put(0, 1, reverse, itemsize, words(out, name)),
        ],
        rows,
        int(np.prod(shape)),
        threads=threads,
        partition=partition,
    )
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_or_saturate(name: str) -> None:
    rng = np.random.default_rng(11)
    source = rng.integers(-(2**31), 2**31, (9, 400), dtype=np.int64).astype(np.int32)
    source[:, ::3] >>= 20
    wrapped, clipped, back = tile(9, (400,), name), tile(9, (400,), name), np.zeros((9, 400), np.int32)
    size = FORMATS[name].itemsize
    port = layout.read_integer(0, "int32", 4, words(source, "int32"))
    run([*port, *layout.write_integer(0, name, size, words(wrapped, name))], 9, 400)
    run([*port, *layout.write_integer(0, name, size, words(clipped, name), saturate=True)], 9, 400)
    assert np.array_equal(wrapped, source.astype(wrapped.dtype))
    info = np.iinfo(wrapped.dtype)
    if size < 4:
        assert np.array_equal(clipped, np.clip(source, info.min, info.max).astype(clipped.dtype))
    else:
        assert np.array_equal(bits(clipped), bits(source))
    ports = [*layout.read_integer(0, name, size, words(wrapped, name)), layout.scatter(0, 4, words(back, "int32"))]
    run(ports, 9, 400)
    assert np.array_equal(back, wrapped.astype(np.int64).astype(np.int32))


def test_fill_sets_constant_bits() -> None:
    out = tile(30, (3, 100), "float16", (1, 0))
    run([layout.fill(0, 2, 0x3C00), layout.scatter(0, 2, words(out, "float16"))], 30, 300)
    assert (out == 1).all()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3", "int8", "float32"])
def test_row_functions_convert_adjacent_items(name: str) -> None:
    import ctypes

    row = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
    values = np.arange(-50, 51, dtype=F32)
    narrow, back = np.zeros(101, FORMATS[name].host), np.zeros(101, F32)
    row(address(f"row_encode.{name}"))(values.ctypes.data, narrow.ctypes.data, 101)
    row(address(f"row_decode.{name}"))(narrow.ctypes.data, back.ctypes.data, 101)
    assert_same_bits(narrow, values.astype(narrow.dtype))
    assert np.array_equal(back, narrow.astype(F32))


@pytest.mark.parametrize("name", ["bfloat16", "uint8", "int16"])
def test_ports_of_one_record_do_not_meet(name: str) -> None:
    """A contiguous input, a strided one and two outputs, one of each kind: only the outputs change."""
    rng = np.random.default_rng(12)
    dense, sparse = random_tile(rng, 9, (12,), name, (0,)), random_tile(rng, 9, (4, 3), name, (1, 0))
    outs = tile(9, (12,), name), tile(9, (4, 3), name, (1, 0))
    kept = dense.copy(), sparse.copy()
    reads, writes = (read(0, dense, name), read(1, sparse, name)), (write(0, outs[0], name), write(1, outs[1], name))
    run([*reads[0], *reads[1], *writes[0], *writes[1]], 9, 12)
    run([*reads[1], *reads[0], *writes[1], *writes[0]], 9, 12)
    assert_same_bits(dense, kept[0])
    assert_same_bits(sparse, kept[1])
    assert_same_bits(outs[0], canonical(dense))
    assert_same_bits(outs[1], canonical(sparse))
