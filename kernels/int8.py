"""Eight-bit integers: quantise, dequantise, and two matrix products.

A row (a channel of a weight) is quantised symmetrically: ``scale = max|row| / 127``, ``q = round(row / scale)``.

TensorE has no integer mode, but every int8 is exact in bfloat16, and every product of two of them in float32. Sums are
exact up to 2^24, and 8 K tiles of 128 rows bring at most 1024 * 128 * 128 = 2^24. So `int8_matmul` lets PSUM sum 1024
rows of K, and adds these blocks on GpSimdE, whose 32-bit integer addition is exact.
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

PMAX = 128  # nl.tile_size.pmax
FMAX = 512  # nl.tile_size.gemm_moving_fmax
EXACT_K = 1024  # rows of K whose int8 products sum exactly in float32
LEAST_PEAK = 1e-30  # stands in for the peak of an all-zero row, so that its reciprocal is finite


@nki.jit
def quantize_rows(x: nl.ndarray) -> tuple[nl.ndarray, nl.ndarray]:
    """Quantise each row of ``x [rows, cols]``: int8 ``[rows, cols]`` and float32 scales ``[rows, 1]``."""
    rows, cols = x.shape
    out = nl.ndarray((rows, cols), dtype=nl.int8, buffer=nl.shared_hbm)
    scales = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for first in range(0, rows, PMAX):
        size = min(PMAX, rows - first)
        tile = load(x[first : first + size, :])

        # Before trn3 no reduction takes absolute values: max|x| = max(max x, -min x).
        peak = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=peak, op=nl.maximum, data=tile, axis=1)
        depth = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=depth, op=nl.minimum, data=tile, axis=1, negate=True)
        nisa.tensor_scalar(dst=peak, data=peak, op0=nl.maximum, operand0=depth, op1=nl.maximum, operand1=LEAST_PEAK)

        scale = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scale, data=peak, op0=nl.multiply, operand0=1.0 / 127.0)
        inverse = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=scale)
        # The conversion to int8 rounds to nearest even and saturates.
        quantized = nl.ndarray((size, cols), dtype=nl.int8, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=quantized, data=tile, op0=nl.multiply, operand0=inverse)

        nisa.dma_copy(dst=out[first : first + size, :], src=quantized)
        nisa.dma_copy(dst=scales[first : first + size, :], src=scale)
    return out, scales


@nki.jit
def dequantize_rows(q: nl.ndarray, scales: nl.ndarray, result_dtype: str = nl.bfloat16) -> nl.ndarray:
    """``q * scales`` for int8 ``q [rows, cols]`` and float32 ``scales [rows, 1]``, in ``result_dtype``."""
    rows, cols = q.shape
    assert scales.shape == (rows, 1), f"scales must be [{rows}, 1], not {list(scales.shape)}"
    out = nl.ndarray((rows, cols), dtype=result_dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, PMAX):
        size = min(PMAX, rows - first)
        tile = load(q[first : first + size, :])
        scale = load(scales[first : first + size, :])
        wide = nl.ndarray((size, cols), dtype=result_dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=wide, data=tile, op0=nl.multiply, operand0=scale)
        nisa.dma_copy(dst=out[first : first + size, :], src=wide)
    return out


@nki.jit
def int8_weight_matmul(weight: nl.ndarray, scales: nl.ndarray, x: nl.ndarray) -> nl.ndarray:
    """Linear layer with an int8 weight: ``(weight * scales.T).T @ x``, features on the partitions throughout.

    weight int8 ``[K, N]``, scales float32 ``[N, 1]`` (one per output feature) and x bfloat16 ``[K, T]`` give ``[N, T]``
    in x's dtype. The weight moves through DMA as one byte an element and becomes bfloat16 in SBUF. It is the stationary
    operand, so an output feature is a partition, and its scale multiplies the sums for free as they leave PSUM.
    Any sizes.
    """
    k, n = weight.shape
    tokens = x.shape[1]
    assert x.shape[0] == k, f"weight has K={k}, x has K={x.shape[0]}"
    assert scales.shape == (n, 1), f"scales must be [{n}, 1], not {list(scales.shape)}"
    out = nl.ndarray((n, tokens), dtype=x.dtype, buffer=nl.shared_hbm)

    inputs = [load(x[k0 : min(k0 + PMAX, k), :]) for k0 in range(0, k, PMAX)]
    for n0 in range(0, n, PMAX):
        n1 = min(n0 + PMAX, n)
        scale = load(scales[n0:n1, :])
        weights = [load_exact(weight[k0 : min(k0 + PMAX, k), n0:n1]) for k0 in range(0, k, PMAX)]
        for t0 in range(0, tokens, FMAX):
            t1 = min(t0 + FMAX, tokens)
            total = nl.ndarray((n1 - n0, t1 - t0), dtype=nl.float32, buffer=nl.psum)
            for i in range(len(weights)):
                nisa.nc_matmul(dst=total, stationary=weights[i], moving=inputs[i][:, t0:t1], accumulate=i > 0)
            scaled = nl.ndarray((n1 - n0, t1 - t0), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=scaled, data=total, op0=nl.multiply, operand0=scale)
            nisa.dma_copy(dst=out[n0:n1, t0:t1], src=scaled)
    return out


@nki.jit
def int8_matmul(lhs_t: nl.ndarray, rhs: nl.ndarray) -> nl.ndarray:
    """Exact ``lhs_t.T @ rhs`` of int8 ``[K, M]`` and ``[K, N]`` as int32 ``[M, N]``, for K < 2^17. Any sizes."""
    k, m = lhs_t.shape
    n = rhs.shape[1]
    assert rhs.shape[0] == k, f"lhs_t has K={k}, rhs has K={rhs.shape[0]}"
    assert k < 2**17, f"sums of {k} products can leave int32"
    out = nl.ndarray((m, n), dtype=nl.int32, buffer=nl.shared_hbm)

    moving = [load_exact(rhs[k0 : min(k0 + PMAX, k), :]) for k0 in range(0, k, PMAX)]
    for m0 in range(0, m, PMAX):
        m1 = min(m0 + PMAX, m)
        stationary = [load_exact(lhs_t[k0 : min(k0 + PMAX, k), m0:m1]) for k0 in range(0, k, PMAX)]
        for n0 in range(0, n, FMAX):
            n1 = min(n0 + FMAX, n)
            total = None
            for first in range(0, len(moving), EXACT_K // PMAX):
                partial = nl.ndarray((m1 - m0, n1 - n0), dtype=nl.float32, buffer=nl.psum)
                for i in range(first, min(first + EXACT_K // PMAX, len(moving))):
                    nisa.nc_matmul(
                        dst=partial, stationary=stationary[i], moving=moving[i][:, n0:n1], accumulate=i > first
                    )
                block = nl.ndarray((m1 - m0, n1 - n0), dtype=nl.int32, buffer=nl.sbuf)
                nisa.tensor_copy(dst=block, src=partial)
                if total is None:
                    total = block
                else:
                    # VectorE would add in float32, which is inexact above 2^24.
                    nisa.tensor_tensor(dst=total, data1=total, data2=block, op=nl.add, engine=nisa.engine.gpsimd)
            nisa.dma_copy(dst=out[m0:m1, n0:n1], src=total)
    return out


def load(source: nl.ndarray) -> nl.ndarray:
    """SBUF copy of a 2-D view of HBM."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def load_exact(source: nl.ndarray) -> nl.ndarray:
    """SBUF copy of a 2-D int8 view of HBM, as bfloat16, which holds every int8."""
    tile = nl.ndarray(source.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=load(source))
    return tile


