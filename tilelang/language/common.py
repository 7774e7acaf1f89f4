"""What the wrappers of `nki.language` share: errors at the user's line, operand checks, result tiles, broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tilelang.errors import Diagnostic, Site, TileError, TileRuleError, TileTypeError
from tilelang.ir.context import active_builder, current_builder
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.copies import tensor_copy
from tilelang.isa.dma import dma_copy

__all__ = [
    "Axis",
    "Number",
    "broadcast",
    "broadcast_rows",
    "broadcast_shape",
    "deprecated",
    "fail",
    "in_sbuf",
    "number",
    "on_chip_tile",
    "tile",
    "warn_once",
]

Number: TypeAlias = int | float
Axis: TypeAlias = int | Sequence[int]


def fail(error: TileError) -> NoReturn:
    """Raise `error` at the user's line."""
    builder = active_builder()
    raise error.at(None if builder is None else builder.site(2)) from None


def warn_once(diagnostic: Diagnostic, category: type[Warning]) -> None:
    """Report `diagnostic` at the user's line, once per kernel and line."""
    builder = current_builder()
    site: Site = builder.site(2)
    for found in builder.found:
        seen = found.site
        if found.rule == diagnostic.rule and seen and (seen.code, seen.lasti) == (site.code, site.lasti):
            return
    builder.report(diagnostic, site, category)


def deprecated(message: str, rule: str, hint: str) -> None:
    """Warn of a form that NKI 0.7 removed; an error in strict mode. Says nothing when an older version is asked for."""
    builder = current_builder()
    if builder.nki != "0.7":
        return
    if builder.strict:
        fail(TileTypeError(message, rule=rule, hint=hint))
    warn_once(Diagnostic(message, rule=rule, hint=hint), DeprecationWarning)


def number(value: Any) -> Number | None:
    """`value` as a Python number, None when it is none. NumPy scalars are numbers; bools are ints."""
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        item: Number = value.item()
        return int(item) if isinstance(item, bool) else item
    return None


def on_chip_tile(function: str, operand: str, value: Any, other: str = "") -> NkiTensor:
    """`value`, when it is a tensor in SBUF or PSUM. `other` says what else the operand may be."""
    if not isinstance(value, NkiTensor):
        hint = "nl.shared_constant(array) brings host arrays into a kernel" if isinstance(value, np.ndarray) else None
        fail(
            TileTypeError(
                f"nl.{function}: {operand} must be a tile{other}, got {type(value).__name__}",
                rule="LANG.R301",
                hint=hint,
            )
        )
    if not value.on_chip:
        where = str(value.buffer).upper().replace("_", " ")
        fail(
            TileRuleError(
                f"nl.{function}: {operand} is in {where}: {value.describe()}; it must be in SBUF or PSUM",
                rule="LANG.R302",
                hint=f"load it first: {operand} = nl.load({operand})",
            )
        )
    return value


def tile(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf) -> NkiTensor:
    """A fresh on-chip tile, contents undefined."""
    result: NkiTensor = current_builder().allocate(tuple(shape), dtype, buffer)
    return result


def in_sbuf(value: NkiTensor) -> NkiTensor:
    """`value`, or its copy in SBUF when it is in PSUM."""
    if value.buffer is not MemoryRegion.psum:
        return value
    copy = tile(value.shape, value.dtype)
    tensor_copy(copy, value)
    return copy


def broadcast_shape(function: str, x: NkiTensor, y: NkiTensor) -> tuple[int, ...]:
    """The shape of `x` and `y` broadcast against each other, NumPy's rule; a (P, 1) tile fits any rank."""
    if x.shape == y.shape:
        return x.shape
    first, second = (_row_vector_rank(a, b) for a, b in ((x, y), (y, x)))
    if len(first) == len(second) and all(a == b or 1 in (a, b) for a, b in zip(first, second, strict=True)):
        return tuple(max(a, b) for a, b in zip(first, second, strict=True))
    fail(
        TileRuleError(
            f"nl.{function}: shapes {x.shape} and {y.shape} do not broadcast",
            rule="LANG.R303",
            hint="equal ranks, and in each dim equal sizes or one of them 1; or a (P, 1) tile",
        )
    )


def _row_vector_rank(value: NkiTensor, other: NkiTensor) -> tuple[int, ...]:
    """The shape of `value`; of a (P, 1) tile, with as many dims as `other`."""
    if value.F == 1 and value.ndim < other.ndim:
        return (value.P, *(1,) * (other.ndim - 1))
    return value.shape


def broadcast(function: str, value: NkiTensor, shape: tuple[int, ...], asked: bool = False) -> NkiTensor:
    """A tile of `shape` whose size-1 dims repeat `value`: a view along free dims, copies of rows along partitions.

    Strict mode refuses the copies unless the user `asked` for the shape.
    """
    if value.P == 1 and shape[0] > 1:
        if current_builder().strict and not asked:
            fail(
                TileRuleError(
                    f"nl.{function}: {value.describe()} would be broadcast along partitions to {shape[0]} rows",
                    rule="LANG.R304",
                    hint="say so with nl.broadcast_to, or load the rows: nl.load(t.broadcast(0, rows)) from HBM",
                )
            )
        value = broadcast_rows(value, shape[0])
    while value.ndim < len(shape):
        value = value.expand_dim(value.ndim)
    for dim in range(1, len(shape)):
        if value.shape[dim] != shape[dim]:
            value = value.broadcast(dim, shape[dim])
    return value


def broadcast_rows(value: NkiTensor, rows: int) -> NkiTensor:
    """A tile of `rows` copies of the row of `value`. DMA doubles the rows, since engines cannot cross partitions."""
    source = in_sbuf(value)
    result = tile((rows, *value.shape[1:]), value.dtype)
    dma_copy(result[0:1], source)
    filled = 1
    while filled < rows:
        count = min(filled, rows - filled)
        dma_copy(result[filled : filled + count], result[0:count])
        filled += count
    return result
