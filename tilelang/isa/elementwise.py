"""Element-wise instructions of the vector engine with two inputs (isa.md 12.1)."""

from __future__ import annotations

import numpy as np

from tilelang.isa.cost import MIN_II, gpsimd_cycles, sixteen_bit
from tilelang.isa.enums import engine as Engine
from tilelang.isa.operators import OPERATORS
from tilelang.isa.params import ENGINE, OPERATOR
from tilelang.isa.rules import alias, not_both_psum, on_chip, same_extent
from tilelang.isa.slots import not_an_operator
from tilelang.isa.spec import Call, Finding, In, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import alu

__all__ = ["tensor_tensor"]

_WIDE = ("int32", "uint32")


def _choose(call: Call) -> str:
    operator = OPERATORS.get(call.op)
    if operator is None:
        return "vector"  # the rules say what is wrong
    if call.op == "power":
        return "gpsimd"
    wide = all(call.dtype(n) in _WIDE for n in ("dst", "data1", "data2"))
    in_psum = any(call.buffer(n) == "psum" for n in ("dst", "data1", "data2"))
    return "gpsimd" if wide and operator.kind == "binary" and not in_psum else "vector"


def exact_integers(call: Call) -> bool:
    """True when the call runs in exact 32-bit integers: everything is int32/uint32 on the gpsimd engine."""
    return (
        call.engine == "gpsimd"
        and call.op in alu.INTEGER
        and all(call.dtype(n) in _WIDE for n in ("dst", "data1", "data2"))
    )


def _binary(call: Call) -> Finding | None:
    operator = OPERATORS.get(call.op)
    if operator is not None and operator.simulate_only:
        return not_an_operator(call.op, "op")
    if operator is None or operator.arity != 2 or operator.kind == "special":
        return Finding(f"op={call.op} is not a binary operator", "op", "functions of one input run on nisa.activation")
    return None


def _bitvec(call: Call) -> Finding | None:
    if OPERATORS.get(call.op) is None or OPERATORS[call.op].kind != "bitvec":
        return None
    if call.engine != "vector":
        return Finding(f"{call.op} runs on the vector engine only, not {call.engine}", "engine")
    for name in ("dst", "data1", "data2"):
        if not call.fmt(name).is_integer:
            return Finding(
                f"{call.op} works on integer bits; {name} is {call.dtype(name)}", name, "re-view it: .view(nl.uint32)"
            )
        if call.fmt(name).itemsize != call.fmt("dst").itemsize:
            return Finding(
                f"{call.op} needs equal item sizes; {name} is {call.dtype(name)}, dst {call.dtype('dst')}", name
            )
    return None


def _cost(call: Call) -> float:
    n = call.F("dst")
    if call.engine == "gpsimd":
        return gpsimd_cycles(2 * n)
    buffers = {call.buffer("data1"), call.buffer("data2")}
    fast = buffers == {"sbuf", "psum"}
    if buffers == {"sbuf"} and sixteen_bit(call, "dst", "data1", "data2"):
        fast = call.generation >= 3 or call.op in ("add", "subtract", "multiply")
    return max(MIN_II, n if fast else 2 * n)


@instruction(
    operands=dict(dst=Out(), data1=In(), data2=In()),
    params=dict(op=OPERATOR, engine=ENGINE),
    engines=("vector", "gpsimd"),
    choose=_choose,
    cost=_cost,
    accuracy="exact rounding of each operator; power 2 ulp",
    indirect=("dst", "data1"),
    rules=(
        on_chip("R1", "dst", "data1", "data2"),
        not_both_psum("R1", "data1", "data2"),
        same_extent("R2", "dst", "data1", "data2"),
        Rule("R3", "op is binary", _binary),
        Rule("R4", "bitvec operators: vector engine, integers, equal item size", _bitvec),
        alias("R5", "gpsimd or power: nothing in PSUM (GEN.R5)"),
        Rule(
            "R6",
            "abs_max and abs_min need generation 4",
            lambda c: (
                Finding(f'op={c.op} needs NeuronCore generation 4 (target="trn3")', "op")
                if c.generation < getattr(OPERATORS.get(c.op), "since", 2)
                else None
            ),
        ),
        alias("R7", "indirect operands: dst and data1 (TI.R2)"),
        alias("R8", "engine=gpsimd with any arithmetic operator is accepted"),
    ),
)
def tensor_tensor(
    dst: Tile, data1: Tile, data2: Tile, op: str, engine: Engine = Engine.unknown, name: str | None = None
) -> None:
    """Element-wise `dst = op(data1, data2)`.

    All three are tiles with equal partition count and equal elements per partition. Arithmetic runs in float32 and is
    rounded once into `dst.dtype`;
    bitvec operators work on raw bits; when all three are int32/uint32 (default engine gpsimd) arithmetic is exact and
    wraps.
    Engines: vector, gpsimd. Source: isa.md 12.1.
    """
    kinds = {dst.dtype, data1.dtype, data2.dtype}
    if OPERATORS[op].kind == "bitvec":
        dst.store_bits(alu.INTEGER[op](data1.bits(), data2.bits()).astype(dst.fmt.carrier))
    elif engine is Engine.gpsimd and op in alu.INTEGER and kinds <= set(_WIDE):
        result = alu.INTEGER[op](data1.bits(), data2.bits())
        dst.store_bits(np.asarray(result).astype(dst.fmt.carrier))
    else:
        dst.store(alu.BINARY[op](data1.f32(), data2.f32()))
