"""Pieces of the cost formulas (isa.md sections 1 and 9, devices.md section 3), in cycles of the executing engine."""

from __future__ import annotations

from tilelang.isa.spec import Call

__all__ = ["GPSIMD_START", "MIN_II", "contiguous", "copy_rate", "gpsimd_cycles", "sixteen_bit"]

MIN_II = 64  # cycles: minimum initiation interval of the vector and scalar engines
GPSIMD_START = 150  # cycles


def gpsimd_cycles(elements: float) -> float:
    """Cycles of a gpsimd instruction over `elements` per partition."""
    return GPSIMD_START + elements


def sixteen_bit(call: Call, *names: str) -> bool:
    """True when all operands `names` are 16-bit floats (from generation 4 also fp8): the fast vector modes."""
    sizes = (1, 2) if call.generation >= 4 else (2,)
    return all(call.fmt(n).is_float and call.fmt(n).itemsize in sizes for n in names)


def contiguous(call: Call, name: str) -> bool:
    """True when the innermost free dim of operand `name` has stride 1."""
    pattern = call.values[name].free_pattern()
    return not pattern or pattern[-1][1] == 1


def copy_rate(call: Call, source: str, destination: str = "dst") -> int:
    """Elements per cycle and lane of a one-input vector instruction: 4, 2 or 1 (isa.md section 9)."""
    if call.generation < 3 or not sixteen_bit(call, source, destination):
        return 1
    in_sbuf = call.buffer(source) == call.buffer(destination) == "sbuf"
    dense = contiguous(call, source) and contiguous(call, destination)
    if in_sbuf:
        return 4 if dense else 2
    return 2 if dense else 1
