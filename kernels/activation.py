"""Activation functions on ``[rows, cols]``: GELU, SiLU and the gated SwiGLU.

ScalarE evaluates one function of one tile per instruction and rounds only its output. SwiGLU keeps ``silu(gate)`` in
float32 until VectorE has multiplied it by ``up``, so that its result, too, is rounded once to its own dtype.
"""

from __future__ import annotations

import functools
import math
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
def gelu(x: nl.ndarray) -> nl.ndarray:
    """``x * Phi(x)``, Phi the normal distribution function, of ``x [rows, cols]`` in x's dtype."""
    return activate(x, nl.gelu)


@nki.jit
def silu(x: nl.ndarray) -> nl.ndarray:
    """``x * sigmoid(x)`` of ``x [rows, cols]`` in x's dtype."""
    return activate(x, nl.silu)


@nki.jit
def swiglu(gate: nl.ndarray, up: nl.ndarray) -> nl.ndarray:
    """``silu(gate) * up`` for ``[rows, cols]`` operands; the result has gate's dtype."""
    assert up.shape == gate.shape, f"shapes differ: {list(gate.shape)} and {list(up.shape)}"
    out = nl.ndarray(gate.shape, dtype=gate.dtype, buffer=nl.shared_hbm)
    for where, size in tiles(*gate.shape):
        gate_tile = load(gate, where, size)
        up_tile = load(up, where, size)
        opened = nl.ndarray(size, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=opened, op=nl.silu, data=gate_tile)
        nisa.tensor_tensor(dst=gate_tile, data1=opened, data2=up_tile, op=nl.multiply)
        nisa.dma_copy(dst=out[where], src=gate_tile)
    return out


def activate(x: nl.ndarray, function: Callable) -> nl.ndarray:
    """``function(x)``, tile by tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for where, size in tiles(*x.shape):
        tile = load(x, where, size)
        nisa.activation(dst=tile, op=function, data=tile)
        nisa.dma_copy(dst=out[where], src=tile)
    return out


def tiles(rows: int, cols: int) -> list[tuple[tuple[slice, slice], tuple[int, int]]]:
    """Index and size of each tile of a ``[rows, cols]`` tensor; the last ones are smaller."""
    found = []
    for row in range(0, rows, PMAX):
        for column in range(0, cols, TILE_COLUMNS):
            size = (min(PMAX, rows - row), min(TILE_COLUMNS, cols - column))
            found.append(((slice(row, row + size[0]), slice(column, column + size[1])), size))
    return found


def load(x: nl.ndarray, where: tuple[slice, slice], size: tuple[int, int]) -> nl.ndarray:
    """SBUF copy of ``x[where]``."""
    tile = nl.ndarray(size, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[where])
    return tile


def gelu_reference(x: np.ndarray) -> np.ndarray:
    """Exact GELU in float64."""
    x = x.astype(np.float64)
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def silu_reference(
    x: np.ndarray,
    *,
    real: type = np.float64,
) -> np.ndarray:
    """SiLU in float64."""
    x = x.astype(real, copy=False)
    return x / (1 + np.exp(-x))


def swiglu_reference(gate: np.ndarray, up: np.ndarray, *, real: type = np.float64) -> np.ndarray:
    """SwiGLU in float64."""
    return silu_reference(gate, real=real) * up.astype(real, copy=False)


def numpy_of(reference: Callable) -> Callable:
    """The same maths as a NumPy user would run it: in float32."""
    return functools.partial(reference, real=np.float32)


def cases(reference: Callable, inputs: int) -> list[dict[str, Any]]:
    """Rows of ``TILELANG_CASES``; the tolerance bounds max|result - reference| / max|reference|."""

    def case(label: str, rows: int, cols: int, dtype: Any, tolerance: float) -> dict[str, Any]:
        def args(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
            return tuple(2 * rng.standard_normal((rows, cols), dtype=np.float32).astype(dtype) for _ in range(inputs))

        targets = ("trn1", "trn2", "trn3")
        return {
            "label": label,
            "args": args,
            "reference": reference,
            "numpy": None if reference is gelu_reference else numpy_of(reference),
            "tolerance": tolerance,
            "targets": targets,
        }

    return [
        case("fp32 ragged 130x70", 130, 70, np.float32, 1e-6),
        case("bf16 ragged 64x2100", 64, 2100, ml_dtypes.bfloat16, 2.0**-8),
        case("bf16 2048x2048", 2048, 2048, ml_dtypes.bfloat16, 2.0**-8),
    ]


TILELANG_CASES = {
    "gelu": cases(gelu_reference, 1),
    "silu": cases(silu_reference, 1),
    "swiglu": cases(swiglu_reference, 2),
}
