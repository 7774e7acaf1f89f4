"""Memory regions: where a tensor lives (language.md section 2.3)."""

from __future__ import annotations

from enum import Enum
from typing import Any

from tilelang.errors import TileTypeError
from tilelang.ir import hooks

__all__ = ["MemoryRegion", "is_hbm", "is_on_chip", "is_psum", "is_sbuf", "region_of"]


class MemoryRegion(Enum):
    """One of the four memories. `hbm` is another name of `private_hbm` and the same object."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"
    hbm = "private_hbm"

    # Members are singletons; hashing by identity keeps layout signatures cheap to look up.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self._value_)


_ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)
_HBM = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def is_hbm(buffer: MemoryRegion) -> bool:
    """True for `private_hbm` (`hbm`) and `shared_hbm`."""
    return any(buffer is region for region in _HBM)


def is_on_chip(buffer: MemoryRegion) -> bool:
    """True for `sbuf` and `psum`."""
    return any(buffer is region for region in _ON_CHIP)


def is_psum(buffer: MemoryRegion) -> bool:
    """True for `psum`."""
    return buffer is MemoryRegion.psum


def is_sbuf(buffer: MemoryRegion) -> bool:
    """True for `sbuf`."""
    return buffer is MemoryRegion.sbuf


def region_of(buffer: Any) -> MemoryRegion:
    """The region that a `buffer=` argument means.

    A name as a string is accepted with a warning (rejected by the device compiler since 0.3); anything else that is
    not a `MemoryRegion` raises TileTypeError.
    """
    if isinstance(buffer, MemoryRegion):
        return buffer
    if isinstance(buffer, str) and buffer in MemoryRegion.__members__:
        region = MemoryRegion[buffer]
        hooks.warn(f'buffer="{buffer}" is a string; device compilers reject it', "LANG.R228", f"write nl.{buffer}")
        return region
    raise TileTypeError(
        f"buffer={buffer!r} is not a memory region",
        rule="LANG.R228",
        hint="use nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm",
    )
