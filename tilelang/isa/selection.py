"""Selections of the gpsimd engine: bounds of segments, positions not zero, the largest values (isa.md 14.3 to 14.5)."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.errors import Diagnostic, TileBoundsError
from tilelang.isa.cost import gpsimd_cycles
from tilelang.isa.params import BOOL, INT
from tilelang.isa.rules import alias, dtypes, on_chip, semantic
from tilelang.isa.spec import Call, Finding, In, InOut, Out, Rule, instruction
from tilelang.isa.tile import Tile

__all__ = ["nonzero_with_count", "sequence_bounds", "topk"]

_CORE = 16  # partitions of one gpsimd core


def _int32(rule: str, *names: str) -> Rule:
    def test(call: Call) -> list[Finding]:
        return [
            Finding(f"{name} is {call.values[name]}; it must fit int32", name)
            for name in names
            if not -(2**31) <= call.values[name] < 2**31
        ]

    return Rule(rule, f"{', '.join(names)}: int32", test)


# -- sequence_bounds


def _single_partition(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} has {call.P(name)} partitions; it must have 1", name)
        for name in ("dst", "segment_ids")
        if call.P(name) != 1
    ]


def _bounds_shape(call: Call) -> Finding | None:
    if call.F("dst") == 2 * call.F("segment_ids"):
        return None
    n = call.F("segment_ids")
    return Finding(f"dst is {tuple(call.dst.shape)}; {n} segment ids need (1, 2, {n})", "dst")


def segment_error(value: float, position: int) -> TileBoundsError:
    """A segment id that is none, in every mode."""
    message = f"sequence_bounds: segment id {value} at position {position}; ids are integers from 0 on"
    return TileBoundsError(message, diagnostics=[Diagnostic(message, "sequence_bounds.R5", None, "segment_ids")])


@instruction(
    operands=dict(dst=Out(), segment_ids=In()),
    engines=("gpsimd",),
    cost=lambda call: gpsimd_cycles(2 * call.F("segment_ids")),
    lanewise=False,
    accuracy="exact",
    rules=(
        on_chip("R1", "dst", "segment_ids", buffers=("sbuf",)),
        Rule("R2", "one partition", _single_partition),
        Rule("R3", "dst holds start and end of each id", _bounds_shape),
        dtypes("R4", ("dst", "segment_ids"), ("float32", "int32")),
        semantic("R5", "ids are integers from 0 on (seen when it runs)"),
    ),
)
def sequence_bounds(dst: Tile, segment_ids: Tile, name: str | None = None) -> None:
    """Start and end of the run of equal ids that each position belongs to: `dst[0, 0, i]`, `dst[0, 1, i]` (exclusive).

    segment_ids (1, n), dst (1, 2, n), float32 or int32, SBUF. Id 0 is padding: start n, end -1. An id that comes again
    after a gap is a new run. Raises TileBoundsError for ids that are no integers from 0 on. Engine: gpsimd. Source:
    isa.md 14.3.
    """
    ids = segment_ids.f32()[0]
    wrong = np.flatnonzero(~((ids >= 0) & (ids == np.floor(ids)) & np.isfinite(ids)))
    if len(wrong):
        raise segment_error(float(ids[wrong[0]]), int(wrong[0]))
    exact = segment_ids.bits()[0]
    n = len(exact)
    first = np.flatnonzero(np.concatenate([[True], exact[1:] != exact[:-1]]))
    length = np.diff(np.concatenate([first, [n]]))
    bounds = np.stack([np.repeat(first, length), np.repeat(first + length, length)])
    bounds[:, exact == 0] = [[n], [-1]]
    if dst.fmt.name == "int32":
        dst.store_bits(bounds.reshape(1, -1).astype(np.int32))
    else:
        dst.store(bounds.reshape(1, -1))


# -- nonzero_with_count


def _count_column(call: Call) -> Finding | None:
    if call.P("dst") == call.P("src") and call.F("dst") == call.F("src") + 1:
        return None
    return Finding(
        f"dst is {tuple(call.dst.shape)}, src {tuple(call.src.shape)}; dst has one element per partition more", "dst"
    )


@instruction(
    operands=dict(dst=InOut(), src=In()),
    params=dict(index_offset=INT, padding_val=INT),
    engines=("gpsimd",),
    since=3,
    cost=lambda call: gpsimd_cycles(2 * call.F("src")),
    accuracy="exact",
    rules=(
        alias("R1", "generation 3 (GEN.R10)"),
        on_chip("R2", "dst", "src", buffers=("sbuf",)),
        dtypes("R2", "src", ("float32", "int32")),
        dtypes("R2", "dst", ("int32",)),
        Rule("R3", "dst has one element per partition more than src", _count_column),
        _int32("R4", "index_offset", "padding_val"),
    ),
)
def nonzero_with_count(
    dst: Tile, src: Tile, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> None:
    """Positions of the elements of `src` that are not zero, and how many, in every 16th partition.

    In partitions 0, 16, … of the memory: `dst` (P, T + 1) int32 gets the positions plus `index_offset`, ascending, then
    `padding_val`, and the count in column T. All other partitions of dst keep their content. src (P, T), float32 (-0 is
    zero, NaN is not) or int32; SBUF. Generation 3 on. Engine: gpsimd. Source: isa.md 14.4.
    """
    content, values = dst.bits(), src.f32() if src.fmt.is_float else src.bits()
    for row in range(-dst.start % _CORE, dst.P, _CORE):
        found = np.flatnonzero(values[row] != 0)
        content[row] = np.int32(padding_val)
        content[row, : len(found)] = (found + index_offset).astype(np.int32)
        content[row, -1] = len(found)
    dst.store_bits(content)


# -- topk


def _snakes(call: Call) -> Finding | None:
    rows = {call.P("val_dst"), call.P("idx_dst"), call.P("src")}
    if len(rows) == 1 and call.P("src") % _CORE == 0 and call.F("idx_dst") == call.F("val_dst"):
        return None
    shapes = ", ".join(f"{name} {tuple(call.values[name].shape)}" for name in ("val_dst", "idx_dst", "src"))
    return Finding(f"{shapes}: equal partition counts, a multiple of 16, and equal elements of both results", "idx_dst")


def _length(call: Call) -> Finding | None:
    if 8 <= call.n < 65536:
        return None
    return Finding(f"n is {call.n}; it must be 8 to 65535", "n")


def _wanted(call: Call) -> Finding | None:
    k = call.F("val_dst")
    if 1 <= k < 32768 and k <= call.n:
        return None
    return Finding(f"val_dst asks for the {k} largest of {call.n}; at most 32767, and no more than n", "val_dst")


def _enough(call: Call) -> Finding | None:
    if call.F("src") >= ceil(call.n / _CORE):
        return None
    return Finding(f"src has {call.F('src')} elements per partition; {call.n} in 16 partitions need more", "src")


@instruction(
    operands=dict(val_dst=InOut(), idx_dst=InOut(), src=In()),
    params=dict(n=INT, sorted=BOOL),
    engines=("gpsimd",),
    cost=lambda call: 4.0 * call.n + call.F("val_dst"),
    lanewise=False,
    accuracy="exact",
    rules=(
        on_chip("R1", "val_dst", "idx_dst", "src", buffers=("sbuf",)),
        dtypes("R2", ("val_dst", "src"), ("bfloat16",)),
        dtypes("R2", "idx_dst", ("uint32",)),
        Rule("R3", "partitions and results", _snakes),
        Rule("R4", "n", _length),
        Rule("R5", "how many are wanted", _wanted),
        Rule("R6", "src holds n elements", _enough),
    ),
)
def topk(val_dst: Tile, idx_dst: Tile, src: Tile, n: int, sorted: bool = False, name: str | None = None) -> None:
    """The K largest of n values, for each group of 16 partitions; element e lies at partition e % 16, column e // 16.

    src (P, F) bfloat16, P a multiple of 16; K = elements per partition of val_dst (bfloat16) and idx_dst (uint32).
    Result j goes to partition j % 16, column j // 16 of the group: the value and its e. sorted: descending; otherwise
    ascending. Of equal values the lower e counts as larger; NaN is largest. Columns from ceil(K / 16) on keep their
    content; the slots behind K in the last written column get NaN and all ones. SBUF. Engine: gpsimd. Source: isa.md
    14.5, nki-0.7.md 2.6.
    """
    k = val_dst.F
    columns = ceil(k / _CORE)
    values, indices, bits = val_dst.bits(), idx_dst.bits(), src.bits()
    decoded = src.f32()
    for first in range(0, src.P, _CORE):
        snake = _snake(decoded[first : first + _CORE], n)
        nan = np.isnan(snake)
        # Ascending by value; of equal ones the higher index comes first, so that the lower one ranks as larger.
        order = np.lexsort((-np.arange(n), np.where(nan, 0, snake), nan))[-k:]
        if sorted:
            order = order[::-1]
        found = np.full((2, columns * _CORE), 0xFFFFFFFF, np.uint32)
        found[0] = _QUIET_NAN
        found[0, :k] = _snake(bits[first : first + _CORE], n)[order]
        found[1, :k] = order
        values[first : first + _CORE, :columns] = found[0].reshape(columns, _CORE).T
        indices[first : first + _CORE, :columns] = found[1].reshape(columns, _CORE).T
    val_dst.store_bits(values)
    idx_dst.store_bits(indices)


_QUIET_NAN = 0x7FC0  # of bfloat16


def _snake(rows: NDArray[Any], n: int) -> NDArray[Any]:
    """The first n elements of 16 partitions, down the columns."""
    return rows.T.reshape(-1)[:n]
