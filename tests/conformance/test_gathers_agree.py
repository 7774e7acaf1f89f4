"""Gathers, shuffles, searches and selections (isa.md 10.8-10.10, 12.5, 12.17, 14.3-14.5): every mode agrees with the
others, and with the definition written out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.conformance.harness import MODES, bits, result_of, rng_for, run_everywhere, sample, tile_of, token
from tilelang.errors import TileBoundsError

DTYPES = ("float32", "bfloat16", "float8_e4m3", "int32", "uint16", "uint8")


def out_of_range(kernel: Callable[..., Any], args: list[Any], match: str, rule: str) -> None:
    for mode, threads in MODES:
        with pytest.raises(TileBoundsError, match=match) as caught:
            tilelang.simulate(kernel, mode=mode, threads=threads, target="trn3")(*args)
        assert caught.value.diagnostics[0].rule == rule and caught.value.diagnostics[0].site is not None


# -- nc_stream_shuffle


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "wanted"), [(128, 128), (64, 33), (32, 7), (96, 96)])
def test_shuffle(dtype: str, rows: int, wanted: int) -> None:
    rng = rng_for("shuffle", dtype, rows)
    mask = [int(m) if rng.random() < 0.8 else 255 for m in rng.integers(0, 32, 32)]
    before, x = sample(rng, (wanted, 24), dtype, 0), sample(rng, (rows, 24), dtype, 0)

    def kernel(before: Any, x: Any) -> Any:
        dst = tile_of(before, "sbuf")
        nisa.nc_stream_shuffle(dst, tile_of(x, "sbuf"), mask)
        return result_of(dst)

    expected = before.copy()
    for d in range(wanted):
        if mask[d % 32] != 255:
            expected[d] = x[d // 32 * 32 + mask[d % 32]]
    got = run_everywhere(kernel, [before, x])[0]
    assert np.array_equal(bits(got), bits(expected))


@pytest.mark.parametrize("shift", [0, 4])
def test_shuffle_reads_before_it_writes(shift: int) -> None:
    x = sample(rng_for("in place"), (128, 40), "float32", 0)
    mask = [(i + 1) % 32 for i in range(32)]

    def kernel(x: Any) -> Any:
        tile = tile_of(x, "sbuf")
        nisa.nc_stream_shuffle(tile[:, 0 : 40 - shift], tile[:, shift:40], mask)
        return result_of(tile)

    expected = x.copy()
    for d in range(128):
        expected[d, : 40 - shift] = x[d // 32 * 32 + mask[d % 32], shift:]
    assert np.array_equal(run_everywhere(kernel, [x])[0], expected)


def test_shuffle_of_strided_views_and_the_vector() -> None:
    x = sample(rng_for("strided"), (64, 4, 6), "int32", 0)

    def kernel(x: Any) -> Any:
        tile, dst = tile_of(x, "sbuf"), nl.ndarray((64, 12), dtype=x.dtype, buffer=nl.psum)
        nisa.nc_stream_shuffle(dst, tile[:, :, 0:6:2], [1] * 32)
        return result_of(dst)

    got = run_everywhere(kernel, [x])[0]
    assert np.array_equal(got[:32], np.broadcast_to(x[1, :, ::2].reshape(1, -1), (32, 12)))
    assert np.array_equal(got[32:], np.broadcast_to(x[33, :, ::2].reshape(1, -1), (32, 12)))


# -- gathers


@pytest.mark.parametrize("dtype", DTYPES)
def test_n_gather(dtype: str) -> None:
    rng = rng_for("n_gather", dtype)
    x, index = sample(rng, (100, 5, 8), dtype, 0), rng.integers(0, 40, (100, 77)).astype(np.uint32)

    def kernel(x: Any, index: Any) -> Any:
        dst = nl.ndarray((100, 77), dtype=x.dtype, buffer=nl.sbuf)
        nisa.nc_n_gather(dst, tile_of(x, "sbuf"), tile_of(index, "sbuf"))
        return result_of(dst)

    got = run_everywhere(kernel, [x, index])[0]
    assert np.array_equal(bits(got), np.take_along_axis(bits(x).reshape(100, -1), index.astype(np.int64), axis=1))
    index[57, 3] = 40
    out_of_range(kernel, [x, index], r"nc_n_gather: offset 40 at position 3 .* 40 elements", "nc_n_gather.R4")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("run", "valid"), [(1, None), (1, 20), (2, 7), (4, None), (8, 3), (32, 2)])
def test_local_gather(dtype: str, run: int, valid: int | None) -> None:
    rng = rng_for("local_gather", dtype, run)
    x, index = sample(rng, (48, 50), dtype, 0), rng.integers(0, 50 - run + 1, (48, 2)).astype(np.uint16)
    count = 32 if valid is None else valid

    def kernel(x: Any, index: Any) -> Any:
        dst = nl.ndarray((48, count * run), dtype=x.dtype, buffer=nl.sbuf)
        nisa.local_gather(dst, tile_of(x, "sbuf"), tile_of(index, "sbuf"), run, valid)
        return result_of(dst)

    expected = np.zeros((48, count * run), x.dtype)
    for p in range(48):
        flat = index[p // 16 * 16 : p // 16 * 16 + 16].flatten(order="F")
        for j in range(count):
            expected[p, j * run : (j + 1) * run] = x[p, flat[j] : flat[j] + run]
    assert np.array_equal(bits(run_everywhere(kernel, [x, index])[0]), bits(expected))
    index[33, 0] = 50 - run + 1
    out_of_range(kernel, [x, index], f"local_gather: offset {51 - run} at position 1 ", "local_gather.R8")


def test_local_gather_vector() -> None:
    x = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)
    index = np.zeros((16, 1), np.uint16)
    index[0] = 6

    def kernel(x: Any, index: Any) -> Any:
        dst = nl.ndarray((16, 4), dtype=x.dtype, buffer=nl.sbuf)
        nisa.local_gather(dst, tile_of(x, "sbuf"), tile_of(index, "sbuf"), 2, 2)
        return result_of(dst)

    assert np.array_equal(run_everywhere(kernel, [x, index])[0], x[:, [6, 7, 0, 1]])


def test_gathers_in_place() -> None:
    rng = rng_for("in place")
    x, index = sample(rng, (64, 40), "float32", 0), rng.integers(0, 40, (64, 40)).astype(np.uint32)
    cores = rng.integers(0, 36, (64, 2)).astype(np.uint16)

    def kernel(x: Any, index: Any, cores: Any) -> Any:
        tile = tile_of(x, "sbuf")
        nisa.nc_n_gather(tile, tile, tile_of(index, "sbuf"))
        nisa.local_gather(tile[:, 0:32], tile, tile_of(cores, "sbuf"), 4, 8)
        return result_of(tile)

    expected = np.take_along_axis(x, index.astype(np.int64), axis=1)
    before = expected.copy()
    for p in range(64):
        flat = cores[p // 16 * 16 : p // 16 * 16 + 16].flatten(order="F")
        expected[p, :32] = np.concatenate([before[p, flat[j] : flat[j] + 4] for j in range(8)])
    assert np.array_equal(run_everywhere(kernel, [x, index, cores])[0], expected)


# -- tensor_partition_reduce


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("op", ["add", "average", "maximum"])
@pytest.mark.parametrize("wanted", ["float32", "bfloat16", "int32"])
def test_partition_reduce(dtype: str, op: str, wanted: str) -> None:
    x = sample(rng_for("partitions", dtype, op), (77, 3, 20), dtype, 0.02)

    def kernel(x: Any) -> Any:
        dst = nl.ndarray((1, 60), dtype=wanted, buffer=nl.sbuf)
        nisa.tensor_partition_reduce(dst, token(op), tile_of(x, "sbuf"))
        return result_of(dst)

    got = run_everywhere(kernel, [x])[0]
    flat = x.reshape(77, 60)
    if dtype == wanted == "int32" and op != "average":
        wide = flat.astype(np.int64)
        total = (wide.sum(0) if op == "add" else wide.max(0)).astype(np.int32)
        assert np.array_equal(got[0], total)
    elif wanted == "float32":
        total32 = flat[0].astype(np.float32)
        with np.errstate(all="ignore"):
            for row in flat[1:].astype(np.float32):
                total32 = np.maximum(total32, row) if op == "maximum" else total32 + row
            total32 = total32 / np.float32(77) if op == "average" else total32
        np.testing.assert_array_equal(got[0], total32)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32"])
@pytest.mark.parametrize("op", ["bitwise_or", "bitwise_and"])
def test_partition_bits(dtype: str, op: str) -> None:
    x = sample(rng_for("bits", dtype, op), (5, 30), dtype)

    def kernel(x: Any) -> Any:
        dst = nl.ndarray((1, 30), dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_partition_reduce(dst, token(op), tile_of(x, "sbuf"))
        return result_of(dst)

    assert np.array_equal(run_everywhere(kernel, [x])[0][0], getattr(np, op).reduce(x, axis=0))


# -- nc_match_replace8


def replaced(data: NDArray[Any], vals: NDArray[Any], imm: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """isa.md 12.17, element by element."""
    out, index = data.astype(np.float32), np.full((len(data), 8), 0xFFFFFFFF, np.uint32)
    for p in range(len(data)):
        for f in range(data.shape[1]):
            for i in range(7, -1, -1):
                if index[p, i] == 0xFFFFFFFF and np.float32(vals[p, i]) == np.float32(data[p, f]):
                    index[p, i], out[p, f] = f, imm
                    break
    return out, index


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("indices", [None, "uint32", "uint16"])
def test_match_replace8(dtype: str, indices: str | None) -> None:
    rng = rng_for("replace", dtype)
    x, vals = rng.integers(0, 9, (33, 40)).astype(ml_dtypes.bfloat16), rng.integers(0, 12, (33, 8))
    x = x.astype(np.dtype(dtype) if dtype != "bfloat16" else ml_dtypes.bfloat16)
    vals = vals.astype(x.dtype)

    def kernel(x: Any, vals: Any) -> Any:
        data = tile_of(x, "sbuf")
        found = None if indices is None else nl.ndarray((33, 8), dtype=indices, buffer=nl.sbuf)
        nisa.nc_match_replace8(dst=data, data=data, vals=tile_of(vals, "sbuf"), imm=-3.0, dst_idx=found)
        return (result_of(data),) if found is None else (result_of(data), result_of(found))

    got = run_everywhere(kernel, [x, vals])
    out, index = replaced(x, vals, -3.0)
    assert np.array_equal(got[0].astype(np.float32), out)
    if indices is not None:
        assert np.array_equal(got[1], index.astype(indices))


@pytest.mark.parametrize(
    ("data", "vals", "imm", "out", "index"),
    [
        ([1, 2, 3, 4, *[8] * 7], [3, *[8] * 7], 0.0, [1, 2, 0, 4, *[0] * 7], [2, 10, 9, 8, 7, 6, 5, 4]),
        ([5, 1, 5, 2, 7, 9], [5, 5, 5, 9, 1, 0, 0, 0], -1.0, [-1, -1, -1, 2, 7, -1], [-1, 2, 0, 5, 1, -1, -1, -1]),
    ],
)
def test_match_replace8_vectors(data: list[float], vals: list[float], imm: float, out: Any, index: Any) -> None:
    def kernel(data: Any, vals: Any) -> Any:
        dst, found = nl.ndarray(data.shape, nl.float32), nl.ndarray((1, 8), nl.uint32)
        nisa.nc_match_replace8(dst, tile_of(data, "sbuf"), tile_of(vals, "sbuf"), imm, found)
        return result_of(dst), result_of(found)

    got = run_everywhere(kernel, [np.array([data], np.float32), np.array([vals], np.float32)])
    assert got[0].tolist() == [out] and np.array_equal(got[1].astype(np.int32), [index])


# -- selections


@pytest.mark.parametrize("given", ["float32", "int32"])
@pytest.mark.parametrize("wanted", ["float32", "int32"])
def test_sequence_bounds(given: str, wanted: str) -> None:
    def kernel(ids: Any) -> Any:
        dst = nl.ndarray((1, 2, ids.shape[1]), dtype=wanted, buffer=nl.sbuf)
        nisa.sequence_bounds(dst, tile_of(ids, "sbuf"))
        return result_of(dst)

    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]], given)
    expected = [[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]]
    assert run_everywhere(kernel, [ids])[0].tolist() == expected
    ids = np.repeat(rng_for("ids").integers(0, 4, 60), rng_for("runs").integers(1, 5, 60))[None].astype(given)
    got, n = run_everywhere(kernel, [ids])[0][0], ids.shape[1]
    for i in range(n):
        start, end = i, i + 1
        while start > 0 and ids[0, start - 1] == ids[0, i]:
            start -= 1
        while end < n and ids[0, end] == ids[0, i]:
            end += 1
        assert got[:, i].tolist() == ([n, -1] if ids[0, i] == 0 else [start, end])
    for wrong in (-1.0,) if given == "int32" else (-1.0, 1.5, np.nan, np.inf):
        ids[0, 5] = wrong
        out_of_range(kernel, [ids], "sequence_bounds: segment id .* at position 5", "sequence_bounds.R5")


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("rows", [1, 16, 100, 128])
def test_nonzero_with_count(dtype: str, rows: int) -> None:
    x = sample(rng_for("nonzero", dtype), (rows, 40), dtype, 0.2)
    x[rng_for("zero").random((rows, 40)) < 0.5] = 0
    x[0, 3] = -0.0

    def kernel(x: Any) -> Any:
        dst = nl.ndarray((rows, 41), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=dst, value=77)
        nisa.nonzero_with_count(dst, tile_of(x, "sbuf"), index_offset=16, padding_val=-5)
        return result_of(dst)

    expected = np.full((rows, 41), 77, np.int32)
    for p in range(0, rows, 16):
        found = np.flatnonzero(x[p] != 0) + 16
        expected[p] = [*found, *[-5] * (40 - len(found)), len(found)]
    assert np.array_equal(run_everywhere(kernel, [x])[0], expected)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("groups", "n", "k"), [(1, 8, 3), (2, 100, 16), (8, 77, 77), (3, 513, 40)])
def test_topk(ordered: bool, groups: int, n: int, k: int) -> None:
    rng = rng_for("topk", n, k)
    x = np.round(rng.standard_normal((16 * groups, -(-n // 16) + 1)) * 4).astype(ml_dtypes.bfloat16)
    x[rng.random(x.shape) < 0.02] = np.nan

    def kernel(x: Any) -> Any:
        values = nl.ndarray((16 * groups, k), dtype=nl.bfloat16, buffer=nl.sbuf)
        indices = nl.ndarray((16 * groups, k), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.memset(dst=values, value=0.5)
        nisa.memset(dst=indices, value=7)
        nisa.topk(values, indices, tile_of(x, "sbuf"), n, sorted=ordered)
        return result_of(values), result_of(indices)

    values, indices = run_everywhere(kernel, [x])
    columns = -(-k // 16)
    for g in range(groups):
        snake = [x[16 * g + e % 16, e // 16] for e in range(n)]
        rank = sorted(range(n), key=lambda e: (np.isnan(snake[e]), 0 if np.isnan(snake[e]) else float(snake[e]), -e))[
            -k:
        ]
        rank = rank[::-1] if ordered else rank
        rows = slice(16 * g, 16 * g + 16)
        assert indices[rows, :columns].T.reshape(-1)[:k].tolist() == rank
        assert np.array_equal(bits(values[rows, :columns].T.reshape(-1)[:k]), bits(np.array([snake[e] for e in rank])))
        assert (indices[rows, columns:] == 7).all() and (values[rows, columns:] == 0.5).all()


def test_topk_vector() -> None:
    x = np.zeros((16, 1), ml_dtypes.bfloat16)
    x[:8, 0] = [3, 1, 4, 1, 5, 9, 2, 6]

    def kernel(x: Any) -> Any:
        values, indices = nl.ndarray((16, 3), nl.bfloat16), nl.ndarray((16, 3), nl.uint32)
        nisa.memset(dst=values, value=0.0)
        nisa.memset(dst=indices, value=0)
        nisa.topk(values, indices, tile_of(x, "sbuf"), 8)
        return result_of(values), result_of(indices)

    values, indices = run_everywhere(kernel, [x])
    assert values[:3, 0].tolist() == [5, 6, 9] and indices[:3, 0].tolist() == [4, 7, 5]
