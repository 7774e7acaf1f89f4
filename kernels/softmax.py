"""Softmax over the last dimension of ``[rows, cols]``.

128 rows at a time, a whole row per partition: the negated maximum of a row is the bias of the exponential, so ScalarE
subtracts, exponentiates and sums a row in one instruction; VectorE then multiplies by the reciprocal of the sum.
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
def softmax(x: nl.ndarray) -> nl.ndarray:
    """Softmax of each row of ``x [rows, cols]`` (float dtypes), in x's dtype.

    Any number of rows; a row must fit in SBUF (up to about 16,000 columns of float32).
    """
    rows, cols = x.shape
    out = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, PMAX):
        size = min(PMAX, rows - first)
        tile = nl.ndarray((size, cols), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first : first + size, :])

        negated_peak = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=negated_peak, op=nl.maximum, data=tile, axis=1, negate=True)
        # float32, or the quotient below would be rounded twice.
        powers = nl.ndarray((size, cols), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total, bias=negated_peak)

        inverse = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=tile, data=powers, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[first : first + size, :], src=tile)
    return out


def softmax_reference(
    x: np.ndarray,
    *,
    real: type = np.float64,
) -> np.ndarray:
    """Softmax of each row in float64."""
    x = x.astype(real, copy=False)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def numpy_of(reference: Callable) -> Callable:
    """The same maths as a NumPy user would run it: in float32."""
    return functools.partial(reference, real=np.float32)


def case(label: str, rows: int, cols: int, dtype: Any, tolerance: float) -> dict[str, Any]:
    """A row of ``TILELANG_CASES``; the tolerance bounds max|result - reference| / max|reference|."""

    def args(rng: np.random.Generator) -> tuple[np.ndarray]:
        return ((4 * rng.standard_normal((rows, cols), dtype=np.float32)).astype(dtype),)

    reference: Callable = softmax_reference
    targets = ("trn1", "trn2", "trn3")
    return {
        "label": label,
        "args": args,
        "reference": reference,
        "numpy": numpy_of(reference),
        "tolerance": tolerance,
        "targets": targets,
    }


# A float32 sum of n positive terms, one by one, is off by at most n roundings; a bfloat16 result by one of 2^-9.
TILELANG_CASES = {
    "softmax": [
        case("fp32 ragged 200x300", 200, 300, np.float32, 300 * 2.0**-24),
        case("bf16 64x129", 64, 129, ml_dtypes.bfloat16, 2.0**-8),
        case("fp32 4096x2048", 4096, 2048, np.float32, 2048 * 2.0**-24),
    ],
}
