"""Reductions and scans of the vector engine along the free dimensions (isa.md 12.4, 12.6 to 12.8)."""

from __future__ import annotations

from math import prod

import numpy as np

from tilelang.isa.accumulators import REDUCE_CMD, accumulate, fold, one_of, reduce_commands, reduce_result
from tilelang.isa.cost import MIN_II
from tilelang.isa.enums import reduce_cmd as Cmd
from tilelang.isa.operators import OPERATORS
from tilelang.isa.params import AXES, BOOL, OPERATOR
from tilelang.isa.rules import (
    alias,
    dtypes,
    free_dims_at_most,
    not_both_psum,
    on_chip,
    row_vector,
    same_extent,
    same_partitions,
)
from tilelang.isa.slots import (
    apply,
    arithmetic_operators,
    is_bitvec,
    not_an_operator,
    operators_available,
    slot_operand,
)
from tilelang.isa.spec import Call, Finding, In, Out, Rule, Vec, instruction
from tilelang.isa.tile import Machine, Tile, vector
from tilelang.numerics import alu

__all__ = [
    "CUMULATIVE_DTYPES",
    "reduced_dims",
    "tensor_reduce",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor_scan",
]

CUMULATIVE_DTYPES = (
    "bfloat16", "float16", "float32", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "uint8", "uint16", "int8", "int16",
)  # fmt: skip

_MINUS_ONE = np.float32(-1)


def reduced_dims(axis: tuple[int, ...], rank: int) -> int | None:
    """How many trailing dims `axis` names, or None when it is not exactly the last dims without the partition dim."""
    dims = {a + rank if a < 0 else a for a in axis}
    count = len(dims)
    return count if 0 < count < rank and dims == set(range(rank - count, rank)) else None


def _axis(call: Call) -> Finding | None:
    shape = tuple(call.data.shape)
    rank = len(shape)
    if reduced_dims(call.axis, rank) is not None:
        return None
    dims = sorted({a + rank if a < 0 else a for a in call.axis})
    message = f"axis={_text(call.axis)} of data {shape}: the reduced dims must be the last ones, without dim 0"
    allowed = " or ".join(_text(tuple(range(start, rank))) for start in range(rank - 1, 0, -1))
    hint = f"allowed here: {allowed}"
    if 0 in dims:
        hint += "; dim 0 is the partition dim: multiply by a column of ones with nisa.nc_matmul"
    elif dims and all(0 < d < rank for d in dims):
        order = (*(d for d in range(rank) if d not in dims), *dims)
        hint += f"; or put the reduced dims last with a view: data.permute({order})"
    return Finding(message, "axis", hint)


