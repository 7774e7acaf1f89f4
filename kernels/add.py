"""Element-wise addition: the smallest complete kernel. Load two tiles, add them on VectorE, store the sum."""

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
TILE_COLUMNS = 2048  # long enough to hide the fixed cost of a DMA, short enough to keep many tiles in flight


@nki.jit
def add(a: nl.ndarray, b: nl.ndarray) -> nl.ndarray:
    """``a + b`` for ``[rows, cols]`` operands of any size; the result has a's dtype."""
    rows, cols = a.shape
    assert b.shape == a.shape, f"shapes differ: {list(a.shape)} and {list(b.shape)}"
    out = nl.ndarray((rows, cols), dtype=a.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, PMAX):
        for column in range(0, cols, TILE_COLUMNS):
            size = (min(PMAX, rows - row), min(TILE_COLUMNS, cols - column))
            where = (slice(row, row + size[0]), slice(column, column + size[1]))
            left = nl.ndarray(size, dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=a[where])
            right = nl.ndarray(size, dtype=b.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=right, src=b[where])
            total = nl.ndarray(size, dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add)
            nisa.dma_copy(dst=out[where], src=total)
    return out


def add_reference(a: np.ndarray, b: np.ndarray, *, real: type = np.float64) -> np.ndarray:
    """``a + b`` in float64."""
    return a.astype(real, copy=False) + b.astype(real, copy=False)


def numpy_of(reference: Callable) -> Callable:
    """The same maths as a NumPy user would run it: in float32."""
    return functools.partial(reference, real=np.float32)


def case(label: str, rows: int, cols: int, dtype: Any, tolerance: float) -> dict[str, Any]:
    """A row of ``TILELANG_CASES``; the tolerance bounds max|result - reference| / max|reference|."""

    def args(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        a, b = rng.standard_normal((2, rows, cols), dtype=np.float32).astype(dtype)
        return a, b

    return {
        "label": label,
        "args": args,
        "reference": add_reference,
        "numpy": numpy_of(add_reference),
        "tolerance": tolerance,
        "targets": ("trn1", "trn2", "trn3"),
    }


# One rounding: half a unit in the last place.
TILELANG_CASES = {
    "add": [
        case("fp32 ragged 130x70", 130, 70, np.float32, 2.0**-24),
        case("bf16 ragged 64x2100", 64, 2100, ml_dtypes.bfloat16, 2.0**-8),
        case("fp32 512x2048", 512, 2048, np.float32, 2.0**-24),
    ],
}
