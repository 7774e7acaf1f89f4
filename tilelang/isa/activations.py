"""Activation functions of the scalar engine, and fast exponentials of the vector engine (isa.md 12.10, 13;
nki-0.7.md 2.6).
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.isa.accumulators import REDUCE_CMD, accumulate, one_of, reduce_commands, reduce_result
from tilelang.isa.cost import MIN_II, gpsimd_cycles
from tilelang.isa.enums import engine as Engine
from tilelang.isa.enums import reduce_cmd as Cmd
from tilelang.isa.operators import ACTIVATIONS, OPERATORS
from tilelang.isa.params import BOOL, ENGINE, OPERATOR, OPTIONAL_OPERATOR
from tilelang.isa.rules import (
    alias,
    dtypes,
    free_dims_at_most,
    needs,
    on_chip,
    refused_dtypes,
    row_vector,
    same_extent,
)
from tilelang.isa.spec import Call, Finding, In, Out, Rule, Vec, instruction
from tilelang.isa.tile import Machine, Tile, vector
from tilelang.numerics import alu, functions
from tilelang.numerics.fma import fma

__all__ = ["activate2", "activation", "activation_reduce", "affine_steps", "exponential"]

_REDUCES = (Cmd.reduce, Cmd.reset_reduce)


def affine_steps(bias: Any, scale: Any) -> tuple[bool, bool]:
    """(scales, adds): whether `scale` multiplies and `bias` is added. Numbers 1 and 0 (or None) change nothing."""
    scales = not isinstance(scale, (int, float)) or scale != 1
    adds = bias is not None and (not isinstance(bias, (int, float)) or bias != 0)
    return scales, adds


def _has_bias(call: Call) -> bool:
    return affine_steps(call.bias, call.scale)[1]


def _is_function(call: Call) -> Finding | None:
    if call.op in ACTIVATIONS:
        return None
    hint = None
    if call.op in OPERATORS:
        hint = (
            "operators of two inputs run on nisa.tensor_tensor and nisa.tensor_scalar"
            if OPERATORS[call.op].arity == 2
            else None
        )
    elif call.op in ("cos", "tan"):
        hint = "cos(x) is sin(x + pi/2): pass nl.sin with a bias, after reducing the range to [-pi, pi]"
    return Finding(f"op={call.op} is not an activation function; there are: {', '.join(ACTIVATIONS)}", "op", hint)


def _number_bias(call: Call) -> Finding | None:
    if call.generation >= 3 or call.is_tile("bias") or not _has_bias(call):
        return None
    message = needs(call, f"bias={call.bias!r} is a number, which", 3)
    return Finding(message, "bias", "fill a (P, 1) float32 tile with nisa.memset and pass that")


def _reciprocal_bias(call: Call) -> Finding | None:
    if call.generation >= 3 or call.op != "reciprocal" or not _has_bias(call):
        return None
    message = needs(call, "op=reciprocal with a bias", 3)
    return Finding(message, "bias", "add the bias first, with nisa.tensor_scalar")


def _prelu(call: Call) -> Finding | None:
    if call.op != "prelu":
        return None
    hint = "use nisa.activate2 (generation 4), or relu and tensor_scalar"
    return Finding("op=prelu needs a slope, which this instruction cannot carry", "op", hint)


def _scatter_to_psum(call: Call) -> Finding | None:
    tensor = call.dst
    if (
        tensor.dynamic is None
        or tensor.dynamic.kind != "indirect"
        or call.buffer("dst") != "psum"
        or call.engine != "scalar"
    ):
        return None
    return Finding(
        "dst is an .indirect view in PSUM; the scalar engine scatters into SBUF only",
        "dst",
        "scatter into an SBUF tile",
    )


def _shared_rules(prefix: str) -> tuple[Rule, ...]:
    """Rules of both instructions; `prefix` names the instruction whose numbers they bear."""
    return (
        on_chip(f"{prefix}R1", "dst", "data"),
        same_extent(f"{prefix}R1", "dst", "data"),
        Rule(f"{prefix}R2", "op is an activation function (isa.md 4.2)", _is_function),
        row_vector(f"{prefix}R3", "scale", "data", "float32"),
        row_vector(f"{prefix}R4", "bias", "data"),
        refused_dtypes(f"{prefix}R4", "bias", "tfloat32"),
        Rule(f"{prefix}R5", "a number as bias needs generation 3", _number_bias),
        Rule(f"{prefix}R6", "reciprocal with bias needs generation 3", _reciprocal_bias),
        Rule(f"{prefix}R10", "prelu needs a slope", _prelu),
        Rule(f"{prefix}R11", "indirect: dst and data (TI.R2); dst not in PSUM (TI.R3)", _scatter_to_psum),
        alias(f"{prefix}R12", "operands are on chip (R1, GEN.R4)"),
    )


def _reduce_op(call: Call) -> Finding | None:
    if call.reduce_op in (None, "add"):
        return None
    hint = "use nisa.tensor_reduce on the result (or nisa.activate2 on generation 4)"
    return Finding(f"reduce_op={call.reduce_op}; the accumulators only add: nl.add or None", "reduce_op", hint)


def _reduce_op_open(call: Call) -> Finding | None:
    if call.reduce_op is not None or call.reduce_cmd not in _REDUCES:
        return None
    return Finding(f"reduce_cmd={call.reduce_cmd.name} without reduce_op adds", "reduce_op", "pass reduce_op=nl.add")


def _no_reduction_on_gpsimd(call: Call) -> list[Finding]:
    if call.engine != "gpsimd":
        return []
    given = [n for n in ("reduce_op", "reduce_res") if call.values[n] is not None]
    given += ["reduce_cmd"] if call.reduce_cmd is not Cmd.idle else []
    return [
        Finding(f"{n} is given with engine=gpsimd; only the scalar engine accumulates", n, "leave engine open")
        for n in given
    ]


def _cost(call: Call) -> float:
    n = call.F("data")
    if call.engine == "gpsimd":
        return gpsimd_cycles(n * ceil(call.fmt("data").itemsize / 4))
    return max(MIN_II, n) + (MIN_II if call.reduce_res is not None else 0)


def _apply(op: str, data: Tile, bias: Tile | float | None, scale: Tile | float) -> NDArray[np.float32]:
    x = data.f32()
    scales, adds = affine_steps(bias, scale)
    if scales and adds:
        x = fma(x, vector(scale, data.P), vector(bias, data.P))
    elif scales:
        x = alu.BINARY["multiply"](x, vector(scale, data.P))
    elif adds:
        x = alu.BINARY["add"](x, vector(bias, data.P))
    return functions.ACTIVATIONS[op](x)


@instruction(
    operands=dict(dst=Out(), data=In(), bias=Vec(optional=True), scale=Vec(), reduce_res=Out(optional=True)),
    params=dict(op=OPERATOR, reduce_op=OPTIONAL_OPERATOR, reduce_cmd=REDUCE_CMD, engine=ENGINE),
    engines=("scalar", "gpsimd"),
    engine_since=dict(gpsimd=4),
    cost=_cost,
    accuracy="2 ulp; near a root 2^-24 of the function's local scale",
    indirect=("dst", "data"),
    state=("act",),
    rules=(
        *_shared_rules(""),
        Rule("R7", "reduce_op is nl.add or None", _reduce_op),
        Rule("R7", "reduce and reset_reduce name reduce_op", _reduce_op_open, warn=True),
        reduce_commands("R8", Cmd.idle, Cmd.reset, Cmd.reduce, Cmd.reset_reduce),
        reduce_result("R9", "data"),
        Rule("R13", "reductions on the scalar engine only (nki-0.7.md 2.6)", _no_reduction_on_gpsimd),
    ),
)
def activation(
    dst: Tile,
    op: str,
    data: Tile,
    bias: Tile | float | None = None,
    scale: Tile | float = 1.0,
    reduce_op: str | None = None,
    reduce_res: Tile | None = None,
    reduce_cmd: Cmd = Cmd.idle,
    engine: Engine = Engine.scalar,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """`dst = op(data * scale + bias)`, optionally summed along all free dims.

    dst, data: tiles with equal partition count and equal elements per partition. scale: a number or a float32 tile
    (P, 1). bias: None, a number (generation 3 and newer) or a tile (P, 1) of any dtype but tfloat32. The multiply-add
    is one fused operation in float32; without bias it is the rounded product, with scale=1.0 the rounded sum, and
    without both `data` passes unchanged, -0 included. The float32 results add to the scalar engine's accumulators,
    ascending: reset_reduce from 0, reduce from their content; reset sets them to 0, idle leaves them. reduce_res (P,
    1) receives them, after `dst` is written. Engines: scalar; gpsimd (generation 4, no reduction). Source: isa.md
    13.1, nki-0.7.md 2.6.
    """
    result = _apply(op, data, bias, scale)
    dst.store(result)
    if engine is not Engine.gpsimd:
        _accumulate(dst, result, reduce_cmd, reduce_res, machine)


def _accumulate(
    dst: Tile, result: NDArray[np.float32], command: Cmd, reduce_res: Tile | None, machine: Machine
) -> None:
    registers = machine.act[machine.lanes(dst)]
    accumulate(registers, "add", result, command)
    if reduce_res is not None:
        reduce_res.store(registers[:, None])


@instruction(
    operands=dict(dst=Out(), data=In(), reduce_res=Out(optional=True), bias=Vec(optional=True), scale=Vec()),
    params=dict(op=OPERATOR, reduce_op=OPERATOR),
    engines=("scalar",),
    cost=lambda call: max(MIN_II, call.F("data")) + MIN_II,
    accuracy="2 ulp; near a root 2^-24 of the function's local scale; sums ascending",
    indirect=("dst", "data"),
    state=("act",),
    rules=(
        alias("R1", "activation.R1 to R6 and R10 to R12"),
        *_shared_rules("activation."),
        one_of("R2", "reduce_op", "add", hint="use nisa.tensor_reduce on the result"),
        reduce_result("R3", "data"),
        alias("R4", "indirect operands: dst and data (TI.R2)"),
    ),
)
def activation_reduce(
    dst: Tile,
    op: str,
    data: Tile,
    reduce_op: str,
    reduce_res: Tile | None,
    bias: Tile | float | None = None,
    scale: Tile | float = 1.0,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """`dst = op(data * scale + bias)` and `reduce_res` = the sum of each row, over all free dims.

    As `activation` with reduce_cmd=reset_reduce: the float32 results add to the scalar engine's accumulators,
    ascending from 0; these keep the sum, and `reduce_res` (P, 1), unless None, receives it. reduce_op is nl.add.
    Engine: scalar. Source: isa.md 13.2.
    """
    result = _apply(op, data, bias, scale)
    dst.store(result)
    _accumulate(dst, result, Cmd.reset_reduce, reduce_res, machine)


_EXPONENTIAL_INPUTS = (
    "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32",
    "int8", "int16", "int32", "uint8", "uint16", "uint32",
)  # fmt: skip
_EXPONENTIAL_SUMS = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32")
_EXPONENTIAL_OUTPUTS = (*_EXPONENTIAL_SUMS, "int8", "int16", "int32", "uint8", "uint16")


def _initial_sum(call: Call) -> Finding | None:
    if call.reduce_cmd is Cmd.load_reduce or (not call.is_tile("reduce_init") and call.reduce_init == 0):
        return None
    return Finding(
        f"reduce_init is given with reduce_cmd={call.reduce_cmd.name}; it belongs to load_reduce only", "reduce_init"
    )


@instruction(
    operands=dict(
        dst=Out(),
        src=In(),
        max_value=Vec(),
        reduce_res=Out(optional=True),
        reduce_init=Vec(reads=lambda call: call.reduce_cmd is Cmd.load_reduce),
    ),
    params=dict(reduce_cmd=REDUCE_CMD),
    engines=("vector",),
    since=4,
    cost=lambda call: max(MIN_II, call.F("src") / 4) + (MIN_II if call.reduce_res is not None else 0),
    accuracy="difference rounded, then 2 ulp; sums ascending",
    indirect=("dst", "src"),
    state=("dve",),
    rules=(
        alias("R1", "generation 4 (GEN.R10)"),
        on_chip("R2", "dst", "src"),
        same_extent("R2", "dst", "src"),
        free_dims_at_most("R2", 3, "dst", "src"),
        dtypes("R3", "src", _EXPONENTIAL_INPUTS),
        dtypes("R4", "dst", _EXPONENTIAL_OUTPUTS),
        row_vector("R5", "max_value", "src", "float32"),
        reduce_commands("R6", Cmd.idle, Cmd.reset_reduce, Cmd.reduce, Cmd.load_reduce),
        Rule("R7", "reduce_init is 0 except with load_reduce", _initial_sum),
        row_vector("R7", "reduce_init", "src", "float32"),
        reduce_result("R8", "src"),
        dtypes("R8", "reduce_res", _EXPONENTIAL_SUMS),
        alias("R9", "indirect operands: dst and src (TI.R2)"),
    ),
)
def exponential(
    dst: Tile,
    src: Tile,
    max_value: Tile | float = 0.0,
    reduce_res: Tile | None = None,
    reduce_cmd: Cmd = Cmd.idle,
    reduce_init: Tile | float = 0.0,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """`dst = exp(src - max_value)`, optionally summed along all free dims: a softmax in one pass.

    dst, src: tiles with equal partition count and equal elements per partition, at most 3 free dims. max_value: a
    number or a float32 tile (P, 1). The float32 results add to the vector engine's accumulators, ascending:
    reset_reduce from 0, reduce from their content, load_reduce from `reduce_init` (a number or float32 (P, 1)); after
    idle their content counts as undefined. reduce_res (P, 1), of a floating-point dtype, receives them. Engine: vector,
    generation 4. Source: isa.md 12.10.
    """
    shifted = alu.BINARY["subtract"](src.f32(), vector(max_value, src.P))
    result = functions.ACTIVATIONS["exp"](shifted)
    dst.store(result)
    registers = machine.dve[machine.lanes(dst)]
    start = vector(reduce_init, src.P)[:, 0] if reduce_cmd is Cmd.load_reduce else None
    accumulate(registers, "add", result, reduce_cmd, start)
    if reduce_res is not None:
        reduce_res.store(registers[:, None])


_STEPS = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)
_ABS_REDUCES = ("add", "maximum", "minimum", "abs_max", "abs_min")


def _steps(call: Call) -> Finding | None:
    if (call.op0, call.op1) in _STEPS:
        return None
    allowed = ", ".join(f"({first}, {second})" for first, second in _STEPS)
    return Finding(f"(op0, op1) = ({call.op0}, {call.op1}) does not exist; there are {allowed}", "op0")


def _equal_dtypes(call: Call) -> Finding | None:
    tiles = call.is_tile("imm0") and call.is_tile("imm1")
    if not tiles or call.dtype("imm0") == call.dtype("imm1"):
        return None
    return Finding(f"imm0 is {call.dtype('imm0')}, imm1 {call.dtype('imm1')}; two tiles have one dtype", "imm1")


def _reversed_bypass(call: Call) -> list[Finding]:
    return [
        Finding(f"reverse{n}=True with op{n}=bypass, which has no operands to swap", f"reverse{n}")
        for n in (0, 1)
        if call.values[f"reverse{n}"] and call.values[f"op{n}"] == "bypass"
    ]


def _names_reduction(call: Call) -> Finding | None:
    if call.reduce_op is not None or call.reduce_cmd not in _REDUCES:
        return None
    return Finding(f"reduce_cmd={call.reduce_cmd.name} needs reduce_op", "reduce_op", "pass reduce_op=nl.add")


def _missing_operands(call: Call) -> list[Finding]:
    return [
        Finding(f"imm{n} is missing; op{n}={call.values[f'op{n}']} needs a number or a tile (P, 1)", f"imm{n}")
        for n in (0, 1)
        if call.values[f"imm{n}"] is None and call.values[f"op{n}"] != "bypass"
    ]


@instruction(
    operands=dict(
        dst=Out(),
        data=In(),
        imm0=Vec(optional=True, reads=lambda call: call.op0 != "bypass"),
        imm1=Vec(optional=True, reads=lambda call: call.op1 != "bypass"),
        relu_param=Vec(reads=lambda call: call.op == "prelu"),
        reduce_res=Out(optional=True),
    ),
    params=dict(
        op=OPERATOR,
        op0=OPERATOR,
        op1=OPERATOR,
        reverse0=BOOL,
        reverse1=BOOL,
        reduce_op=OPTIONAL_OPERATOR,
        reduce_cmd=REDUCE_CMD,
        engine=ENGINE,
    ),
    engines=("scalar", "gpsimd"),
    since=4,
    cost=_cost,
    accuracy="2 ulp; near a root 2^-24 of the function's local scale; sums ascending",
    indirect=("dst", "data"),
    state=("act",),
    rules=(
        alias("R1", "generation 4 (GEN.R10)"),
        on_chip("R2", "dst", "data"),
        same_extent("R2", "dst", "data"),
        Rule("R2", "op is an activation function (isa.md 4.2)", _is_function),
        Rule("R3", "the pairs (op0, op1) that exist", _steps),
        *(row_vector("R4", operand, "data") for operand in ("imm0", "imm1", "relu_param")),
        *(refused_dtypes("R4", operand, "tfloat32") for operand in ("imm0", "imm1", "relu_param")),
        Rule("R4", "imm0 and imm1, both tiles, have one dtype", _equal_dtypes),
        alias("R5", "op1 without op0 (R3)"),
        Rule("R6", "reverse0, reverse1: not with bypass", _reversed_bypass),
        one_of("R7", "reduce_op", None, *_ABS_REDUCES),
        Rule("R7", "reduce and reset_reduce name reduce_op", _names_reduction),
        reduce_commands("R8", Cmd.idle, Cmd.reset, Cmd.reduce, Cmd.reset_reduce),
        reduce_result("R9", "data"),
        Rule("R10", "imm0, imm1: given unless bypassed", _missing_operands),
        Rule("R11", "indirect: dst and data (TI.R2); dst not in PSUM (TI.R3)", _scatter_to_psum),
        Rule("R12", "reductions on the scalar engine only (nki-0.7.md 2.6)", _no_reduction_on_gpsimd),
    ),
)
def activate2(
    dst: Tile,
    op: str,
    data: Tile,
    imm0: Tile | float | None,
    imm1: Tile | float | None,
    op0: str,
    op1: str,
    relu_param: Tile | float = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: str | None = None,
    reduce_res: Tile | None = None,
    reduce_cmd: Cmd = Cmd.idle,
    engine: Engine = Engine.scalar,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """`dst = op(op1(op0(data, imm0), imm1))`, optionally reduced along all free dims.

    dst, data: tiles with equal partition count and equal elements per partition. (op0, op1): multiply with add,
    subtract or bypass; add, subtract or bypass with bypass. imm0, imm1: numbers or tiles (P, 1) of any dtype but
    tfloat32, of one dtype when both are tiles; ignored (also None) for bypass. reverse0, reverse1 swap the operands of
    op0, op1. Multiply with add or subtract is one fused operation in float32. relu_param: the slope of op=prelu, a
    number or a tile (P, 1). reduce_op: add, maximum, minimum, abs_max or abs_min on the scalar engine's accumulators,
    ascending, on the float32 results: reset_reduce from the identity (0 without reduce_op, as reset), reduce from their
    content. reduce_res (P, 1) receives them, after `dst` is written. Engines: scalar; gpsimd (no reduction).
    Generation 4. Source: isa.md 13.3, nki-0.7.md 2.6.
    """
    x = data.f32()
    first, second = (None if op_ == "bypass" else vector(imm, data.P) for op_, imm in ((op0, imm0), (op1, imm1)))
    if first is not None and second is not None:
        if op1 == "subtract" and reverse1:
            first = -first
        elif op1 == "subtract":
            second = -second
        x = fma(x, first, second)
    elif first is not None:
        x = alu.BINARY[op0](first, x) if reverse0 else alu.BINARY[op0](x, first)
    slope = (vector(relu_param, data.P),) if op == "prelu" else ()
    result = functions.ACTIVATIONS[op](x, *slope)
    dst.store(result)
    if engine is not Engine.gpsimd:
        registers = machine.act[machine.lanes(dst)]
        accumulate(registers, reduce_op or "add", result, reduce_cmd)
        if reduce_res is not None:
            reduce_res.store(registers[:, None])