def _text(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else str(axes)


def _reduces(call: Call) -> Finding | None:
    unknown = not_an_operator(call.op, "op")
    if unknown is not None or OPERATORS[call.op].reduces:
        return unknown
    allowed = ", ".join(name for name, row in OPERATORS.items() if row.reduces)
    return Finding(f"op={call.op} is not a reduction; allowed: {allowed}", "op")


def _bitvec(call: Call) -> list[Finding]:
    if not is_bitvec(call.op):
        return []
    found = []
    for name in ("dst", "data"):
        if not call.fmt(name).is_integer:
            message = f"{call.op} needs integer tiles; {name} is {call.dtype(name)}"
            found.append(Finding(message, name, f"re-view its bits: {name}.view(nl.uint{8 * call.fmt(name).itemsize})"))
    if call.fmt("dst").itemsize != call.fmt("data").itemsize:
        found.append(
            Finding(f"{call.op} needs equal item sizes; dst is {call.dtype('dst')}, data {call.dtype('data')}", "dst")
        )
    if call.negate:
        found.append(Finding(f"{call.op} works on raw bits; negate must be False", "negate"))
    return found


def _result_size(call: Call) -> Finding | None:
    shape = tuple(call.data.shape)
    count = reduced_dims(call.axis, len(shape))
    if count is None:
        return None
    expected = prod(shape[1 : len(shape) - count])
    if call.F("dst") == expected:
        return None
    return Finding(
        f"dst {tuple(call.dst.shape)} has {call.F('dst')} elements per partition; "
        f"data {shape} reduced over axis {_text(call.axis)} leaves {expected}",
        "dst",
        f"allocate dst as {(shape[0], *(shape[1 : len(shape) - count] or (1,)))}",
    )


def _cost_reduce(call: Call) -> float:
    n = call.F("data")
    fast = call.op in ("add", "maximum") and call.dtype("data") == call.dtype("dst") == "bfloat16"
    return max(MIN_II, n / 2 if fast else n)


@instruction(
    operands=dict(dst=Out(), data=In()),
    params=dict(op=OPERATOR, axis=AXES, negate=BOOL, keepdims=BOOL),
    engines=("vector",),
    cost=_cost_reduce,
    accuracy="exact rounding of each step, in ascending order",
    indirect=("dst", "data"),
    rules=(
        on_chip("R1", "dst", "data"),
        same_partitions("R1", "dst", "data"),
        Rule("R2", "axis: the last dims of data, never dim 0", _axis),
        Rule("R3", "op is a reduction operator", _reduces),
        Rule("R4", "bitvec reductions: integers of one size, no negate", _bitvec),
        Rule("R5", "elements per partition of dst: the product of the dims that stay", _result_size),
        alias("R6", "indirect operands: dst and data (TI.R2)"),
    ),
)
def tensor_reduce(
    dst: Tile,
    op: str,
    data: Tile,
    axis: tuple[int, ...],
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> None:
    """Reduce `data` (P, …) with `op` over the dims `axis`, which are its last ones, into `dst` (P, dims that stay).

    The reduction runs over the reduced dims row-major, in ascending order, in float32 from the identity of `op`
    (subtract: from the first element; bitvec: on raw bits). negate: the result times -1. keepdims only affects the
    shape expected of `dst`, of which the element count is checked. One rounding into `dst.dtype`. Engine: vector.
    Source: isa.md 12.4.
    """
    rank = len(data.shape)
    kept = data.shape[1 : rank - len({a % rank for a in axis})]
    groups = (data.P, prod(kept), -1)
    if is_bitvec(op):
        bits = data.bits().reshape(groups)
        total = bits[..., 0]
        for f in range(1, bits.shape[-1]):
            total = alu.INTEGER[op](total, bits[..., f])
        dst.store_bits(total.view(dst.fmt.carrier))
        return
    values = data.f32().reshape(groups)
    if op == "subtract":
        result = fold(op, values[..., 0], values[..., 1:])
    else:
        result = fold(op, np.full(values.shape[:2], alu.identity(op), np.float32), values)
    dst.store(alu.BINARY["multiply"](result, _MINUS_ONE) if negate else result)


def _initial(call: Call) -> Finding | None:
    given = call.reduce_init is not None
    if given == (call.reduce_cmd is Cmd.load_reduce):
        return None
    state = "is given" if given else "is missing"
    return Finding(
        f"reduce_init {state} with reduce_cmd={call.reduce_cmd.name}; it belongs to load_reduce only", "reduce_init"
    )


@instruction(
    operands=dict(
        dst=Out(), data=In(), operand0=Vec(optional=True), reduce_res=Out(optional=True), reduce_init=Vec(optional=True)
    ),
    params=dict(op0=OPERATOR, reduce_op=OPERATOR, reverse0=BOOL, reduce_cmd=REDUCE_CMD, reduce_res_negate=BOOL),
    engines=("vector",),
    cost=lambda call: max(MIN_II, call.F("data")) + MIN_II,
    accuracy="exact rounding of each operator and step, in ascending order; power 2 ulp",
    indirect=("dst", "data"),
    state=("dve",),
    rules=(
        on_chip("R1", "dst", "data"),
        same_extent("R1", "dst", "data"),
        free_dims_at_most("R1", 3, "dst", "data"),
        arithmetic_operators("R2", "op0"),
        row_vector("R2", "operand0", "data", "float32"),
        slot_operand("R2", "op0", "operand0"),
        operators_available("R2", "op0"),
        Rule(
            "R3",
            "reverse0 is not supported",
            lambda c: (
                Finding("reverse0=True is not supported", "reverse0", "swap the inputs in a tensor_scalar before")
                if c.reverse0
                else None
            ),
        ),
        one_of("R4", "reduce_op", "add", "multiply", "maximum", "minimum"),
        reduce_commands("R5", Cmd.reset_reduce, Cmd.reduce, Cmd.load_reduce),
        Rule("R6", "reduce_init is given exactly with load_reduce", _initial),
        row_vector("R6", "reduce_init", "data", "float32"),
        reduce_result("R7", "data"),
        alias("R8", "indirect operands: dst and data (TI.R2)"),
    ),
)
def tensor_scalar_reduce(
    dst: Tile,
    data: Tile,
    op0: str,
    operand0: Tile | float | None,
    reduce_op: str,
    reduce_res: Tile | None = None,
    reverse0: bool = False,
    reduce_cmd: Cmd = Cmd.reset_reduce,
    reduce_init: Tile | float | None = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """`dst = op0(data, operand0)`, reduced at the same time over all free dims into the vector engine's accumulators.

    dst, data: tiles with equal partition count and elements per partition, at most 3 free dims. operand0: a number or
    a float32 tile (P, 1). reduce_op: add, multiply, maximum or minimum, ascending, on the float32 values before the
    cast to `dst`. reduce_cmd: reset_reduce starts from the identity, reduce from the registers, load_reduce from
    `reduce_init` (number or float32 (P, 1)). reduce_res (P, 1) receives the registers, times -1 with
    `reduce_res_negate`; the registers keep their sign. Engine: vector. Source: isa.md 12.6, nki-0.7.md 2.6.
    """
    result = apply(op0, data.f32(), vector(operand0, data.P), reverse0)
    initial = None if reduce_init is None else vector(reduce_init, data.P)[:, 0]
    dst.store(result)
    registers = machine.dve[machine.lanes(dst)]
    accumulate(registers, reduce_op, result, reduce_cmd, initial)
    if reduce_res is not None:
        read = registers[:, None]
        reduce_res.store(alu.BINARY["multiply"](read, _MINUS_ONE) if reduce_res_negate else read)


def _start(call: Call) -> Finding | None:
    if call.reduce_cmd is not Cmd.load_reduce or call.imm1 is not None:
        return None
    return Finding("imm1 is missing with reduce_cmd=load_reduce, which starts from it", "imm1")


def _start_unused(call: Call) -> Finding | None:
    if call.reduce_cmd is Cmd.load_reduce or call.imm1 is None:
        return None
    return Finding(f"imm1 has no effect with reduce_cmd={call.reduce_cmd.name}", "imm1", "pass load_reduce or drop it")


@instruction(
    operands=dict(
        dst=Out(),
        src=In(),
        imm0=Vec(optional=True),
        imm1=Vec(optional=True, reads=lambda call: call.reduce_cmd is Cmd.load_reduce),
    ),
    params=dict(op0=OPERATOR, op1=OPERATOR, reduce_cmd=REDUCE_CMD),
    engines=("vector",),
    cost=lambda call: max(MIN_II, call.F("src")),
    accuracy="exact rounding of each operator and step, in ascending order; power 2 ulp",
    indirect=("dst", "src"),
    state=("dve",),
    rules=(
        on_chip("R1", "dst", "src"),
        same_extent("R1", "dst", "src"),
        dtypes("R2", ("dst", "src"), CUMULATIVE_DTYPES),
        arithmetic_operators("R3", "op0"),
        slot_operand("R3", "op0", "imm0"),
        operators_available("R3", "op0"),
        one_of("R3", "op1", "add", "subtract", "multiply", "maximum", "minimum"),
        row_vector("R4", "imm0", "src", "float32"),
        row_vector("R4", "imm1", "src", "float32"),
        reduce_commands("R5", Cmd.reset_reduce, Cmd.reduce, Cmd.load_reduce),
        Rule("R5", "load_reduce starts from imm1", _start),
        Rule("R5", "imm1 belongs to load_reduce", _start_unused, warn=True),
        alias("R6", "indirect operands: dst and src (TI.R2)"),
    ),
)
def tensor_scalar_cumulative(
    dst: Tile,
    src: Tile,
    op0: str,
    op1: str,
    imm0: Tile | float | None,
    imm1: Tile | float | None = None,
    reduce_cmd: Cmd = Cmd.reset_reduce,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """Running reduction along the flattened free index: `r = op1(op0(src[f], imm0), r)`, `dst[f] = r`.

    dst, src: tiles with equal partition count and equal elements per partition, 8- and 16-bit dtypes and float32.
    imm0: a number or a float32 tile (P, 1). op1: add, subtract, multiply, maximum or minimum; the new element is its
    left operand, so that subtract alternates. `r` is the vector engine's accumulator: reset_reduce starts from the
    identity of op1 (0 for subtract), reduce from its content, load_reduce from `imm1` (a number or float32 (P, 1));
    it keeps the last `r`. float32, one rounding per operator, cast into `dst.dtype`. Engine: vector. Source: isa.md
    12.7.
    """
    values = apply(op0, src.f32(), vector(imm0, src.P))
    registers = machine.dve[machine.lanes(dst)]
    if reduce_cmd is Cmd.load_reduce:
        registers[:] = vector(imm1, src.P)[:, 0]
    elif reduce_cmd is Cmd.reset_reduce:
        registers[:] = alu.identity(op1)
    result = np.empty_like(values)
    for f in range(src.F):
        registers[:] = alu.BINARY[op1](values[:, f], registers)
        result[:, f] = registers
    dst.store(result)


@instruction(
    operands=dict(dst=Out(), data0=In(), data1=In(), initial=Vec()),
    params=dict(op0=OPERATOR, op1=OPERATOR, reverse0=BOOL, reverse1=BOOL),
    engines=("vector",),
    cost=lambda call: max(MIN_II, 2 * call.F("data0")),
    accuracy="exact rounding of each operator; power 2 ulp",
    rules=(
        on_chip("R1", "dst", "data0", "data1"),
        not_both_psum("R1", "data0", "data1"),
        same_extent("R2", "dst", "data0", "data1"),
        row_vector("R3", "initial", "data0"),
        arithmetic_operators("R4", "op0", "op1", two_inputs=True),
        operators_available("GEN.R10", "op0", "op1"),
    ),
)
def tensor_tensor_scan(
    dst: Tile,
    data0: Tile,
    data1: Tile,
    initial: Tile | float,
    op0: str,
    op1: str,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> None:
    """Scan along the flattened free index: `s = op1(op0(data0[f], s), data1[f])`, `dst[f] = s`, from `s = initial`.

    dst, data0, data1: tiles with equal partition count and equal elements per partition. initial: a number or a tile
    (P, 1) of any dtype. reverse0: `op0(s, data0[f])`; reverse1: `op1(data1[f], …)`. The state is float32, one
    rounding per operator; it is rounded into `dst.dtype` only for `dst`. Engine: vector. Source: isa.md 12.8.
    """
    first, second = data0.f32(), data1.f32()
    state = vector(initial, data0.P)[:, 0]
    result = np.empty_like(first)
    for f in range(data0.F):
        step = apply(op0, first[:, f], state, reverse0)
        state = apply(op1, step, second[:, f], reverse1)
        result[:, f] = state
    dst.store(result)
