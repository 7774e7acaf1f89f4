"""Dynamic indices: the part of a view's address that is read at run time, and what may serve as its source."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tilelang.errors import TileRuleError, TileTypeError, TileValueError
from tilelang.ir.handle import Handle
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.scalars import NkiScalar, VirtualRegister

__all__ = ["Dynamic", "dynamic_index", "refuse_second_index", "scalar_source"]


@dataclass(frozen=True, slots=True, eq=False)
class Dynamic:
    """The part of a view's address that is read when the instruction runs.

    With `v` the integer read from `source`, legal when `0 <= v < limit`, in elements of `base.dtype`:

    | kind | element address of index (i0, i1, …) | `source` |
    |---|---|---|
    | "scalar" | static address + `v * multiplier` | register, NkiScalar or one-element sbuf tensor |
    | "vector" | static address + `v[i0] * multiplier` | sbuf tensor (P, K), read column by column |
    | "indirect" | element `v` of row i0 of `base`, free dims flattened | sbuf tensor (P, K), isa.md section 5.5 |

    `base` is the tensor on which the view was made and `limit` the extent of its indexed dim `dim`. A vector view has
    stride 0 along dim 0, an indirect view along its free dim: the index alone moves it. The encoder takes
    `byte_multiplier` (it stays exact when `.ap(dtype=)` changed the element size) and `Handle.dynamic_range`, which
    also keeps every touched element inside the storage.
    """

    kind: str
    source: Any
    multiplier: int
    limit: int
    dim: int
    base: Handle

    @property
    def byte_multiplier(self) -> int:
        """Bytes by which one unit of the index moves the view."""
        return self.multiplier * self.base.itemsize

    @property
    def key(self) -> Hashable:
        """Layout signature of the dynamic part: its kind, and what its source is."""
        source = self.source.key if isinstance(self.source, Handle) else type(self.source)
        return self.kind, source, self.byte_multiplier, self.limit, self.base.key if self.kind == "indirect" else None


def scalar_source(view: Handle, source: Any, use: str) -> Any:
    """`source`, when it can move `view` as a whole: a register, an NkiScalar or a one-element integer SBUF tensor.

    Raises TileTypeError for other kinds and TileRuleError for tensors that do not qualify.
    """
    if isinstance(source, VirtualRegister):
        return source
    if isinstance(source, NkiScalar):
        if source.require_value(use).dtype == "int64" and view.storage.on_chip:
            raise TileTypeError(
                f"{use} of {view.describe()} is an int64 scalar; on-chip addresses take int32",
                rule="NkiScalar.R4",
                hint="load the scalar from an int32 tensor",
            )
        return source
    if not isinstance(source, Handle):
        raise TileTypeError(
            f"{use} is {source!r}, not a register, an NkiScalar or a one-element SBUF tensor",
            rule="LANG.R219",
            hint="a Python int goes into offset= or a static index",
        )
    fmt = source.fmt
    if source.buffer is not MemoryRegion.sbuf or source.P * source.F != 1:
        raise TileRuleError(
            f"{use} is {source.describe()}; an index tensor has one element and lies in sbuf",
            rule="LANG.R219",
            hint="select one element, e.g. index[0:1, 0:1]",
        )
    if fmt.kind not in ("int", "uint") or fmt.itemsize > 4:
        raise TileRuleError(
            f"{use} is {source.describe()}; index dtypes are int8, int16, int32, uint8, uint16, uint32",
            rule="LANG.R219",
        )
    if source.dynamic is not None:
        raise TileRuleError(f"{use} is itself an indirect view", rule="AP.R9", hint="copy the index to a tile first")
    return source


def refuse_second_index(view: Handle, present: Dynamic | None, use: str) -> None:
    """Raise TileRuleError (AP.R9) when there is a dynamic part already."""
    if present is not None:
        raise TileRuleError(
            f"{use} of {view.describe()} comes on top of a dynamic index ({present.kind})",
            rule="AP.R9",
            hint="apply the one dynamic index last, to a static view",
        )


def dynamic_index(view: Handle, dim: int, item: Any, present: Dynamic | None) -> Dynamic:
    """The dynamic part of selecting position `item`, known at run time, along `dim` of `view`."""
    use = f"the index of dim {dim}"
    refuse_second_index(view, present, use)
    source = scalar_source(view, item, use)
    if dim == 0 and view.storage.on_chip:
        raise TileRuleError(
            f"{use} of {view.describe()} is dynamic; partitions are chosen while tracing",
            rule="AP.R12",
            hint="index a free dim, or keep the tensor in HBM",
        )
    if view.strides[dim] == 0:
        raise TileValueError(
            f"{use} of {view.describe()} moves nothing: the dim is a broadcast (stride 0)", rule="LANG.R220"
        )
    return Dynamic("scalar", source, view.strides[dim], view.shape[dim], dim, view)
