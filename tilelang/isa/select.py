"""Selection by predicate or index range on the vector engine (isa.md 10.6, 12.11, 12.12)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.isa.accumulators import REDUCE_CMD, accumulate, one_of, reduce_commands, reduce_result
from tilelang.isa.cost import MIN_II
from tilelang.isa.enums import reduce_cmd as Cmd
from tilelang.isa.params import BOOL, INT, NUMBER, OPERATOR
from tilelang.isa.rules import alias, dtypes, not_both_psum, on_chip, refused_dtypes, row_vector, same_extent
from tilelang.isa.spec import Call, Finding, In, InOut, Out, Rule, Vec, instruction
from tilelang.isa.tile import Machine, Tile, number_bits, vector
from tilelang.numerics import alu

__all__ = ["FP32_MIN", "range_select", "select_reduce", "tensor_copy_predicated"]

FP32_MIN = -3.4028234663852886e38
_RANGE_END = 2**24  # indices are compared as float32, which is exact up to here
_RANGE_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")


def _two_input_cost(call: Call, source: str) -> float:
    n = call.F("dst")
    one_port = not call.is_tile(source) or call.buffer(source) != call.buffer("predicate")
    return max(MIN_II, n if one_port else 2 * n)


def _same_dtype(call: Call) -> Finding | None:
    if not call.is_tile("src") or call.dtype("src") == call.dtype("dst"):
        return None
    hint = "convert src with nisa.tensor_copy into a tile of dst's dtype first"
    return Finding(
        f"src is {call.dtype('src')}, dst is {call.dtype('dst')}; bits are copied, so they must be equal", "src", hint
    )


@instruction(
    operands=dict(dst=InOut(), src=Vec(), predicate=In()),
    params=dict(reverse_pred=BOOL),
    engines=("vector",),
    cost=lambda call: _two_input_cost(call, "src"),
    accuracy="exact",
    indirect=("dst", "predicate"),
    rules=(
        on_chip("R1", "dst", "src", "predicate"),
        not_both_psum("R1", "src", "predicate"),
        same_extent("R2", "dst", "predicate", "src"),
        dtypes("R3", "predicate", ("uint8", "uint16", "uint32"), hint="re-view or convert the predicate"),
        Rule("R4", "a src tile has the dtype of dst", _same_dtype),
        alias("R5", "indirect operands: dst and predicate (TI.R2)"),
    ),
)
def tensor_copy_predicated(
    dst: Tile, src: Tile | float, predicate: Tile, reverse_pred: bool = False, name: str | None = None
) -> None:
    """`dst = src` where `predicate != 0` (with reverse_pred: where it is 0); elsewhere `dst` stays as it is.

    dst, predicate: tiles with equal partition count and equal elements per partition; predicate uint8, uint16 or
    uint32. src: such a tile of dst's dtype, copied bit by bit, or a number, which is converted to dst's dtype.
    Engine: vector. Source: isa.md 10.6.
    """
    condition = (predicate.bits() != 0) ^ reverse_pred
    source = src.bits() if isinstance(src, Tile) else number_bits(src, dst.fmt)
    dst.store_where(condition, source)


def _bounds_are_tiles(call: Call) -> list[Finding]:
    return [
        Finding(
            f"{name} is the number {call.values[name]!r}; it must be a float32 tile ({call.P('on_true_tile')}, 1)",
            name,
            "fill a (P, 1) float32 tile with nisa.memset",
        )
        for name in ("bound0", "bound1")
        if not call.is_tile(name)
    ]


def _false_value(call: Call) -> Finding | None:
    if np.float32(call.on_false_value) == np.float32(FP32_MIN):
        return None
    message = f"on_false_value={call.on_false_value!r}; it must be the lowest float32, {FP32_MIN}"
    return Finding(
        message, "on_false_value", "leave it open, and replace the value afterwards with tensor_copy_predicated"
    )


def _range_end(call: Call) -> Finding | None:
    end = call.range_start + call.F("on_true_tile")
    if end <= _RANGE_END:
        return None
    message = f"range_start + elements = {end}; indices are float32, so at most 2^24 = {_RANGE_END}"
    return Finding(message, "range_start", "subtract a common offset from range_start and both bounds")


def _floating(rule: str, name: str) -> Rule:
    def test(call: Call) -> Finding | None:
        return (
            None
            if call.fmt(name).is_float
            else Finding(f"{name} is {call.dtype(name)}; it must be floating-point", name)
        )

    return Rule(rule, f"{name} has a floating-point dtype", test)


@instruction(
    operands=dict(dst=Out(), on_true_tile=In(), bound0=Vec(), bound1=Vec(), reduce_res=Out(optional=True)),
    params=dict(
        comp_op0=OPERATOR,
        comp_op1=OPERATOR,
        reduce_cmd=REDUCE_CMD,
        reduce_op=OPERATOR,
        range_start=INT,
        on_false_value=NUMBER,
    ),
    since=3,
    engines=("vector",),
    cost=lambda call: max(MIN_II, call.F("on_true_tile")),
    accuracy="exact",
    state=("dve",),
    rules=(
        alias("R1", "generation 3 or newer (GEN.R10)"),
        on_chip("R2", "dst", "on_true_tile"),
        same_extent("R2", "dst", "on_true_tile"),
        _floating("R2", "on_true_tile"),
        Rule("R3", "bounds are tiles, not numbers", _bounds_are_tiles),
        row_vector("R3", "bound0", "on_true_tile", "float32"),
        row_vector("R3", "bound1", "on_true_tile", "float32"),
        one_of("R4", "comp_op0", *_RANGE_COMPARISONS),
        one_of("R4", "comp_op1", *_RANGE_COMPARISONS),
        Rule("R5", "on_false_value is the lowest float32", _false_value),
        one_of("R6", "reduce_op", "maximum"),
        Rule("R7", "range_start + elements per partition is at most 2^24", _range_end),
        reduce_commands("R8", Cmd.reset_reduce, Cmd.reduce, Cmd.idle),
        reduce_result("ACC.R5", "on_true_tile"),
        alias("R9", "no indirect operands (TI.R2)"),
    ),
)
def range_select(
    dst: Tile,
    on_true_tile: Tile,
    comp_op0: str,
    comp_op1: str,
    bound0: Tile,
    bound1: Tile,
    reduce_cmd: Cmd = Cmd.reset_reduce,
    reduce_res: Tile | None = None,
    reduce_op: Any = np.maximum,
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """Keep the elements whose index lies between two bounds of their row; the others become the lowest float32.

    Element f of the flattened free index is kept when `comp_op0(range_start + f, bound0)` and `comp_op1(range_start +
    f, bound1)`, in float32. dst, on_true_tile (floating-point): tiles with equal partition count and elements per
    partition; bounds: float32 tiles (P, 1). The maximum of the float32 results goes to the vector engine's
    accumulators (reset to -inf, or continued with reduce_cmd=reduce) and to `reduce_res` (P, 1). Generation 3 and
    newer. Engine: vector. Source: isa.md 12.11.
    """
    index = (range_start + np.arange(on_true_tile.F)).astype(np.float32)[None, :]
    inside0 = alu.BINARY[comp_op0](index, bound0.f32())
    inside1 = alu.BINARY[comp_op1](index, bound1.f32())
    result = np.where((inside0 != 0) & (inside1 != 0), on_true_tile.f32(), np.float32(FP32_MIN))
    _store_with_maximum(dst, result, reduce_cmd, reduce_res, machine)


@instruction(
    operands=dict(dst=Out(), predicate=In(), on_true=In(), on_false=Vec(), reduce_res=Out(optional=True)),
    params=dict(reduce_cmd=REDUCE_CMD, reduce_op=OPERATOR, reverse_pred=BOOL),
    engines=("vector",),
    cost=lambda call: _two_input_cost(call, "on_true"),
    accuracy="exact",
    state=("dve",),
    rules=(
        on_chip("R1", "dst", "predicate", "on_true"),
        not_both_psum("R1", "on_true", "predicate"),
        same_extent("R2", "dst", "predicate", "on_true"),
        refused_dtypes("R3", "on_true", "tfloat32", "int32", "uint32"),
        row_vector("R4", "on_false", "on_true"),
        refused_dtypes("R4", "on_false", "tfloat32", "int32", "uint32"),
        dtypes("R5", "predicate", ("int8", "uint8", "int16", "uint16")),
        one_of("R6", "reduce_op", "maximum"),
        reduce_commands("R6", Cmd.idle, Cmd.reset_reduce, Cmd.reduce),
        reduce_result("R7", "on_true", floating=True),
    ),
)
def select_reduce(
    dst: Tile,
    predicate: Tile,
    on_true: Tile,
    on_false: Tile | float,
    reduce_res: Tile | None = None,
    reduce_cmd: Cmd = Cmd.idle,
    reduce_op: Any = np.maximum,
    reverse_pred: bool = False,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """`dst = on_true` where `predicate != 0` (reverse_pred: is 0), else `on_false`; optionally each row's maximum.

    dst, predicate (8- or 16-bit integers), on_true (not tfloat32 or 32-bit integers): tiles with equal partition
    count and elements per partition. on_false: a number or a tile (P, 1). Values pass through float32, exactly. The
    maximum goes to the vector engine's accumulators (reset_reduce: from -inf, reduce: continued, idle: not computed)
    and they to `reduce_res` (P, 1), floating-point. Engine: vector. Source: isa.md 12.12.
    """
    condition = (predicate.bits() != 0) ^ reverse_pred
    result = np.where(condition, on_true.f32(), vector(on_false, on_true.P))
    _store_with_maximum(dst, result, reduce_cmd, reduce_res, machine)


def _store_with_maximum(
    dst: Tile, result: NDArray[np.float32], command: Cmd, reduce_res: Tile | None, machine: Machine
) -> None:
    dst.store(result)
    registers = machine.dve[machine.lanes(dst)]
    accumulate(registers, "maximum", result, command)
    if reduce_res is not None:
        reduce_res.store(registers[:, None])
