"""What kernels of several tests begin and end with."""

from __future__ import annotations

from typing import Any

import tilelang.isa as nisa
import tilelang.language as nl

__all__ = ["load", "store"]


def load(array: Any, buffer: Any = nl.sbuf) -> Any:
    """A tensor in `buffer` with the content of `array`."""
    tile = nl.ndarray(array.shape, dtype=array.dtype, buffer=buffer)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile: Any) -> Any:
    """A result with the content of `tile`."""
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
