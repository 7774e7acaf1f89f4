"""dma_compute: all modes agree, and give what the sums of isa.md 10.3 are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.conformance.harness import FLOATS, INTEGERS, ndarray, result_of, rng_for, run_everywhere, sample, tile_of
from tilelang.dtypes import FORMATS
from tilelang.ir.regions import MemoryRegion

HBM = MemoryRegion.private_hbm
F32 = np.float32


def hbm(shape: tuple[int, ...], dtype: str) -> Any:
    return ndarray(shape, dtype, MemoryRegion.shared_hbm)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("out", ["float32", "bfloat16", "int8", "float8_e4m3"])
def test_plain(dtype: str, out: str) -> None:
    host = "float32" if dtype == "tfloat32" else dtype
    arrays = [sample(rng_for(dtype, i), (30, 17), host) for i in range(3)]

    def kernel(a: Any, b: Any, c: Any) -> Any:
        on_chip, results = tile_of(b, "sbuf"), [ndarray((30, 17), out), hbm((30, 17), out)]
        for dst in results:
            nisa.dma_compute(dst, (a, on_chip, c), scales=(1.0, 1.0, 1.0), reduce_op=nl.add)
        return result_of(results[0]), results[1]

    on_chip, in_hbm = run_everywhere(kernel, arrays)
    with np.errstate(all="ignore"):
        total = F32(0) + arrays[0].astype(F32)
        total = total + arrays[1].astype(F32) + arrays[2].astype(F32)
    np.testing.assert_array_equal(on_chip.astype(F32), in_hbm.astype(F32))
    if out == "float32":
        np.testing.assert_array_equal(on_chip, total)
    elif out == "int8":
        expected = np.clip(np.rint(np.nan_to_num(total, nan=0.0)), -128, 127)
        np.testing.assert_array_equal(on_chip, expected.astype(np.int8))


def test_integers_pass_through_float32() -> None:
    x = np.full((1, 1), 2**24 + 1, np.int32)

    def kernel(a: Any) -> Any:
        dst = hbm((1, 1), "int32")
        nisa.dma_compute(dst, [a], reduce_op=nl.add)
        return dst

    assert run_everywhere(kernel, (x,))[0] == 2**24


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["whole", "columns", "transposed", "sbuf", "flat", "reversed"]), min_size=1, max_size=5),
    st.sampled_from(["float32", "bfloat16", "uint8"]),
    st.sampled_from([(6, 8), (2, 3, 8), (48,), (12, 4), (3, 2, 2, 4)]),
)
def test_layouts(kinds: list[str], dtype: str, shape: tuple[int, ...]) -> None:
    """Sources of many shapes and strides, taken in row-major order."""
    host = FORMATS[dtype].host
    arrays = [rng_for(kinds, i).integers(0, 9, (8, 12)).astype(host) for i in range(len(kinds))]
    views = {
        "whole": lambda x: x[0:4],
        "columns": lambda x: x[:, 3:9],
        "transposed": lambda x: x.ap([[1, 6], [12, 8]]),
        "sbuf": lambda x: tile_of(x, "sbuf")[:, 2:8],
        "flat": lambda x: x.ap([[12, 4], [6, 2], [1, 6]], offset=24),
        "reversed": lambda x: x.ap([[-12, 8], [1, 6]], offset=84),
    }
    picks = {
        "whole": lambda x: x[0:4],
        "columns": lambda x: x[:, 3:9],
        "transposed": lambda x: x[:, :6].T,
        "sbuf": lambda x: x[:, 2:8],
        "flat": lambda x: x[2:6],
        "reversed": lambda x: x[::-1, :6],
    }

    def kernel(*inputs: Any) -> Any:
        dst = hbm((*shape[:-1], 2 * shape[-1]), "float32")
        nisa.dma_copy(dst, nl.shared_constant(np.zeros(dst.shape, F32)))
        strided = dst.ap(_every_second(dst.shape))
        nisa.dma_compute(strided, [views[kind](x) for kind, x in zip(kinds, inputs, strict=True)], nl.add)
        return dst

    (ours,) = run_everywhere(kernel, arrays)
    total = sum(picks[kind](x).astype(F32).ravel() for kind, x in zip(kinds, arrays, strict=True))
    np.testing.assert_array_equal(ours.ravel()[::2], total)
    assert not ours.ravel()[1::2].any()


def _every_second(shape: tuple[int, ...]) -> list[list[int]]:
    steps = [int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))]
    return [[s, n] for s, n in zip(steps[:-1], shape[:-1], strict=True)] + [[2, shape[-1] // 2]]


def test_large_and_in_place() -> None:
    x, y = (rng_for(i).standard_normal((300, 5000), dtype=np.float32) for i in range(2))

    def kernel(a: Any, b: Any) -> Any:
        out, sums = hbm(a.shape, "bfloat16"), hbm(a.shape, "float32")
        nisa.dma_compute(out, [a, b], nl.add)
        nisa.dma_copy(sums, a)
        nisa.dma_compute(sums, [sums, b], nl.add)
        nisa.dma_compute(sums, [sums, b], nl.add)
        return out, sums

    out, sums = run_everywhere(kernel, (x, y))
    np.testing.assert_array_equal(out, (x + y).astype(FORMATS["bfloat16"].host))
    np.testing.assert_array_equal(sums, x + y + y)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("skip", [False, True])
def test_scatter_and_gather(dtype: str, skip: bool) -> None:
    rng = rng_for(dtype, skip)
    table = rng.integers(-9, 9, (50, 40)).astype(FORMATS[dtype].host)
    addend = rng.integers(-9, 9, (20, 40)).astype(F32)
    index = rng.integers(0, 50, (20, 1)).astype(np.int32)
    index[3] = index[7] = index[11]  # equal ones add up
    if skip:
        index[5], index[6] = -1, 50
    mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error

    def kernel(t: Any, a: Any, i: Any) -> Any:
        where, tile = tile_of(i, "sbuf"), tile_of(a, "sbuf")
        copy = hbm((50, 40), dtype)
        nisa.dma_copy(copy, t)
        rows = copy.ap([[40, 20], [1, 40]], vector_offset=where)
        nisa.dma_compute(rows, [rows, tile], nl.add, oob_mode=mode)
        picked = t.ap([[40, 20], [1, 40]], vector_offset=where)
        nisa.dma_compute(tile, [picked, tile], nl.add, oob_mode=mode)
        return copy, result_of(tile)

    scattered, gathered = run_everywhere(kernel, (table, addend, index))
    expected, tile = table.astype(F32), addend.copy()
    for row, at in enumerate(index[:, 0].tolist()):
        if 0 <= at < 50:
            expected[at] += addend[row]
            tile[row] += table[at].astype(F32)
    np.testing.assert_array_equal(scattered.astype(F32), expected)
    np.testing.assert_array_equal(gathered, tile)


@pytest.mark.parametrize("mode", ["native", "reference", "debug"])
def test_rows_out_of_range(mode: str) -> None:
    def kernel(t: Any, i: Any) -> Any:
        tile, where = ndarray((4, 8), "float32"), tile_of(i, "sbuf")
        nisa.memset(tile, 0.0)
        nisa.dma_compute(tile, [tile, t.ap([[8, 4], [1, 8]], vector_offset=where)], nl.add)
        return result_of(tile)

    index = np.array([[0], [1], [10], [2]], np.int32)
    with pytest.raises(IndexError, match="row index 10 at position 2 is out of range; the tensor has 10 rows"):
        tilelang.simulate(kernel, mode=mode)(np.zeros((10, 8), F32), index)


def test_partly_shared_memory_is_refused_natively() -> None:
    def kernel(a: Any) -> Any:
        x = hbm((10, 8), "float32")
        nisa.dma_copy(x, a)
        nisa.dma_compute(x[1:5], [x[0:4], x[2:6]], nl.add)
        return x

    x = np.arange(80, dtype=F32).reshape(10, 8)
    expected = x.copy()
    expected[1:5] = x[0:4] + x[2:6]
    np.testing.assert_array_equal(tilelang.simulate(kernel, mode="reference")(x), expected)
    with pytest.raises(tilelang.errors.TileUnsupportedError, match="shares part of its memory"):
        tilelang.simulate(kernel)(x)
