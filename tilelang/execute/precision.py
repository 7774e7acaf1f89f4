"""`precision="high"`: host arrays of low-precision floats are float32 while a program runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS, format_of
from tilelang.errors import TileUnsupportedError
from tilelang.ir.program import Program
from tilelang.numerics import casts

__all__ = ["check_high", "narrowed", "widened"]


def widened(array: NDArray[Any], precision: str) -> NDArray[Any]:
    """`array` as programs of `precision` store it: decoded to float32 when that is "high" and the dtype
    low-precision.
    """
    if precision != "high":
        return array
    fmt = format_of(array.dtype)
    return casts.decode(array.view(fmt.carrier), fmt.name) if fmt.is_low_precision else array


def narrowed(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """`array` in `dtype`, undoing `widened`: each value is rounded once."""
    if array.dtype == dtype:
        return array
    fmt = format_of(dtype)
    return np.asarray(casts.encode(array, fmt.name)).view(dtype)


def check_high(program: Program) -> None:
    """Raise TileUnsupportedError where precision "high" cannot store what a view of another dtype looks at."""
    for item in program.walk():
        for tensor in item.tiles():
            stored, seen = tensor.storage.fmt, FORMATS[tensor.dtype]
            if stored is not seen and (stored.is_low_precision or seen.is_low_precision):
                raise TileUnsupportedError(
                    f"{item.opname} views {stored.name} storage as {seen.name}; "
                    'with precision="high" low-precision tensors are stored as float32',
                    hint='run it with precision="exact"',
                ).at(item.site)
