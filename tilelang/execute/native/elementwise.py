"""Native bodies of copies and element-wise instructions: micro-op pipelines."""

from __future__ import annotations

from tilelang.execute import layout
from tilelang.execute.native.dma import may_overlap
from tilelang.execute.native.template import Lowering, native
from tilelang.isa.copies import constant_bits
from tilelang.isa.elementwise import exact_integers
from tilelang.isa.operators import OPERATORS

__all__ = ["block_of", "finish", "load", "store"]


def block_of(lowering: Lowering, *names: str) -> int:
    """Block size: a whole row when an input partly overlaps dst, so that everything is read before anything is written."""
    dst = lowering.tensor("dst")
    overlapping = any(lowering.call.is_tile(n) and may_overlap(dst, lowering.tensor(n)) for n in names)
    return layout.WHOLE_ROW if overlapping else 0


def load(lowering: Lowering, register: int, name: str) -> list[layout.Uop]:
    """Micro-ops that read operand `name` as float32."""
    fmt = lowering.fmt(name)
    return layout.read(register, fmt.name, fmt.itemsize, lowering.operand(name))


def store(lowering: Lowering, register: int, name: str = "dst") -> list[layout.Uop]:
    """Micro-ops that round float32 into operand `name`."""
    fmt = lowering.fmt(name)
    return layout.write(register, fmt.name, fmt.itemsize, lowering.operand(name))


def finish(lowering: Lowering, steps: list[tuple[list[layout.Uop], str]], **options: object) -> None:
    """Add the pipeline of `steps`: (micro-ops, parameter whose address they take)."""
    uops, named = [], []
    for group, name in steps:
        uops += group
        named += [name for step in group for _ in step.operands]
    lowering.pipeline(uops, named, **options)  # type: ignore[arg-type]


@native("tensor_tensor")
def _tensor_tensor(lowering: Lowering) -> None:
    call = lowering.call
    block = block_of(lowering, "data1", "data2")
    if OPERATORS[call.op].kind == "bitvec" or exact_integers(call):
        _integer_pair(lowering, block)
        return
    steps = [
        (load(lowering, 0, "data1"), "data1"),
        (load(lowering, 1, "data2"), "data2"),
        ([layout.uop(f"binary.{call.op}.tt", 2, 0, 1)], ""),
        (store(lowering, 2), "dst"),
    ]
    finish(lowering, steps, block=block)


def _integer_pair(lowering: Lowering, block: int) -> None:
    call = lowering.call
    raise NotImplementedError


@native("tensor_copy")
def _tensor_copy(lowering: Lowering) -> None:
    call = lowering.call
    block = block_of(lowering, "src")
    if call.dtype("dst") == call.dtype("src"):
        size = lowering.fmt("src").itemsize
        steps = [
            (layout.read_items(0, size, lowering.operand("src")), "src"),
            (layout.write_items(0, size, lowering.operand("dst")), "dst"),
        ]
        finish(lowering, steps, block=block, item=max(4, size))
        return
    finish(lowering, [(load(lowering, 0, "src"), "src"), (store(lowering, 0), "dst")], block=block)


@native("memset")
def _memset(lowering: Lowering) -> None:
    call = lowering.call
    fmt = lowering.fmt("dst")
    bits = constant_bits(call.value, call.dtype("dst"), fmt.name)
    fill = layout.fill(0, fmt.itemsize, bits)
    steps = [
        ([fill._replace(operands=[])], ""),
        (layout.write_items(0, fmt.itemsize, lowering.operand("dst")), "dst"),
    ]
    finish(lowering, steps, item=max(4, fmt.itemsize))
