"""Matrix multiplication, in five steps from one tile to a fully blocked kernel.

Every kernel computes ``result[M, N] = lhs_t[K, M].T @ rhs[K, N]``. TensorE contracts over the partition dimension, so
both operands arrive with K first. One ``nc_matmul`` takes a stationary tile of up to 128 x 128 and a moving tile of up
to 128 x 512, and adds their product to one PSUM bank; longer contractions accumulate there, in float32, call by call.

| kernel | idea | each element of lhs_t, rhs is loaded |
|---|---|---|
| `matmul_basic` | one tile | once, once |
| `matmul_tiled` | loop over M, N, K tiles; any sizes | N / 512 times, M / 128 times |
| `matmul_hoisted` | loads leave the loops that do not need them | N / 512 times, once |
| `matmul_k_blocked` | slabs of K stream through SBUF, float32 sums stay there | once, once |
| `matmul_blocked` | M, N and K blocks; wide PSUM tiles; FP8 double row | N / block_n times, M / block_m times |

Sizes are elements. The result has the dtype of ``lhs_t`` unless ``result_dtype`` says otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PMAX = 128  # nl.tile_size.pmax: partitions, hence rows of one K tile and columns of one stationary tile
FMAX = 512  # nl.tile_size.gemm_moving_fmax: columns of one moving tile, float32 elements of one PSUM bank


@nki.jit
def matmul_basic(lhs_t: nl.ndarray, rhs: nl.ndarray, result_dtype: str | None = None) -> nl.ndarray:
    """One tile: K <= 128, M <= 128, N <= 512."""
    k, m = lhs_t.shape
    n = rhs.shape[1]
    assert rhs.shape[0] == k, f"lhs_t has K={k}, rhs has K={rhs.shape[0]}"
    assert k <= PMAX and m <= PMAX and n <= FMAX, f"one tile holds K, M <= {PMAX} and N <= {FMAX}, not {k}, {m}, {n}"
    result = nl.ndarray((m, n), dtype=result_dtype or lhs_t.dtype, buffer=nl.shared_hbm)

    stationary = nl.ndarray((k, m), dtype=lhs_t.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=stationary, src=lhs_t)
    moving = nl.ndarray((k, n), dtype=rhs.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=moving, src=rhs)

    product = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)

    # DMA cannot read PSUM, so the product is rounded into SBUF first.
    out = nl.ndarray((m, n), dtype=result.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=product)
    nisa.dma_copy(dst=result, src=out)
    return result


@nki.jit
def matmul_tiled(lhs_t: nl.ndarray, rhs: nl.ndarray, result_dtype: str | None = None) -> nl.ndarray:
    """Tiles of 128 x 128 x 512, loaded where they are used. Any M, N, K: the last tile of each dimension is smaller."""
    k, m = lhs_t.shape
    n = rhs.shape[1]
    assert rhs.shape[0] == k, f"lhs_t has K={k}, rhs has K={rhs.shape[0]}"
    result = nl.ndarray((m, n), dtype=result_dtype or lhs_t.dtype, buffer=nl.shared_hbm)

    for m0 in range(0, m, PMAX):
        m1 = min(m0 + PMAX, m)
        for n0 in range(0, n, FMAX):
            n1 = min(n0 + FMAX, n)
            total = nl.ndarray((m1 - m0, n1 - n0), dtype=nl.float32, buffer=nl.psum)
            for k0 in range(0, k, PMAX):
                k1 = min(k0 + PMAX, k)
                stationary = nl.ndarray((k1 - k0, m1 - m0), dtype=lhs_t.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=stationary, src=lhs_t[k0:k1, m0:m1])
                moving = nl.ndarray((k1 - k0, n1 - n0), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=moving, src=rhs[k0:k1, n0:n1])
                nisa.nc_matmul(dst=total, stationary=stationary, moving=moving, accumulate=k0 > 0)
            out = nl.ndarray((m1 - m0, n1 - n0), dtype=result.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=out, src=total)
            nisa.dma_copy(dst=result[m0:m1, n0:n1], src=out)
    return result


def load_k_tiles(source: nl.ndarray, k0: int, k1: int, column0: int, column1: int, rows: int = 1) -> list[nl.ndarray]:
    """Load ``source[k0:k1, column0:column1]`` as a list of K tiles ``[128, rows, columns]``.

    Partition p of a tile holds ``rows`` consecutive rows of K, so its DMA elements stay long, and a double-row matmul
    (``rows`` = 2) still adds its products in ascending order of K.
    """
    step = PMAX * rows
    assert (k1 - k0) % step == 0, f"K must be a multiple of {step}, not {k1 - k0}"
    tiles = []
    for start in range(k0, k1, step):
        tile = nl.ndarray((PMAX, rows, column1 - column0), dtype=source.dtype, buffer=nl.sbuf)
        slab = source[start : start + step, column0:column1]
        nisa.dma_copy(dst=tile, src=slab.reshape_dim(0, (PMAX, rows)))
        tiles.append(tile)
    return tiles


@nki.jit
def matmul_hoisted(lhs_t: nl.ndarray, rhs: nl.ndarray, result_dtype: str | None = None) -> nl.ndarray:
    """A column panel of ``rhs`` is loaded once and met by every row panel of ``lhs_t``. K, M: multiples of 128."""
    k, m = lhs_t.shape
    n = rhs.shape[1]
    assert rhs.shape[0] == k, f"lhs_t has K={k}, rhs has K={rhs.shape[0]}"
    assert m % PMAX == 0, f"M must be a multiple of {PMAX}, not {m}"
    result = nl.ndarray((m, n), dtype=result_dtype or lhs_t.dtype, buffer=nl.shared_hbm)

    for n0 in range(0, n, FMAX):
        n1 = min(n0 + FMAX, n)
        moving = load_k_tiles(rhs, 0, k, n0, n1)
        for m0 in range(0, m, PMAX):
            stationary = load_k_tiles(lhs_t, 0, k, m0, m0 + PMAX)
            total = nl.ndarray((PMAX, n1 - n0), dtype=nl.float32, buffer=nl.psum)
            for i in range(len(moving)):
                nisa.nc_matmul(
                    dst=total, stationary=stationary[i][:, 0, :], moving=moving[i][:, 0, :], accumulate=i > 0
                )
            out = nl.ndarray((PMAX, n1 - n0), dtype=result.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=out, src=total)
            nisa.dma_copy(dst=result[m0 : m0 + PMAX, n0:n1], src=out)
    return result


@nki.jit
def matmul_k_blocked(
    lhs_t: nl.ndarray, rhs: nl.ndarray, result_dtype: str | None = None, block_k: int = 512
) -> nl.ndarray:
    """Slabs of ``block_k`` rows stream through SBUF once; PSUM sums a slab, SBUF sums the slabs.

    K, M: multiples of 128. The float32 sums of the whole result stay in SBUF: M * N / 32 bytes of each partition.
    """
    k, m = lhs_t.shape
    n = rhs.shape[1]
    assert rhs.shape[0] == k, f"lhs_t has K={k}, rhs has K={rhs.shape[0]}"
    assert m % PMAX == 0, f"M must be a multiple of {PMAX}, not {m}"
    result = nl.ndarray((m, n), dtype=result_dtype or lhs_t.dtype, buffer=nl.shared_hbm)

    sums = nl.ndarray((PMAX, m // PMAX, n), dtype=nl.float32, buffer=nl.sbuf)
    for k0 in range(0, k, block_k):
        k1 = min(k0 + block_k, k)
        stationary = load_k_tiles(lhs_t, k0, k1, 0, m)
        moving = load_k_tiles(rhs, k0, k1, 0, n)
        for i in range(m // PMAX):
            columns = slice(i * PMAX, (i + 1) * PMAX)
            for n0 in range(0, n, FMAX):
                n1 = min(n0 + FMAX, n)
                partial = nl.ndarray((PMAX, n1 - n0), dtype=nl.float32, buffer=nl.psum)
                for j in range(len(moving)):
                    nisa.nc_matmul(
                        dst=partial,
                        stationary=stationary[j][:, 0, columns],
                        moving=moving[j][:, 0, n0:n1],
                        accumulate=j > 0,
                    )
                block = sums[:, i, n0:n1]
                if k0 == 0:
                    nisa.tensor_copy(dst=block, src=partial)
                else:
                    nisa.tensor_tensor(dst=block, data1=block, data2=partial, op=nl.add)

    for i in range(m // PMAX):
        out = nl.ndarray((PMAX, n), dtype=result.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=sums[:, i, :])
        nisa.dma_copy(dst=result[i * PMAX : (i + 1) * PMAX, :], src=out)
    return result


@nki.jit
def matmul_blocked(
    lhs_t: nl.ndarray,
    rhs: nl.ndarray,
    result_dtype: str | None = None,
    double_row: bool = False,
    block_m: int = 1024,
    block_n: int = 1024,
    block_k: int = 2048,
) -> nl.ndarray:
    """Blocks of M, N and K stay in SBUF while they are used; with all of K in a block, PSUM holds the final sums.

    With ``double_row`` (FP8, trn2 and later) one instruction contracts 256 rows of K. M must be a multiple of 128,
    K of 128 (256 with ``double_row``). The defaults hold a 1024-cubed product in one block: each operand is loaded
    once, and 1024 columns of the result are evicted by one instruction.
    """
    k, m = lhs_t.shape
    n = rhs.shape[1]
    assert rhs.shape[0] == k, f"lhs_t has K={k}, rhs has K={rhs.shape[0]}"
    assert m % PMAX == 0, f"M must be a multiple of {PMAX}, not {m}"
    rows = 2 if double_row else 1
    result = nl.ndarray((m, n), dtype=result_dtype or lhs_t.dtype, buffer=nl.shared_hbm)

    for n0 in range(0, n, block_n):
        n1 = min(n0 + block_n, n)
        for m0 in range(0, m, block_m):
            m1 = min(m0 + block_m, m)
            sums = []
            for k0 in range(0, k, block_k):
                k1 = min(k0 + block_k, k)
                stationary = load_k_tiles(lhs_t, k0, k1, m0, m1, rows)
                moving = load_k_tiles(rhs, k0, k1, n0, n1, rows)
                for i in range((m1 - m0) // PMAX):
                    product = multiply_panel(stationary, moving, i * PMAX, n1 - n0, double_row)
                    last = k1 == k
                    if k0 == 0:
                        # The only block goes straight to the result's dtype; otherwise the sums stay float32.
                        kept = nl.ndarray(product.shape, dtype=result.dtype if last else nl.float32, buffer=nl.sbuf)
                        nisa.tensor_copy(dst=kept, src=product)
                        sums.append(kept)
                    else:
                        kept = sums[i]
                        if last:
                            kept = nl.ndarray(product.shape, dtype=result.dtype, buffer=nl.sbuf)
                        nisa.tensor_tensor(dst=kept, data1=sums[i], data2=product, op=nl.add)
                    if last:
                        nisa.dma_copy(dst=result[m0 + i * PMAX : m0 + (i + 1) * PMAX, n0:n1], src=kept)
    return result


def multiply_panel(
    stationary: list[nl.ndarray], moving: list[nl.ndarray], column: int, width: int, double_row: bool
) -> nl.ndarray:
    """PSUM tile ``[128, width]``: stationary columns ``column`` to ``column + 128`` times the moving K tiles.

    The tile spans several banks, so that one instruction can evict it; each matmul stays inside one bank.
    """
    product = nl.ndarray((PMAX, width), dtype=nl.float32, buffer=nl.psum)
    for n0 in range(0, width, FMAX):
        n1 = min(n0 + FMAX, width)
        for i in range(len(moving)):
            if double_row:
                nisa.nc_matmul(
                    dst=product[:, n0:n1],
                    stationary=stationary[i][:, :, column : column + PMAX],
                    moving=moving[i][:, :, n0:n1],
                    accumulate=i > 0,
                    perf_mode=nisa.matmul_perf_mode.double_row,
                )
            else:
                nisa.nc_matmul(
                    dst=product[:, n0:n1],
                    stationary=stationary[i][:, 0, column : column + PMAX],
                    moving=moving[i][:, 0, n0:n1],
                    accumulate=i > 0,
                )
    return product


def matmul_reference(lhs_t: np.ndarray, rhs: np.ndarray, *static: Any, real: type = np.float64) -> np.ndarray:
    """``lhs_t.T @ rhs`` in float64."""
    return lhs_t.astype(real, copy=False).T @ rhs.astype(real, copy=False)


def operands(k: int, m: int, n: int, dtype: Any, *static: Any) -> Callable:
    """Arguments for a case: standard normal ``lhs_t [k, m]`` and ``rhs [k, n]``, then the static arguments."""

    def args(rng: np.random.Generator) -> tuple:
        lhs_t = rng.standard_normal((k, m), dtype=np.float32).astype(dtype)
        rhs = rng.standard_normal((k, n), dtype=np.float32).astype(dtype)
        return (lhs_t, rhs, *static)

    return args


def numpy_of(reference: Callable) -> Callable:
    """The same maths as a NumPy user would run it: in float32."""
    return functools.partial(reference, real=np.float32)


def case(
    label: str, args: Callable, tolerance: float, targets: tuple[str, ...] = ("trn1", "trn2", "trn3")
) -> dict[str, Any]:
    """A row of ``TILELANG_CASES``; the tolerance bounds max|result - reference| / max|reference|."""
    return {
        "label": label,
        "args": args,
        "reference": matmul_reference,
        "numpy": numpy_of(matmul_reference),
        "tolerance": tolerance,
        "targets": targets,
    }


BF16 = ml_dtypes.bfloat16
FP8 = ml_dtypes.float8_e4m3
# bfloat16 results are rounded to 8 significant bits, 2^-9 of a value; float32 ones carry only the rounding of the sums.
BF16_TOLERANCE = 2.0**-8
FP32_TOLERANCE = 1e-5

TILELANG_CASES = {
    "matmul_basic": [
        case("bf16 128x128x512", operands(128, 128, 512, BF16), BF16_TOLERANCE),
        case("fp32 64x96x200", operands(64, 96, 200, np.float32), FP32_TOLERANCE),
    ],
    "matmul_tiled": [
        case("bf16 ragged 200x130x600", operands(200, 130, 600, BF16), BF16_TOLERANCE),
        case("fp32 ragged 130x70x520", operands(130, 70, 520, np.float32), FP32_TOLERANCE),
        case("bf16 1024", operands(1024, 1024, 1024, BF16), BF16_TOLERANCE),
    ],
    "matmul_hoisted": [
        case("bf16 256x128x600", operands(256, 128, 600, BF16), BF16_TOLERANCE),
        case("bf16 1024", operands(1024, 1024, 1024, BF16), BF16_TOLERANCE),
    ],
    "matmul_k_blocked": [
        case("bf16 384x128x520, blocks of 256", operands(384, 128, 520, BF16, None, 256), BF16_TOLERANCE),
        case("bf16 1024", operands(1024, 1024, 1024, BF16), BF16_TOLERANCE),
    ],
    "matmul_blocked": [
        case("bf16 256x256x600", operands(256, 256, 600, BF16), BF16_TOLERANCE),
        case(
            "bf16 384x256x640, small blocks",
            operands(384, 256, 640, BF16, nl.float32, False, 128, 512, 128),
            FP32_TOLERANCE,
        ),
        case("fp32 256x128x512", operands(256, 128, 512, np.float32), FP32_TOLERANCE),
        case(
            "fp8 double row 512x128x512",
            operands(512, 128, 512, FP8, nl.bfloat16, True),
            BF16_TOLERANCE,
            targets=("trn2", "trn3"),
        ),
        case("bf16 1024", operands(1024, 1024, 1024, BF16), BF16_TOLERANCE),
        case(
            "fp8 double row 1024",
            operands(1024, 1024, 1024, FP8, nl.bfloat16, True),
            BF16_TOLERANCE,
            targets=("trn2", "trn3"),
        ),
    ],
}
