"""Tensor indirection (isa.md 5.5): the gather and the scatter that an `.indirect` operand of an instruction stands for.

A call with `.indirect` operands is traced as a gather of each one into a hidden tile, the instruction itself on those
tiles, and a scatter of the result. On the device they are one instruction, so both cost nothing of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.errors import Diagnostic, TileBoundsError
from tilelang.isa.params import Param
from tilelang.isa.rules import on_chip
from tilelang.isa.spec import Call, Finding, In, InOut, Operand, Out, Rule, instruction
from tilelang.isa.tile import Tile

__all__ = ["indirect_gather", "indirect_scatter"]


def _same_dtype(call: Call) -> Finding | None:
    if call.dtype("dst") == call.dtype("src"):
        return None
    return Finding(f"dst is {call.dtype('dst')}, src {call.dtype('src')}; elements are moved as they are", "dst")


def _part(dst: Operand) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Declare one half of an indirection: exact, and free of cost."""
    return instruction(
        operands=dict(dst=dst, src=In(), index=In()),
        params=dict(group=Param("partitions that share offsets", int)),
        engines=("vector",),
        cost=lambda call: 0.0,
        accuracy="exact",
        simulate_only=True,
        rules=(
            on_chip("R1", "dst", "src", "index"),
            Rule("R1", "dst and src of one dtype", _same_dtype),
            Rule("R2", "every offset lies in the partition (at run time)", kind="semantic"),
        ),
    )


def _offsets(index: Tile, rows: int, count: int, group: int, limit: int) -> NDArray[np.int64]:
    """(rows, count) offsets: a group of partitions shares those in its own rows of `index`, read down the columns."""
    table = index.bits().astype(np.int64)
    first = np.arange(rows)[:, None] // group * group
    i = np.arange(count)[None, :]
    size = min(group, rows)
    offsets = table[first + i % size, i // size]
    wrong = np.argwhere((offsets < 0) | (offsets >= limit))
    if len(wrong):
        row, position = wrong[0].tolist()
        raise offset_error(int(offsets[row, position]), position, limit)
    return offsets


_OFFSET_RULES = {"local_gather": "local_gather.R8", "nc_n_gather": "nc_n_gather.R4"}


def offset_error(value: int, position: int, limit: int, name: str = ".indirect") -> TileBoundsError:
    """An offset outside its partition, in every mode; `name` is the instruction."""
    rule = _OFFSET_RULES.get(name, "LANG.R223")
    what = name if name in _OFFSET_RULES else ".indirect"
    message = f"{what}: offset {value} at position {position} is out of range; a partition has {limit} elements"
    return TileBoundsError(message, diagnostics=[Diagnostic(message, rule)])


@_part(dst=Out())
def indirect_gather(dst: Tile, src: Tile, index: Tile, group: int, name: str | None = None) -> None:
    """`dst[p, i] = src[p, off(i)]` with `off(i) = index[g + i % group, i // group]`, g the first row of p's group.

    dst (P, n), src (P, …) with flattened free dims, index (P, K) of uint16, uint32 or int32. Raises TileBoundsError for
    an offset outside the partition. Part of another instruction. Source: isa.md 5.5.
    """
    offsets = _offsets(index, dst.P, dst.F, group, src.F)
    dst.store_bits(np.take_along_axis(src.bits(), offsets, axis=1))


@_part(dst=InOut())
def indirect_scatter(dst: Tile, src: Tile, index: Tile, group: int, name: str | None = None) -> None:
    """`dst[p, off(i)] = src[p, i]`, offsets as in `indirect_gather`; of equal offsets the last one wins.

    dst (P, …) with flattened free dims, src (P, n), index (P, K) of uint16, uint32 or int32. Raises TileBoundsError for
    an offset outside the partition, before anything is written. Part of another instruction. Source: isa.md 5.5.
    """
    offsets = _offsets(index, src.P, src.F, group, dst.F)
    content, values = dst.bits(), src.bits()
    rows = np.arange(src.P)
    for i in range(src.F):
        content[rows, offsets[:, i]] = values[:, i]
    dst.store_bits(content)
