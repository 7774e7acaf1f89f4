"""`precision="high"`: host arrays of low-precision floats are float32 while a program runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import format_of
from tilelang.numerics import casts

__all__ = ["narrowed", "widened"]


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
