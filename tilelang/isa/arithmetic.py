"""Arithmetic of the vector engine on a tile and per-partition operands (isa.md 12.2, 12.3, 12.9; nki-0.7.md 2.6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS
from tilelang.isa.accumulators import REDUCE_CMD, accumulate, one_of, reduce_commands, reduce_result
from tilelang.isa.cost import MIN_II, copy_rate, gpsimd_cycles, sixteen_bit
from tilelang.isa.enums import engine as Engine
from tilelang.isa.enums import reduce_cmd as Cmd
from tilelang.isa.operators import OPERATORS
from tilelang.isa.params import BOOL, ENGINE, OPERATOR, OPTIONAL_OPERATOR
from tilelang.isa.rules import alias, not_both_psum, on_chip, row_vector, same_extent
from tilelang.isa.slots import (
    apply,
    arithmetic_operators,
    is_bitvec,
    is_unary,
    not_an_operator,
    operators_available,
    slot_operand,
)
from tilelang.isa.spec import Call, Finding, In, Out, Rule, Vec, instruction
from tilelang.isa.tile import Machine, Tile, vector
from tilelang.numerics import alu

__all__ = ["exact_integers", "reciprocal", "scalar_tensor_tensor", "tensor_scalar"]

_WIDE = ("int32", "uint32")
_EXACT = ("add", "subtract", "multiply", "maximum", "minimum")
_GPSIMD = ("rsqrt", "power")
_SCALAR_GEN3 = (("multiply", "add"), ("multiply", None), ("add", None))


def _is_exact(dst: Any, data: Any, slots: tuple[tuple[str | None, Any], ...]) -> bool:
    """The "address arithmetic" form: everything is a 32-bit integer and the operators are exact on those."""
    if dst.dtype not in _WIDE or data.dtype not in _WIDE:
        return False
    for op, operand in slots:
        if op is None:
            continue
        dtype = getattr(operand, "dtype", None)
        whole = dtype in _WIDE if dtype else isinstance(operand, int) and -(2**31) <= operand < 2**32
        if op not in _EXACT or not whole:
            return False
    return True


def exact_integers(call: Call) -> bool:
    """True when a `tensor_scalar` call runs in exact 32-bit integers."""
    return _is_exact(call.dst, call.data, ((call.op0, call.operand0), (call.op1, call.operand1)))


def _slots(call: Call) -> list[tuple[str, str, str]]:
    """(operator parameter, operator, operand parameter) of the slots in use."""
    return [(n, call.values[n], f"operand{n[2]}") for n in ("op0", "op1") if call.values[n] is not None]


def _choose(call: Call) -> str:
    return "gpsimd" if call.op0 in _GPSIMD or call.op1 in _GPSIMD else "vector"


def _pairing(call: Call) -> Finding | None:
    if call.op1 is None and call.operand1 is not None:
        return Finding("operand1 is given without op1", "operand1", "pass op1, or drop operand1")
    if call.op1 in OPERATORS and not is_unary(call.op1) and call.operand1 is None:
        return Finding(f"op1={call.op1} has two inputs; operand1 must be a number or a tile, not None", "operand1")
    return None


def _classes(call: Call) -> list[Finding]:
    found = [f for name, op, _ in _slots(call) if (f := not_an_operator(op, name)) is not None]
    if not found and call.op1 is not None and is_bitvec(call.op0) != is_bitvec(call.op1):
        bits, other = ("op0", "op1") if is_bitvec(call.op0) else ("op1", "op0")
        found.append(
            Finding(
                f"{bits}={call.values[bits]} works on raw bits, {other}={call.values[other]} on float32: not together",
                "op1",
                "use two tensor_scalar instructions",
            )
        )
    return found


def _bitvec(call: Call) -> list[Finding]:
    slots = [(op, operand) for _, op, operand in _slots(call) if is_bitvec(op)]
    if not slots:
        return []
    found = []
    if call.engine != "vector":
        found.append(
            Finding(f"{slots[0][0]} works on raw bits, which only the vector engine does, not {call.engine}", "engine")
        )
    size = call.fmt("data").itemsize
    for name in ("dst", "data", *(operand for _, operand in slots)):
        if not call.is_tile(name):
            continue
        if not call.fmt(name).is_integer:
            message = f"{slots[0][0]} needs integer tiles; {name} is {call.dtype(name)}"
            found.append(Finding(message, name, f"re-view its bits: {name}.view(nl.uint{8 * call.fmt(name).itemsize})"))
        elif call.fmt(name).itemsize != size:
            found.append(
                Finding(
                    f"{slots[0][0]} needs equal item sizes; {name} is {call.dtype(name)}, data {call.dtype('data')}",
                    name,
                )
            )
    for op, operand in slots:
        value = call.values[operand]
        if isinstance(value, float):
            found.append(Finding(f"{op} needs an int; {operand} is {value!r}", operand))
        elif isinstance(value, int) and not -(2 ** (8 * size - 1)) <= value < 2 ** (8 * size):
            found.append(
                Finding(f"{operand}={value} does not fit the {8 * size} bits of {call.dtype('data')}", operand)
            )
    return found


def _tile_operands(call: Call) -> list[Finding]:
    if exact_integers(call):
        return []
    return [
        Finding(
            f"{operand} is {call.dtype(operand)}; a tile operand of {op} must be float32",
            operand,
            "convert it with nisa.tensor_copy into a float32 tile",
        )
        for _, op, operand in _slots(call)
        if call.is_tile(operand) and not is_bitvec(op) and call.dtype(operand) != "float32"
    ]


def _scalar_engine(call: Call) -> Finding | None:
    if call.engine != "scalar" or call.generation < 3:
        return None
    if call.generation == 3 and (call.op0, call.op1) not in _SCALAR_GEN3:
        return Finding(
            f"the scalar engine of {call.target} runs (multiply, add), multiply or add, not ({call.op0}, {call.op1})",
            "engine",
            "leave engine open, or use nisa.activation with scale and bias",
        )
    if "power" in (call.op0, call.op1):
        return Finding("power runs on the gpsimd engine only, not scalar", "engine", "leave engine open")
    return None


def _gpsimd_engine(call: Call) -> Finding | None:
    if call.engine != "gpsimd" or call.op0 in _GPSIMD or call.op1 in _GPSIMD:
        return None
    return Finding(
        f"the gpsimd engine runs only {' and '.join(_GPSIMD)} here, not {call.op0}", "engine", "leave engine open"
    )


def _not_indirect_integers(call: Call) -> list[Finding]:
    if not exact_integers(call):
        return []
    return [
        Finding(f"{name} is an .indirect view; the 32-bit integer form takes none", name)
        for name, tensor in call.tiles()
        if tensor.dynamic is not None and tensor.dynamic.kind == "indirect"
    ]


def _cost_tensor_scalar(call: Call) -> float:
    n = call.F("data")
    if call.engine == "gpsimd":
        return gpsimd_cycles(4 * n)
    if call.engine == "scalar":
        return max(MIN_II, n / (2 if call.generation >= 4 and sixteen_bit(call, "data", "dst") else 1))
    return max(MIN_II, n / copy_rate(call, "data"))


@instruction(
    operands=dict(dst=Out(), data=In(), operand0=Vec(optional=True), operand1=Vec(optional=True)),
    params=dict(op0=OPERATOR, reverse0=BOOL, op1=OPTIONAL_OPERATOR, reverse1=BOOL, engine=ENGINE),
    engines=("vector", "scalar", "gpsimd"),
    engine_since=dict(scalar=3),
    choose=_choose,
    cost=_cost_tensor_scalar,
    accuracy="exact rounding of each operator; power and rsqrt 2 ulp",
    indirect=("dst", "data"),
    rules=(
        on_chip("R1", "dst", "data"),
        same_extent("R1", "dst", "data"),
        row_vector("R2", "operand0", "data"),
        row_vector("R2", "operand1", "data"),
        slot_operand("R2", "op0", "operand0"),
        Rule("R3", "op1 and operand1 come together (a unary op1 may have operand1 None or 0)", _pairing),
        Rule("R4", "op0 and op1 are ALU operators of one class", _classes),
        Rule("R5", "bitvec operators: vector engine, integers of equal size, int operands", _bitvec),
        Rule("R6", "tile operands of arithmetic operators are float32", _tile_operands),
        Rule("R7", "operators of the scalar engine", _scalar_engine),
        Rule("R8", "engine=gpsimd with rsqrt or power only", _gpsimd_engine),
        slot_operand("R9", "op1", "operand1"),
        operators_available("R10", "op0", "op1"),
        alias("R11", "gpsimd: nothing in PSUM (GEN.R5)"),
        Rule("R12", "indirect: dst and data (TI.R2), not in the 32-bit integer form (TI.R10)", _not_indirect_integers),
    ),
)
def tensor_scalar(
    dst: Tile,
    data: Tile,
    op0: str,
    operand0: Tile | float | None,
    reverse0: bool = False,
    op1: str | None = None,
    operand1: Tile | float | None = None,
    reverse1: bool = False,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> None:
    """One or two operators with per-partition operands: `dst = op1(op0(data, operand0), operand1)`.

    dst, data: tiles with equal partition count and equal elements per partition. operand0, operand1: a number, or a
    float32 tile (P, 1); None or 0 for operators of one input. reverse0, reverse1: the operand comes first. Arithmetic
    runs in float32, with one rounding per operator and one into `dst.dtype`; bitvec operators work on raw bits. When
    data, dst and all operands are 32-bit integers and the operators add, subtract, multiply, maximum or minimum, the
    arithmetic is exact in the type of `data` and wraps. Engines: vector; scalar (generation 3: multiply and add);
    gpsimd (rsqrt and power, their default). Source: isa.md 12.2.
    """
    slots = [(op0, operand0, reverse0)]
    if op1 is not None:
        slots.append((op1, operand1, reverse1))
    if is_bitvec(op0) or _is_exact(dst, data, ((op0, operand0), (op1, operand1))):
        bits = data.bits()
        for op, operand, reverse in slots:
            bits = _apply_integer(op, bits, operand, reverse)
        dst.store_bits(bits.view(dst.fmt.carrier))
    else:
        values = data.f32()
        for op, operand, reverse in slots:
            values = apply(op, values, vector(operand, data.P), reverse)
        dst.store(values)


def _apply_integer(op: str, data: NDArray[Any], operand: Tile | float | None, reverse: bool) -> NDArray[Any]:
    if is_unary(op):
        return alu.INTEGER[op](data)
    if isinstance(operand, Tile):
        other = operand.bits().view(data.dtype)
    else:
        pattern = int(operand or 0) % 2 ** (8 * data.itemsize)
        other = np.full((len(data), 1), pattern, FORMATS[f"uint{8 * data.itemsize}"].carrier).view(data.dtype)
    return alu.INTEGER[op](other, data) if reverse else alu.INTEGER[op](data, other)


def _cost_scalar_tensor_tensor(call: Call) -> float:
    n = call.F("data")
    fused = (call.op0, call.op1) == ("subtract", "multiply") and n % 2 == 0
    fast = fused and call.dtype("data") == call.dtype("operand1") == "bfloat16"
    return max(MIN_II, n if fast else 2 * n) + (MIN_II if call.reduce_res is not None else 0)


@instruction(
    operands=dict(dst=Out(), data=In(), operand0=Vec(optional=True), operand1=In(), reduce_res=Out(optional=True)),
    params=dict(op0=OPERATOR, op1=OPERATOR, reverse0=BOOL, reverse1=BOOL, reduce_cmd=REDUCE_CMD, reduce_op=OPERATOR),
    engines=("vector",),
    cost=_cost_scalar_tensor_tensor,
    accuracy="exact rounding of each operator; power 2 ulp",
    state=("dve",),
    rules=(
        on_chip("R1", "dst", "data", "operand1"),
        not_both_psum("R1", "data", "operand1"),
        same_extent("R2", "dst", "data", "operand1"),
        row_vector("R3", "operand0", "data", "float32", "bfloat16", "float16"),
        slot_operand("R3", "op0", "operand0"),
        arithmetic_operators("R4", "op0"),
        arithmetic_operators("R4", "op1", two_inputs=True),
        operators_available("GEN.R10", "op0", "op1"),
        alias("R5", "no indirect operands (TI.R2)"),
        reduce_commands("ACC.R3", Cmd.reset_reduce, Cmd.reduce),
        one_of("R6", "reduce_op", "add", "multiply", "maximum", "minimum"),
        reduce_result("ACC.R5", "data"),
    ),
)
def scalar_tensor_tensor(
    dst: Tile,
    data: Tile,
    op0: str,
    operand0: Tile | float | None,
    op1: str,
    operand1: Tile,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_cmd: Cmd = Cmd.reset_reduce,
    reduce_op: Any = np.add,
    reduce_res: Tile | None = None,
    name: str | None = None,
    *,
    machine: Machine,
) -> None:
    """`dst = op1(op0(data, operand0), operand1)`: a per-partition operand, then a tile.

    dst, data, operand1: tiles with equal partition count and equal elements per partition. operand0: a number or a
    float32 tile (P, 1). reverse0, reverse1 swap the inputs of their operator. float32 with one rounding per operator
    and one into `dst.dtype`. The float32 results are also reduced over all free dims into the vector engine's
    accumulators (reduce_op: add, multiply, maximum, minimum; reduce_cmd: reset_reduce, reduce), which `reduce_res`
    (P, 1) receives when given. Source: isa.md 12.3, nki-0.7.md 2.6.
    """
    first = apply(op0, data.f32(), vector(operand0, data.P), reverse0)
    result = apply(op1, first, operand1.f32(), reverse1)
    dst.store(result)
    registers = machine.dve[machine.lanes(dst)]
    accumulate(registers, reduce_op, result, reduce_cmd)
    if reduce_res is not None:
        reduce_res.store(registers[:, None])


@instruction(
    operands=dict(dst=Out(), data=In()),
    rules=(on_chip("R1", "dst", "data"), same_extent("R1", "dst", "data")),
    engines=("vector",),
    cost=lambda call: max(MIN_II, call.F("data")),
    accuracy="correctly rounded",
)
def reciprocal(dst: Tile, data: Tile, name: str | None = None) -> None:
    """`dst = 1 / data`, correctly rounded in float32, then rounded into `dst.dtype`. 1/0 is inf, 1/inf is 0, signed.

    dst, data: tiles with equal partition count and equal elements per partition. Engine: vector. Source: isa.md 12.9.
    """
    dst.store(alu.UNARY["reciprocal"](data.f32()))
