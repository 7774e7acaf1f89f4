"""All modes give the same bits: matmuls, transposes, DMA, synchronisation and poison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang.isa as nisa
from tests.conformance.harness import ndarray, result_of, rng_for, run_everywhere, sample, tile_of
from tilelang.ir.regions import MemoryRegion
from tilelang.isa.spec import REGISTRY


def check(kernel: Any, *args: Any, target: str = "trn2") -> tuple[Any, ...]:
    return run_everywhere(kernel, args, target)


@pytest.mark.parametrize(
    "types", [("bfloat16", "bfloat16"), ("float32", "float32"), ("float8_e4m3", "float8_e5m2"), ("float16", "bfloat16")]
)
@pytest.mark.parametrize("size", [(128, 128, 512), (5, 3, 7), (64, 100, 33)])
def test_nc_matmul(types: tuple[str, str], size: tuple[int, int, int]) -> None:
    k, m, n = size

    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        acc = ndarray((m, n), "float32", MemoryRegion.psum)
        for _ in range(2):
            nisa.nc_matmul(dst=acc, stationary=x, moving=y)
        other = ndarray((m, n), "float32", MemoryRegion.psum)
        nisa.nc_matmul(dst=other, stationary=x, moving=y, accumulate=False)
        nisa.nc_matmul(dst=other, stationary=x, moving=y, accumulate=True)
        return result_of(acc), result_of(other)

    rng = rng_for(types, size)
    check(kernel, sample(rng, (k, m), types[0], 0), sample(rng, (k, n), types[1], 0))


def test_nc_matmul_overlapping_accumulation() -> None:
    """Fresh elements are overwritten, the rest accumulate, within one call (field report 12)."""

    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        acc = ndarray((64, 384), "float32", MemoryRegion.psum)
        nisa.nc_matmul(dst=acc[:, 0:256], stationary=x, moving=y)
        nisa.nc_matmul(dst=acc[:, 128:384], stationary=x, moving=y)
        return result_of(acc)

    rng = rng_for("overlap")
    a, b = sample(rng, (128, 64), "float32", 0), sample(rng, (128, 256), "float32", 0)
    (got,) = check(kernel, a, b)
    product = (a.T.astype(np.float64) @ b).astype(np.float32)
    expected = np.zeros((64, 384))
    expected[:, 0:256] += product
    expected[:, 128:384] += product
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-2)


def test_nc_matmul_double_row() -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        acc = ndarray((128, 256), "float32", MemoryRegion.psum)
        nisa.nc_matmul(dst=acc, stationary=x, moving=y, perf_mode="double_row")
        return result_of(acc)

    rng = rng_for("double")
    check(kernel, sample(rng, (128, 2, 128), "float8_e4m3", 0), sample(rng, (128, 2, 256), "float8_e5m2", 0))


def test_nc_matmul_tiling() -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        acc = ndarray((128, 64), "float32", MemoryRegion.psum)
        for j in range(4):
            nisa.nc_matmul(
                dst=acc[32 * j : 32 * j + 32, :],
                stationary=x[:, 32 * j : 32 * j + 32],
                moving=y,
                tile_position=(0, 32 * j),
                tile_size=(128, 32),
            )
        return result_of(acc)

    rng = rng_for("tiling")
    check(kernel, sample(rng, (128, 128), "bfloat16", 0), sample(rng, (128, 64), "bfloat16", 0))


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_nc_transpose(dtype: str, target: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((40, 100), dtype, MemoryRegion.psum)
        nisa.nc_transpose(dst=y, data=x)
        small = ndarray((32, 32), dtype)
        nisa.nc_transpose(dst=small, data=x[0:32, 0:32])
        return result_of(y), result_of(small)

    check(kernel, sample(rng_for(dtype, target), (100, 40), dtype, 0.02), target=target)


def test_nc_matmul_transpose_mode() -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, eye = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        y = ndarray((50, 64), "bfloat16", MemoryRegion.psum)
        nisa.nc_matmul(dst=y, stationary=x, moving=eye, is_transpose=True)
        return result_of(y)

    rng = rng_for("pass")
    eye = np.eye(64, dtype=np.float32)[rng.permutation(64)].astype(sample(rng, (1,), "bfloat16").dtype)
    check(kernel, sample(rng, (64, 50), "bfloat16", 0.2), eye)


@pytest.mark.parametrize(
    "types", [("float32", "float32"), ("float32", "bfloat16"), ("int32", "int8"), ("bfloat16", "float32")]
)
def test_dma_copy_shapes(types: tuple[str, str]) -> None:
    def kernel(a: Any) -> Any:
        x = ndarray((64, 3, 20), types[1])
        nisa.dma_copy(dst=x, src=a.reshape((64, 3, 20)))
        y = ndarray((20, 192), types[1])
        nisa.dma_copy(dst=y, src=x.reshape((64, 60)).ap([[60, 64], [1, 60]]))
        out = ndarray((20, 3, 64), types[1], MemoryRegion.shared_hbm)
        nisa.dma_copy(dst=out.permute((2, 1, 0)), src=x)
        return result_of(x), result_of(y), out

    check(kernel, sample(rng_for(types), (32, 120), types[0]))


@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
def test_dma_gather_and_scatter(dtype: str) -> None:
    """Field report 20: every third index is out of range and skipped; the rows stay untouched."""
    skip = nisa.oob_mode.skip

    def kernel(table: Any, indices: Any, fresh: Any) -> Any:
        index = tile_of(indices, "sbuf")
        x = tile_of(fresh, "sbuf")
        nisa.dma_copy(dst=x, src=table.ap([[24, 128], [1, 24]], vector_offset=index), oob_mode=skip)
        out = ndarray((200, 24), dtype, MemoryRegion.shared_hbm)
        nisa.dma_copy(dst=out, src=table)
        nisa.dma_copy(dst=out.ap([[24, 128], [1, 24]], vector_offset=index), src=x, oob_mode=skip)
        return result_of(x), out

    rng = rng_for("gather", dtype)
    indices = rng.integers(0, 200, (128, 1)).astype(np.int32)
    indices[::3] = rng.choice([-1, 2**30, 200], indices[::3].shape)
    check(kernel, sample(rng, (200, 24), dtype), indices, sample(rng, (128, 24), dtype))


@pytest.mark.parametrize("shape", [(100, 60), (6, 5, 32), (4, 1, 3, 16)])
def test_dma_transpose(shape: tuple[int, ...]) -> None:
    axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]

    def kernel(a: Any) -> Any:
        x = ndarray(tuple(shape[i] for i in axes), "bfloat16")
        nisa.dma_transpose(dst=x, src=a)
        return result_of(x)

    data = sample(rng_for(shape), shape, "bfloat16")
    (got,) = check(kernel, data)
    np.testing.assert_array_equal(got.view(np.uint16), np.transpose(data, axes).view(np.uint16))


def test_dma_transpose_gather() -> None:
    def kernel(table: Any, indices: Any) -> Any:
        index = tile_of(indices, "sbuf")
        x = ndarray((64, 32), "bfloat16")
        nisa.dma_transpose(dst=x, src=table.ap([[64, 32], [1, 64]], vector_offset=index))
        return result_of(x)

    rng = rng_for("gather transpose")
    table, indices = sample(rng, (90, 64), "bfloat16"), rng.integers(0, 90, (32, 1)).astype(np.uint32)
    (got,) = check(kernel, table, indices)
    np.testing.assert_array_equal(got.view(np.uint16), table[indices[:, 0]].T.view(np.uint16))


def test_partition_offsets_and_strides() -> None:
    """Rows move between quadrants and patterns have steps: the synchronisation of threads must notice."""

    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((128, 64), "float32")
        nisa.memset(dst=y, value=0)
        for _ in range(3):
            nisa.tensor_copy(dst=y[96:128, 0:64:2], src=x[0:32, 0:32])
            nisa.tensor_tensor(dst=x[64:128, 0:10], data1=x[0:64, 5:15], data2=y[0:64, 1:11], op=np.add)
            nisa.tensor_scalar(dst=y[0:64, 20:40], data=x[64:128, 0:20], op0=np.multiply, operand0=x[64:128, 3:4])
        return result_of(x), result_of(y)

    check(kernel, sample(rng_for("offsets"), (128, 64), "float32", 0))


def test_overlapping_copy_reads_all_first() -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        nisa.tensor_copy(dst=x[:, 1:600], src=x[:, 0:599])
        nisa.tensor_scalar(dst=x[:, 0:500], data=x[:, 7:507], op0=np.add, operand0=1.0)
        return result_of(x)

    data = sample(rng_for("overlap copy"), (128, 600), "float32", 0)
    (got,) = check(kernel, data)
    expected = data.copy()
    expected[:, 1:600] = data[:, 0:599]
    expected[:, 0:500] = expected[:, 7:507] + np.float32(1.0)
    np.testing.assert_array_equal(got, expected)


def test_uninitialised_reads_are_poison() -> None:
    def kernel(a: Any) -> Any:
        x, y, z = ndarray((128, 8), "float32"), ndarray((4, 8), "int16"), ndarray((4, 8), "float32")
        nisa.dma_copy(dst=x[0:64, :], src=a)
        out = ndarray((3, 5), "bfloat16", MemoryRegion.shared_hbm)
        nisa.tensor_copy(dst=z, src=y)
        return result_of(x), result_of(y), result_of(z), out

    got = check(kernel, sample(rng_for("poison"), (64, 8), "float32", 0))
    assert np.isnan(got[0][64:]).all() and not np.isnan(got[0][:64]).any()
    assert (got[1] == 4).all() and (got[2] == 4).all() and np.isnan(got[3].astype(np.float32)).all()


def test_every_instruction_is_covered() -> None:
    """Each compute instruction of the registry is called in a test of this folder."""
    texts = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*agree.py"))
    # Instructions of several cores: tests/cores, in every mode.
    plain = {n: s for n, s in REGISTRY.items() if s.meeting is None and not s.simulate_only}
    wanted = {n for n, s in plain.items() if s.engines != ("sequencer",)}
    assert {name for name in wanted if f"nisa.{name}(" not in texts} == set()
