"""Names that `nki.language` once had, and what to use in their place (language.md section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from tilelang.errors import closest

__all__ = ["missing"]

_INDEX = "index with slices and nl.ds, or t.ap(pattern); index values come from nisa.iota"
_GRID = "launch with k[n](…) and read nl.program_id"
_REMOVED = {
    "arange": _INDEX,
    "mgrid": _INDEX,
    "par_dim": "dim 0 of an on-chip tensor is the partition dim; use a Python list of tiles in place of block dims",
    "nc": _GRID,
    "spmd_dim": _GRID,
    "all_reduce": "reduce with nki.collectives, or in one kernel",
    "atomic_rmw": "use nisa.dma_compute",
    "loop_reduce": "accumulate in a tile with nisa.tensor_tensor, or in PSUM with nisa.nc_matmul",
    "static_cast": "use nl.copy(x, dtype=…)",
    "finfo": "write the number, e.g. -3.4028235e38 for the lowest float32",
    "fp32": "write the number, e.g. -3.4028235e38 for fp32.min",
    "bfp16": "write the number, e.g. -3.3895314e38 for the lowest bfloat16",
    "gemm_grid": _GRID,
    "gemm_stationary_grid": _GRID,
}


def missing(name: str, known: Iterable[str]) -> NoReturn:
    """Raise the AttributeError for `nki.language.<name>`; `known` are the names there are."""
    if name in _REMOVED:
        raise AttributeError(f"nki.language.{name} was removed from NKI; {_REMOVED[name]}")
    raise AttributeError(f"nki.language has no attribute {name!r}{closest(name, known)}")
