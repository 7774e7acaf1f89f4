"""Index patterns of the gpsimd engine (isa.md 14, 14.1, 14.2)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.isa.accumulators import one_of
from tilelang.isa.cost import gpsimd_cycles
from tilelang.isa.params import INT, INT_OR_REGISTER, NUMBER, OPERATOR, PATTERN
from tilelang.isa.rules import alias, same_extent
from tilelang.isa.slots import COMPARISONS
from tilelang.isa.spec import Call, Finding, In, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import alu, casts

__all__ = ["affine", "affine_select", "iota"]

_COUNT_LIMIT = 65535  # AP.R6: counts are encoded in 16 bits, steps in 16 bits signed
_STEPS = (-32768, 32767)
_INT32 = (-(2**31), 2**31 - 1)

Pattern = tuple[tuple[int, int], ...]


def affine(pattern: Pattern, offset: int, channel_multiplier: int, partitions: int) -> NDArray[np.int32]:
    """The int32 values `offset + p * channel_multiplier + sum(step_k * i_k)`, wrapping; shape (partitions, elements).

    `pattern` is [step, count], outermost first; p counts from the first partition of the tile (isa.md 14).
    """
    values = np.array([offset], np.int64) + np.arange(partitions)[:, None] * channel_multiplier
    for step, count in pattern:
        values = (values[:, :, None] + np.arange(count) * step).reshape(partitions, -1)
    return values.astype(np.int32)


def _pattern_shape(call: Call) -> Finding | None:
    pattern: Pattern = call.pattern
    if not 1 <= len(pattern) <= 4:
        return Finding(f"pattern has {len(pattern)} entries; it must have 1 to 4 [step, count] pairs", "pattern")
    for step, count in pattern:
        if count < 1:
            return Finding(f"pattern entry [{step}, {count}]: the count must be at least 1", "pattern")
    return None


def _pattern_size(call: Call) -> Finding | None:
    size = prod(count for _, count in call.pattern)
    if size == call.F("dst"):
        return None
    return Finding(f"pattern makes {size} elements per partition, dst has {call.F('dst')}", "pattern")


def _pattern_range(call: Call) -> Finding | None:
    low, high = _STEPS
    for step, count in call.pattern:
        if count > _COUNT_LIMIT:
            return Finding(
                f"pattern entry [{step}, {count}]: the count exceeds {_COUNT_LIMIT}",
                "pattern",
                "split it into two entries",
            )
        if not low <= step <= high:
            hint = "make the range with a smaller step and multiply it with nisa.tensor_scalar"
            return Finding(f"pattern entry [{step}, {count}]: the step leaves {low} to {high}", "pattern", hint)
    return None


def _pattern_rules(shape: str, size: str, encoding: str) -> tuple[Rule, ...]:
    return (
        Rule(shape, "pattern: 1 to 4 [step, count] pairs, counts at least 1", _pattern_shape),
        Rule(size, "the counts of the pattern multiply to the elements per partition of dst", _pattern_size),
        Rule(encoding, "counts fit 16 bits, steps 16 bits signed (AP.R6)", _pattern_range),
    )


def _int32(rule: str) -> Rule:
    def test(call: Call) -> list[Finding]:
        low, high = _INT32
        return [
            Finding(f"{name}={value} does not fit int32, {low} to {high}", name)
            for name in ("offset", "channel_multiplier")
            if isinstance(value := call.values[name], int) and not low <= value <= high
        ]

    return Rule(rule, "offset and channel_multiplier fit int32", test)


@instruction(
    operands=dict(dst=Out()),
    params=dict(pattern=PATTERN, offset=INT_OR_REGISTER, channel_multiplier=INT),
    engines=("gpsimd",),
    cost=lambda call: gpsimd_cycles(call.F("dst")),
    accuracy="exact; float dtypes to nearest even",
    rules=(
        alias("R1", "dst in SBUF, at most 128 partitions (GEN.R3, GEN.R4, GEN.R5)"),
        *_pattern_rules("R2", "R3", "R5"),
        _int32("R4"),
    ),
)
def iota(dst: Tile, pattern: Pattern, offset: Any = 0, channel_multiplier: int = 0, name: str | None = None) -> None:
    """Indices: `dst[p, f] = offset + p * channel_multiplier + sum(step_k * i_k)`, f = (i_0, i_1, …) in row-major order.

    dst: a tile (P, …) in SBUF. pattern: 1 to 4 [step, count] pairs, outermost first, whose counts multiply to the
    elements per partition. offset: an int or a register. p counts from the first partition of dst. 32-bit integers
    that wrap; int32 and uint32 take the bits, float dtypes the value through float32, narrower integers saturate.
    Engine: gpsimd. Source: isa.md 14.1.
    """
    values = affine(pattern, offset, channel_multiplier, dst.P)
    if dst.fmt.name in ("int32", "uint32"):
        dst.store_bits(values.view(dst.fmt.carrier))
    else:
        dst.store(values.astype(np.float32))


@instruction(
    operands=dict(dst=Out(), on_true_tile=In()),
    params=dict(pattern=PATTERN, channel_multiplier=INT, on_false_value=NUMBER, cmp_op=OPERATOR, offset=INT),
    engines=("gpsimd",),
    cost=lambda call: gpsimd_cycles(call.F("dst")),
    accuracy="exact",
    rules=(
        same_extent("R1", "dst", "on_true_tile"),
        *_pattern_rules("R2", "R2", "R2"),
        _int32("R3"),
        alias("R4", "on_false_value is a number: its parameter kind takes no tile"),
        one_of("R5", "cmp_op", *COMPARISONS),
    ),
)
def affine_select(
    dst: Tile,
    pattern: Pattern,
    channel_multiplier: int,
    on_true_tile: Tile,
    on_false_value: float,
    cmp_op: Any = np.equal,
    offset: int = 0,
    name: str | None = None,
) -> None:
    """`on_true_tile` where `cmp_op(offset + p * channel_multiplier + sum(step_k * i_k), 0)`, else `on_false_value`.

    dst, on_true_tile: tiles in SBUF with equal partition count and elements per partition; equal dtypes copy bits,
    others convert through float32. The index expression is that of `iota`. on_false_value: a number, taken as
    float32. cmp_op: equal, not_equal, less, less_equal, greater or greater_equal. A causal mask: pattern=[[-1, F]],
    channel_multiplier=1, cmp_op=nl.greater_equal keeps f <= p + offset. Engine: gpsimd. Source: isa.md 14.2.
    """
    index = affine(pattern, offset, channel_multiplier, dst.P)
    condition = alu.INTEGER[cmp_op](index, np.zeros_like(index)) != 0
    otherwise = np.full((1, 1), on_false_value, np.float32)
    if dst.dtype == on_true_tile.dtype:
        dst.store_bits(np.where(condition, on_true_tile.bits(), casts.encode(otherwise, dst.fmt.name)))
    else:
        dst.store(np.where(condition, on_true_tile.f32(), otherwise))
