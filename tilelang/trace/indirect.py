"""Calls with `.indirect` operands as what they stand for: gathers, the instruction on hidden tiles, a scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilelang.ir.program import Instruction
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.plan import Plan
from tilelang.isa.spec import REGISTRY

if TYPE_CHECKING:
    from tilelang.trace.builder import Builder

__all__ = ["expand"]

# Partitions that share one set of offsets (isa.md 5.5).
_TENSOR_ENGINE_GROUP, _GROUP = 32, 16


def expand(builder: Builder, plan: Plan, args: tuple[Any, ...], name: str | None) -> Instruction:
    """Emit the checked call `plan` with `args`; returns the instruction itself, the scatter follows it."""
    group = _TENSOR_ENGINE_GROUP if plan.call.engine == "tensor" else _GROUP
    direct = list(args)
    scattered: list[tuple[NkiTensor, NkiTensor]] = []
    for operand in plan.indirect:
        position, _ = plan.slots[operand]
        view: NkiTensor = args[position]
        assert view.dynamic is not None
        tile = _hidden(builder, view)
        direct[position] = tile
        # What a predicated write leaves alone keeps its old value; reading it is harmless elsewhere.
        if plan.reads[operand] or plan.call.spec.name == "tensor_copy_predicated":
            builder.emit(REGISTRY["indirect_gather"], (tile, view.dynamic.base, view.dynamic.source, group))
        if plan.writes[operand]:
            scattered.append((view, tile))
    instruction = builder.emit(plan.spec, tuple(direct), name)
    for view, tile in scattered:
        assert view.dynamic is not None
        builder.emit(REGISTRY["indirect_scatter"], (view.dynamic.base, tile, view.dynamic.source, group))
    return instruction


def _hidden(builder: Builder, view: NkiTensor) -> NkiTensor:
    """A tile for the elements of `view`, in the same memory and from the same partition on."""
    start, (rows, count) = view.start_partition, view.shape
    buffer = MemoryRegion.sbuf if view.buffer is MemoryRegion.sbuf else MemoryRegion.psum
    tile = builder.allocate((start + rows, count), view.dtype, buffer)
    return tile[start : start + rows]
