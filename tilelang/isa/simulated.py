"""Functions of `nki.language` that no instruction of the device computes: they run here, warn, and fail in strict mode.

Kernels reach them through `nl.divide`, `nl.mod`, `nl.floor`, `nl.sin`, … (language.md 3.6); `nki.isa` has no such name.
"""

from __future__ import annotations

import numpy as np

from tilelang.isa.cost import MIN_II
from tilelang.isa.meeting import Meeting, Party, Place, World
from tilelang.isa.operators import OPERATORS
from tilelang.isa.params import Param
from tilelang.isa.rules import on_chip, same_extent
from tilelang.isa.spec import Call, Finding, In, Out, Rule, Vec, instruction
from tilelang.isa.tile import Tile, vector
from tilelang.numerics import alu, functions

__all__ = ["SIMULATED_BINARY", "SIMULATED_UNARY", "simulated_binary", "simulated_print", "simulated_unary"]

SIMULATED_BINARY = (*(name for name, row in OPERATORS.items() if row.simulate_only and row.arity == 2), "power")
SIMULATED_UNARY = ("ceil", "floor", "trunc", "sin_full", "cos", "tan")

_HINTS = {
    "divide": "multiply by nl.reciprocal of the divisor",
    "power": "pass the exponent as a tile, or multiply",
    "sin_full": "reduce the range to [-pi, pi] and use nisa.activation(op=nl.sin)",
    "cos": "reduce the range to [-pi, pi] and use nisa.activation(op=nl.sin, bias=pi/2)",
    "tan": "divide sine by cosine with nisa.activation and nisa.reciprocal",
    **dict.fromkeys(("ceil", "floor", "trunc"), "nisa.tensor_copy into an integer dtype rounds to nearest"),
    **dict.fromkeys(("mod", "fmod"), "compute x - y * q with an integer-rounded quotient q"),
}


def _chosen(allowed: tuple[str, ...]) -> Rule:
    def test(call: Call) -> Finding | None:
        if call.op in allowed:
            return None
        return Finding(f"op={call.op} is not simulated; there are: {', '.join(allowed)}", "op")

    return Rule("R2", f"op in {', '.join(allowed)}", test)


def _warning(call: Call) -> Finding:
    name = call.op.removesuffix("_full")
    what = f"nl.{name} with a number as one operand" if name == "power" else f"nl.{name}"
    return Finding(f"{what} runs in simulation only: no instruction computes it", None, _HINTS.get(call.op))


_NO_INSTRUCTION = Rule("R3", "no instruction of the device computes this", _warning, warn=True)
_NAME = Param("name of a function", str)


def _one_tile(call: Call) -> Finding | None:
    if call.is_tile("data1") or call.is_tile("data2"):
        return None
    return Finding("data1 and data2 are both numbers; one must be a tile", "data2", "compute it in Python")


@instruction(
    operands=dict(dst=Out(), data1=Vec(), data2=Vec()),
    params=dict(op=_NAME),
    engines=("vector",),
    cost=lambda call: max(MIN_II, 2 * call.F("dst")),
    accuracy="correctly rounded; power 2 ulp",
    simulate_only=True,
    rules=(
        on_chip("R1", "dst", "data1", "data2"),
        same_extent("R1", "dst", "data1", "data2"),
        Rule("R1", "at least one operand is a tile", _one_tile),
        _chosen(SIMULATED_BINARY),
        _NO_INSTRUCTION,
    ),
)
def simulated_binary(dst: Tile, data1: Tile | float, data2: Tile | float, op: str, name: str | None = None) -> None:
    """Element-wise `dst = op(data1, data2)` for divide, fmod, mod and power, which the device cannot compute this way.

    dst and the tiles among data1, data2 have equal partition count and equal elements per partition; one operand may be
    a number. float32 inside, rounded once into `dst.dtype`. fmod has the sign of data1, mod that of data2.
    Simulation only. Source: language.md 3.6.
    """
    dst.store(alu.BINARY[op](vector(data1, dst.P), vector(data2, dst.P)))


@instruction(
    operands=dict(dst=Out(), data=In()),
    params=dict(op=_NAME),
    engines=("scalar",),
    cost=lambda call: max(MIN_II, call.F("dst")),
    accuracy="exact; sin_full, cos and tan 2 ulp, near a root 2^-24 of the function's local scale",
    simulate_only=True,
    rules=(
        on_chip("R1", "dst", "data"),
        same_extent("R1", "dst", "data"),
        _chosen(SIMULATED_UNARY),
        _NO_INSTRUCTION,
    ),
)
def simulated_unary(dst: Tile, data: Tile, op: str, name: str | None = None) -> None:
    """Element-wise `dst = op(data)` for ceil, floor, trunc, and sin_full, cos, tan over all reals.

    dst, data: tiles with equal partition count and equal elements per partition. float32 inside, rounded once into
    `dst.dtype`. Simulation only. Source: language.md 3.6.
    """
    formula = alu.UNARY.get(op) or functions.ACTIVATIONS[op]
    dst.store(formula(data.f32()))


def _alone(call: Call, place: Place, world: World) -> Meeting:
    return Meeting("device_print", frozenset((place,)))


@instruction(
    operands=dict(tensor=In()),
    params=dict(prefix=_NAME),
    engines=("dma",),
    choose=lambda call: "dma",
    cost=lambda call: 0.0,
    lanewise=False,
    accuracy="exact",
    meeting=_alone,
    rules=(),
    simulate_only=True,
)
def simulated_print(tensor: Tile, prefix: str, name: str | None = None, *, parties: list[Party]) -> None:
    """Print `prefix` and the values of `tensor` when the program gets here (language.md 3.8)."""
    bits = np.array(tensor.view)
    shown = bits.view(tensor.fmt.host) if tensor.fmt.kind != "packed" else bits
    print(f"{prefix}\n{shown!r}")
