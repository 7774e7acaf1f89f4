"""Microscaling: all modes agree, and give what ml_dtypes and the definitions of isa.md 11.2 and 11.3 give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.conformance.harness import bits, ndarray, rng_for, run_everywhere, sample
from tilelang.ir.regions import MemoryRegion
from tilelang.numerics import mx

F32 = np.float32
ELEMENT = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}


def row(partition: int) -> int:
    return 32 * (partition // 32) + partition % 32 // 8


def elements(packed: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """Packed items as float64, four times as many columns."""
    if dtype == "float4_e2m1fn_x4":
        codes = (packed[..., None] >> np.arange(0, 16, 4, dtype=np.uint16)) & np.uint16(15)
    else:
        codes = packed[..., None] >> np.arange(0, 32, 8, dtype=np.uint32) & np.uint32(255)
    return codes.astype(np.uint8).view(ELEMENT[dtype]).astype(np.float64)


def load(x: Any, dtype: str, buffer: Any = MemoryRegion.sbuf) -> Any:
    tile = ndarray(x.shape, dtype, buffer)
    nisa.dma_copy(dst=tile, src=x.view(dtype))
    return tile


def store(tile: Any, dtype: str) -> Any:
    out = ndarray(tile.shape, dtype, MemoryRegion.shared_hbm)
    nisa.dma_copy(dst=out, src=tile.view(dtype))
    return out


def test_every_code() -> None:
    codes = np.arange(256, dtype=np.uint8)
    ours = mx.scale_value(codes.astype(np.uint32))
    np.testing.assert_array_equal(ours, codes.view(ml_dtypes.float8_e8m0fnu).astype(F32))
    nibbles = np.arange(16, dtype=np.uint8)
    ours = mx.e2m1_value(nibbles.astype(np.uint32))
    np.testing.assert_array_equal(bits(ours), bits(nibbles.view(ml_dtypes.float4_e2m1fn).astype(F32)))
    a, b = np.meshgrid(codes.astype(np.uint32), codes.astype(np.uint32))
    expected = np.where((a == 255) | (b == 255), np.nan, np.ldexp(1.0, a.astype(np.int64) + b - 254))
    np.testing.assert_array_equal(mx.joint_scale(a, b), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_block_codes_of_all_magnitudes(dtype: str) -> None:
    host = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[dtype]
    values = np.abs(np.arange(2**16, dtype=np.uint16).view(host).astype(F32))
    for exponent in (8, 15):
        with np.errstate(over="ignore"):
            ours = mx.block_code(np.where(np.isnan(values), F32(np.inf), values), np.int32(exponent - 1))
        for value, code in zip(values.tolist(), ours.tolist(), strict=True):
            if not np.isfinite(value):
                assert code == 255
            elif value == 0:
                assert code == 0
            else:
                assert code == min(max(np.frexp(value)[1] - 1 - (exponent - 1) + 127, 0), 254)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn_x4", "float8_e5m2_x4"])
@pytest.mark.parametrize("source", ["bfloat16", "float16"])
@pytest.mark.parametrize(("rows", "offset"), [(32, 0), (64, 4), (96, 8), (128, 0), (32, 12)])
def test_quantize_mx(dtype: str, source: str, rows: int, offset: int) -> None:
    x = sample(rng_for(dtype, source, rows), (rows, 48), source, 0.002)
    x[:8, :4] = 0
    x[8:16, :4] = np.array(1e-6, x.dtype) if source == "float16" else np.array(1e-40, x.dtype)
    x[16, 5] = np.nan

    def kernel(a: Any) -> Any:
        src, dst = load(a, source), ndarray((rows, 12), dtype)
        scales = ndarray((min(rows + 16, 128), 12), "uint8")
        nisa.memset(scales, 77)
        nisa.quantize_mx(dst=dst, src=src, dst_scale=scales[offset : offset + rows])
        return store(dst, "uint32"), store(scales, "uint8")

    packed, scales = run_everywhere(kernel, (x,), "trn3")
    values, touched = elements(packed, dtype), set()
    top, host = {"float8_e4m3fn_x4": (8, 448.0), "float8_e5m2_x4": (15, 57344.0)}[dtype], ELEMENT[dtype]
    for g in range(rows // 8):
        where = offset + row(8 * g)
        touched.add(where)
        for j in range(12):
            block = x[8 * g : 8 * g + 8, 4 * j : 4 * j + 4].astype(np.float64)
            code, got = scales[where, j], values[8 * g : 8 * g + 8, j]
            if not np.isfinite(block).all():
                assert code == 255 and np.isnan(got).all()
                continue
            largest = np.abs(block).max()
            wanted = 0 if largest == 0 else max(np.frexp(largest)[1] - 1 - (top[0] - 1) + 127, 0)
            assert code == wanted
            scaled = block * 2.0 ** (127 - int(code))
            assert np.abs(scaled).max() < 2.0 ** top[0]
            np.testing.assert_array_equal(got, scaled.astype(F32).astype(host).astype(np.float64))
    others = [r for r in range(len(scales)) if r not in touched]
    assert (scales[others] == 77).all()


def test_vectors_of_quantize_mx() -> None:
    """isa.md section 18."""
    for dtype, largest, code, top in (
        ("float8_e4m3fn_x4", 3.0, 121, 192.0),
        ("float8_e5m2_x4", 3.0, 114, 24576.0),
        ("float8_e4m3fn_x4", 448.0, 128, 224.0),
        ("float8_e4m3fn_x4", 0.0, 0, 0.0),
    ):
        x = np.zeros((32, 4), np.float32).astype(ml_dtypes.bfloat16)
        x[3, 2] = largest

        def kernel(a: Any, dtype: str = dtype) -> Any:
            src, dst, scales = load(a, "bfloat16"), ndarray((32, 1), dtype), ndarray((32, 1), "float8_e8m0fnu")
            nisa.memset(scales, 0)
            nisa.quantize_mx(dst, src, scales)
            return store(dst, "uint32"), store(scales, "uint8")

        packed, scales = run_everywhere(kernel, (x,), "trn3")
        assert scales[0, 0] == code and elements(packed, dtype).max() == top


def operands(rng: np.random.Generator, dtype: str, rows: int, columns: int) -> NDArray[Any]:
    if dtype == "float4_e2m1fn_x4":
        return rng.integers(0, 2**16, (rows, columns), dtype=np.uint16)
    codes = rng.integers(0, 256, (rows, columns, 4)).astype(np.uint8)
    codes = np.where(np.isfinite(codes.view(ELEMENT[dtype]).astype(F32)), codes, 0)
    return np.bitwise_or.reduce(codes.astype(np.uint32) << np.arange(0, 32, 8, dtype=np.uint32), axis=-1)


def product(left: Any, right: Any, a: Any, b: Any, types: tuple[str, str]) -> NDArray[np.float64]:
    """The exact product, in float64 (longdouble sums are not needed: the tests allow for rounding)."""
    rows = [row(k) for k in range(len(left))]
    sides = []
    for packed, codes, dtype in ((left, a, types[0]), (right, b, types[1])):
        scale = np.where(codes[rows] == 255, np.nan, np.ldexp(1.0, codes[rows].astype(np.int64) - 127))
        sides.append(elements(packed, dtype) * scale[..., None])
    return np.einsum("kmq,knq->mn", *sides), np.einsum("kmq,knq->mn", *(np.abs(side) for side in sides))


TYPES = [(a, b) for a in ELEMENT for b in ELEMENT]


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize(("p", "m", "n"), [(32, 2, 1), (64, 34, 70), (96, 128, 33), (128, 128, 140)])
@pytest.mark.parametrize("codes", [(120, 130), (0, 256), (235, 255)], ids=str)
def test_nc_matmul_mx(types: tuple[str, str], p: int, m: int, n: int, codes: tuple[int, int]) -> None:
    rng = rng_for(types, p, m, n, codes)
    left, right = operands(rng, types[0], p, m), operands(rng, types[1], p, n)
    a, b = rng.integers(*codes, (p, m)).astype(np.uint8), rng.integers(*codes, (p, n)).astype(np.uint8)
    if codes == (235, 255):
        b = (b - 200).astype(np.uint8)  # one side would leave float32, the products do not

    def kernel(x: Any, y: Any, s: Any, t: Any) -> Any:
        stationary, moving = load(x, types[0]), load(y, types[1])
        scales = load(s, "uint8"), load(t, "float8_e8m0fnu")
        out, low = ndarray((m, n), "float32", MemoryRegion.psum), ndarray((m, n), "bfloat16", MemoryRegion.psum)
        nisa.nc_matmul_mx(out, stationary, moving, *scales)
        nisa.nc_matmul_mx(low, stationary, moving, *scales)
        results = []
        for psum, dtype in ((out, "float32"), (low, "bfloat16")):
            staged = ndarray((m, n), dtype)
            nisa.tensor_copy(staged, psum)
            results.append(store(staged, dtype))
        return tuple(results)

    ours, low = run_everywhere(kernel, (left, right, a, b), "trn3")
    with np.errstate(all="ignore"):
        exact, size = product(left, right, a, b, types)
        bound = 4 * p * 2.0**-24 * size + 4 * p * 2.0**-150
        wrong = ~(np.abs(ours - exact) <= bound) & ~(np.isnan(exact) & np.isnan(ours)) & (size < 2.0**127)
        assert not wrong.any()
        np.testing.assert_array_equal(low.astype(F32), ours.astype(ml_dtypes.bfloat16).astype(F32))


def test_products_take_partitions_then_elements_in_order() -> None:
    """Sums of float32 depend on the order: each step is one rounding of an exact product."""
    rng = rng_for("order")
    left, right = operands(rng, "float8_e4m3fn_x4", 32, 2), operands(rng, "float8_e5m2_x4", 32, 5)
    a, b = (rng.integers(110, 140, (32, n)).astype(np.uint8) for n in (2, 5))

    def kernel(x: Any, y: Any, s: Any, t: Any) -> Any:
        out, staged = ndarray((2, 5), "float32", MemoryRegion.psum), ndarray((2, 5), "float32")
        nisa.nc_matmul_mx(
            out, load(x, "float8_e4m3fn_x4"), load(y, "float8_e5m2_x4"), load(s, "uint8"), load(t, "uint8")
        )
        nisa.tensor_copy(staged, out)
        return store(staged, "float32")

    (ours,) = run_everywhere(kernel, (left, right, a, b), "trn3")
    x, y = elements(left, "float8_e4m3fn_x4"), elements(right, "float8_e5m2_x4")
    for m in range(2):
        for n in range(5):
            total = F32(0)
            for k in range(32):
                scale = 2.0 ** (int(a[row(k), m]) + int(b[row(k), n]) - 254)
                for q in range(4):
                    total = F32(np.longdouble(x[k, m, q] * y[k, n, q] * scale) + np.longdouble(total))
            assert ours[m, n] == total


@pytest.mark.parametrize("accumulate", [None, True, False])
def test_accumulation(accumulate: bool | None) -> None:
    rng = rng_for(accumulate)
    left, right = operands(rng, "float4_e2m1fn_x4", 32, 64), operands(rng, "float4_e2m1fn_x4", 32, 40)
    codes = np.full((32, 64), 127, np.uint8)

    def kernel(x: Any, y: Any, s: Any) -> Any:
        stationary, moving, scale = load(x, "float4_e2m1fn_x4"), load(y, "float4_e2m1fn_x4"), load(s, "uint8")
        out, staged = ndarray((64, 40), "float32", MemoryRegion.psum), ndarray((64, 40), "float32")
        nisa.nc_matmul_mx(out[:, :20], stationary, moving[:, :20], scale, scale[:, :20], accumulate=False)
        if accumulate:
            nisa.nc_matmul_mx(out[:, 20:], stationary, moving[:, 20:], scale, scale[:, 20:40], accumulate=False)
        nisa.nc_matmul_mx(out, stationary, moving, scale, scale[:, :40], accumulate=accumulate)
        nisa.tensor_copy(staged, out)
        return store(staged, "float32")

    (ours,) = run_everywhere(kernel, (left, right, codes), "trn3")
    once, _ = product(left, right, codes, codes[:, :40], ("float4_e2m1fn_x4", "float4_e2m1fn_x4"))
    times = {None: (2, 1), True: (2, 2), False: (1, 1)}[accumulate]
    np.testing.assert_array_equal(ours, once * np.repeat(times, 20))


def test_views_of_operands_and_scales_in_quadrants() -> None:
    """Strided operands, and four scale tensors in one tile at partition offsets 0, 4, 8 and 12."""
    rng = rng_for("views")
    packed = operands(rng, "float8_e5m2_x4", 64, 60)
    codes = rng.integers(118, 136, (64, 60)).astype(np.uint8)

    def kernel(x: Any, s: Any) -> Any:
        data, held = load(x, "float8_e5m2_x4"), ndarray((128, 60), "uint8")
        nisa.memset(held, 0)
        for start in (4, 8):
            for quadrant in (0, 32):
                nisa.dma_copy(held[start + quadrant : start + quadrant + 4], s[quadrant : quadrant + 4])
        out, staged = ndarray((20, 30), "float32", MemoryRegion.psum), ndarray((20, 30), "float32")
        left, right = data.ap([[60, 64], [3, 20]]), data.ap([[60, 64], [2, 30]])
        scales = held[4:68].ap([[60, 64], [3, 20]]), held[8:72].ap([[60, 64], [2, 30]])
        nisa.nc_matmul_mx(out, left, right, *scales)
        nisa.tensor_copy(staged, out)
        return store(staged, "float32")

    (ours,) = run_everywhere(kernel, (packed, codes), "trn3")
    left, right = packed[:, ::3], packed[:, ::2]
    exact, size = product(left, right, codes[:, ::3], codes[:, ::2], ("float8_e5m2_x4", "float8_e5m2_x4"))
    assert (np.abs(ours - exact) <= 256 * 2.0**-24 * size).all()


def test_quantised_matmul_is_near_the_plain_one() -> None:
    x, y = (rng_for(i).standard_normal((128, 512), dtype=F32).astype(ml_dtypes.bfloat16) for i in range(2))

    def kernel(a: Any, b: Any) -> Any:
        sides = []
        for source in (a, b):
            tile, scale = ndarray((128, 128), "float8_e4m3fn_x4"), ndarray((128, 128), "uint8")
            nisa.memset(scale, 0)
            nisa.quantize_mx(tile, load(source, "bfloat16"), scale)
            sides.append((tile, scale))
        out, staged = ndarray((128, 128), "float32", MemoryRegion.psum), ndarray((128, 128), "float32")
        nisa.nc_matmul_mx(out, sides[0][0], sides[1][0], sides[0][1], sides[1][1])
        nisa.tensor_copy(staged, out)
        return store(staged, "float32")

    (ours,) = run_everywhere(kernel, (x, y), "trn3")
    a, b = (v.astype(np.float64).reshape(128, 128, 4) for v in (x, y))
    exact = np.einsum("kmq,knq->mn", a, b)
    assert np.abs(ours - exact).max() < 0.06 * np.abs(exact).max()


def test_generation() -> None:
    def kernel(a: Any) -> Any:
        dst, scale = ndarray((32, 1), "float8_e4m3fn_x4"), ndarray((32, 1), "uint8")
        nisa.quantize_mx(dst, load(a, "bfloat16"), scale)
        return a

    with pytest.raises(tilelang.errors.TileRuleError, match="generation 4"):
        tilelang.simulate(kernel, target="trn2")(np.zeros((32, 4), ml_dtypes.bfloat16))
    assert nl.float8_e4m3fn_x4 == "float8_e4m3fn_x4"