def quantize_reference(
    x: np.ndarray,
    *,
    real: type = np.float64,
) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric row quantisation in float64 (integers as float64)."""
    x = x.astype(real, copy=False)
    scales = np.maximum(np.abs(x).max(axis=1, keepdims=True), LEAST_PEAK) / 127
    return np.rint(x / scales), scales


def dequantize_reference(
    q: np.ndarray, scales: np.ndarray, result_dtype: str = "", *, real: type = np.float64
) -> np.ndarray:
    """``q * scales`` in float64."""
    return q.astype(real, copy=False) * scales.astype(real, copy=False)


def weight_matmul_reference(
    weight: np.ndarray, scales: np.ndarray, x: np.ndarray, *, real: type = np.float64
) -> np.ndarray:
    """The linear layer in float64."""
    return (weight.astype(real, copy=False) * scales.astype(real, copy=False).T).T @ x.astype(real, copy=False)


def matmul_reference(lhs_t: np.ndarray, rhs: np.ndarray, *, real: type = np.float64) -> np.ndarray:
    """The integer product, exact in float64, because its sums stay below 2^53."""
    return lhs_t.astype(real, copy=False).T @ rhs.astype(real, copy=False)


def quantize_args(rows: int, cols: int, dtype: Any) -> Callable:
    """Arguments of `quantize_rows`: normal rows of different sizes, the last one zero."""

    def args(rng: np.random.Generator) -> tuple[np.ndarray]:
        x = rng.standard_normal((rows, cols), dtype=np.float32) * rng.uniform(0.5, 2, (rows, 1)).astype(np.float32)
        x[-1] = 0
        return (x.astype(dtype),)

    return args


def dequantize_args(rows: int, cols: int, result_dtype: str) -> Callable:
    """Arguments of `dequantize_rows`."""

    def args(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, str]:
        q = rng.integers(-128, 128, (rows, cols), dtype=np.int8)
        return q, rng.uniform(0.01, 0.02, (rows, 1)).astype(np.float32), result_dtype

    return args


def weight_matmul_args(k: int, n: int, tokens: int) -> Callable:
    """Arguments of `int8_weight_matmul`."""

    def args(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        weight = rng.integers(-127, 128, (k, n), dtype=np.int8)
        scales = rng.uniform(0.01, 0.02, (n, 1)).astype(np.float32)
        return weight, scales, rng.standard_normal((k, tokens), dtype=np.float32).astype(ml_dtypes.bfloat16)

    return args


def matmul_args(k: int, m: int, n: int) -> Callable:
    """Arguments of `int8_matmul`: all of int8, with extreme first columns whose sum reaches 2^14 K."""

    def args(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        lhs_t, rhs = (rng.integers(-128, 128, (k, width), dtype=np.int8) for width in (m, n))
        lhs_t[:, 0] = rhs[:, 0] = -128
        return lhs_t, rhs

    return args


def numpy_of(reference: Callable) -> Callable:
    """The same maths as a NumPy user would run it: in float32."""
    return functools.partial(reference, real=np.float32)


def case(
    label: str,
    args: Callable,
    reference: Callable,
    tolerance: float,
    targets: tuple[str, ...] = ("trn1", "trn2", "trn3"),
) -> dict[str, Any]:
    """A row of ``TILELANG_CASES``; the tolerance bounds max|result - reference| / max|reference| of each result."""
    return {
        "label": label,
        "args": args,
        "reference": reference,
        "numpy": numpy_of(reference),
        "tolerance": tolerance,
        "targets": targets,
    }


# A value close to the middle between two integers may be rounded to either: one step of 127.
STEP_TOLERANCE = 1.001 / 127
BF16_TOLERANCE = 2.0**-8

TILELANG_CASES = {
    "quantize_rows": [
        case("fp32 ragged 130x70", quantize_args(130, 70, np.float32), quantize_reference, STEP_TOLERANCE),
        case("bf16 1024x2048", quantize_args(1024, 2048, ml_dtypes.bfloat16), quantize_reference, STEP_TOLERANCE),
    ],
    "dequantize_rows": [
        case("fp32 ragged 130x70", dequantize_args(130, 70, nl.float32), dequantize_reference, 2.0**-24),
        case("bf16 1024x2048", dequantize_args(1024, 2048, nl.bfloat16), dequantize_reference, BF16_TOLERANCE),
    ],
    "int8_weight_matmul": [
        case("ragged 200x130x70", weight_matmul_args(200, 130, 70), weight_matmul_reference, BF16_TOLERANCE),
        case("1024x1024x512", weight_matmul_args(1024, 1024, 512), weight_matmul_reference, BF16_TOLERANCE),
    ],
    "int8_matmul": [
        case("ragged 1300x40x70", matmul_args(1300, 40, 70), matmul_reference, 0.0),
        case("4096x256x512", matmul_args(4096, 256, 512), matmul_reference, 0.0),
    ],
}
