"""RMS normalisation with a weight: ``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension.

The weight is one row, needed by all 128 partitions: a DMA whose access pattern has step 0 on the partition dimension
reads the row 128 times. ScalarE squares and sums a row in one instruction; one VectorE instruction multiplies by the
reciprocal root (one number a row) and by the weight (one number a column).
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


@nki.jit
def rmsnorm(x: nl.ndarray, weight: nl.ndarray, eps: float = 1e-6) -> nl.ndarray:
    """RMS norm of each row of ``x [rows, d]`` (float dtypes) times ``weight [1, d]``, in x's dtype.

    Any number of rows; a row must fit in SBUF (up to about 8,000 columns of float32).
    """
    rows, d = x.shape
    assert weight.shape == (1, d), f"weight must be [1, {d}], not {list(weight.shape)}"
    out = nl.ndarray((rows, d), dtype=x.dtype, buffer=nl.shared_hbm)

    gain = nl.ndarray((min(PMAX, rows), d), dtype=weight.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=gain, src=weight.ap([[0, gain.shape[0]], [1, d]]))

    for first in range(0, rows, PMAX):
        size = min(PMAX, rows - first)
        tile = nl.ndarray((size, d), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first : first + size, :])

        # Only the sum is wanted: the squares land in the tile that the result overwrites.
        normed = nl.ndarray((size, d), dtype=x.dtype, buffer=nl.sbuf)
        mean_square = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=normed, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=mean_square)
        nisa.tensor_scalar(
            dst=mean_square, data=mean_square, op0=nl.multiply, operand0=1.0 / d, op1=nl.add, operand1=eps
        )
        inverse_root = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=inverse_root, op=nl.rsqrt, data=mean_square)

        nisa.scalar_tensor_tensor(
            dst=normed,
            data=tile,
            op0=nl.multiply,
            operand0=inverse_root,
            op1=nl.multiply,
            operand1=gain[0:size, :],
        )
        nisa.dma_copy(dst=out[first : first + size, :], src=normed)
    return out


def rmsnorm_reference(x: np.ndarray, weight: np.ndarray, eps: float = 1e-6, *, real: type = np.float64) -> np.ndarray:
    """RMS norm of each row in float64."""
    x = x.astype(real, copy=False)
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + eps) * weight.astype(real, copy=False)


def numpy_of(reference: Callable) -> Callable:
    """The same maths as a NumPy user would run it: in float32."""
    return functools.partial(reference, real=np.float32)


def case(label: str, rows: int, d: int, dtype: Any, tolerance: float) -> dict[str, Any]:
    """A row of ``TILELANG_CASES``; the tolerance bounds max|result - reference| / max|reference|."""

    def args(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((rows, d), dtype=np.float32).astype(dtype)
        weight = (1 + 0.1 * rng.standard_normal((1, d), dtype=np.float32)).astype(dtype)
        return x, weight

    return {
        "label": label,
        "args": args,
        "reference": rmsnorm_reference,
        "numpy": numpy_of(rmsnorm_reference),
        "tolerance": tolerance,
        "targets": ("trn1", "trn2", "trn3"),
    }


# A float32 sum of n positive terms, one by one, is off by at most n roundings; a bfloat16 result by one of 2^-9.
TILELANG_CASES = {
    "rmsnorm": [
        case("fp32 ragged 200x300", 200, 300, np.float32, 300 * 2.0**-24),
        case("bf16 64x129", 64, 129, ml_dtypes.bfloat16, 2.0**-8),
        case("fp32 4096x2048", 4096, 2048, np.float32, 2048 * 2.0**-24),
    ],
}
