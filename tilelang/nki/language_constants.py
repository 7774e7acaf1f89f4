"""`nki.language.constants`: helpers of older sources."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import format_of

__all__ = ["sizeinbytes"]


def sizeinbytes(dtype: Any) -> int:
    """Bytes of one element of `dtype` (packed dtypes: of one pack). Raises TypeError for what is no tile dtype."""
    return format_of(dtype).itemsize
