"""One step `op(data, operand)` of vector instructions: rules of operator and operand, meaning in float32."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tilelang.isa.operators import ACTIVATIONS, OPERATORS
from tilelang.isa.rules import needs
from tilelang.isa.spec import Call, Finding, Rule
from tilelang.numerics import alu

__all__ = [
    "COMPARISONS",
    "apply",
    "arithmetic_operators",
    "is_bitvec",
    "is_unary",
    "not_an_operator",
    "operators_available",
    "slot_operand",
]

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_SINCE = {
    "square": 4,
    "relu": 4,
    "abs_max": 4,
    "abs_min": 4,
}  # generation from which the vector engine has them (isa.md 4.1)


def is_unary(op: str | None) -> bool:
    """True for an ALU operator of one input."""
    return op in OPERATORS and OPERATORS[op].arity == 1


def is_bitvec(op: str | None) -> bool:
    """True for an operator on raw bits."""
    return op in OPERATORS and OPERATORS[op].kind == "bitvec"


def not_an_operator(op: str, name: str) -> Finding | None:
    """A finding when parameter `name` is no ALU operator of the device (isa.md 4.1)."""
    row = OPERATORS.get(op)
    if row is not None and row.kind != "special" and not row.simulate_only:
        return None
    hint = None
    if op in ("divide", "mod", "fmod"):
        hint = "the device cannot divide: multiply by nisa.reciprocal of the divisor"
    elif op in ACTIVATIONS:
        hint = f"functions of one input run on the scalar engine: nisa.activation(op=nl.{op})"
    return Finding(f"{name}={op} is not an ALU operator", name, hint)


def arithmetic_operators(rule: str, *names: str, two_inputs: bool = False) -> Rule:
    """Operators `names` (those that are given) are arithmetic, not bitvec; with `two_inputs` also not unary."""

    def test(call: Call) -> list[Finding]:
        found = []
        for name in names:
            op = call.values[name]
            if op is None:
                continue
            unknown = not_an_operator(op, name)
            if unknown is not None:
                found.append(unknown)
            elif is_bitvec(op):
                hint = "bit operations run on nisa.tensor_scalar and nisa.tensor_tensor"
                found.append(
                    Finding(f"{name}={op} works on raw bits; {call.spec.name} takes arithmetic operators", name, hint)
                )
            elif two_inputs and is_unary(op):
                found.append(
                    Finding(f"{name}={op} has one input; {call.spec.name} needs an operator of two here", name)
                )
        return found

    return Rule(rule, f"{', '.join(names)}: arithmetic{' of two inputs' if two_inputs else ''}", test)


def operators_available(rule: str, *names: str) -> Rule:
    """Operators `names` exist on the vector engine of the target (isa.md 4.1)."""

    def test(call: Call) -> list[Finding]:
        return [
            Finding(needs(call, f"{name}={call.values[name]}", 4), name)
            for name in names
            if call.engine == "vector" and call.generation < _SINCE.get(call.values[name], 2)
        ]

    return Rule(rule, f"{', '.join(names)}: square, relu, abs_max, abs_min need generation 4", test)


def slot_operand(rule: str, op: str, operand: str) -> Rule:
    """An operator of two inputs has its operand; one of one input has None or 0, which is ignored."""

    def test(call: Call) -> Finding | None:
        operator, value = call.values[op], call.values[operand]
        if operator is None or operator not in OPERATORS:
            return None
        if not is_unary(operator):
            missing = (
                f"{operand} is missing: {op}={operator} has two inputs, the limit is one number or tile for the second"
            )
            return Finding(missing, operand) if value is None else None
        if call.is_tile(operand) or value not in (None, 0):
            return Finding(f"{op}={operator} has one input; {operand} must be None or 0", operand)
        return None

    return Rule(rule, f"{operand}: given when {op} has two inputs, None or 0 when it has one", test)


def apply(op: str, data: NDArray[Any], operand: NDArray[Any], reverse: bool = False) -> NDArray[Any]:
    """`op(data, operand)` in float32, or `op(operand, data)` if `reverse`; operators of one input ignore `operand`."""
    if is_unary(op):
        return alu.UNARY[op](data)
    return alu.BINARY[op](operand, data) if reverse else alu.BINARY[op](data, operand)
