"""dma_compute: sums made by the DMA engines on the way (isa.md 10.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.dtypes import FORMATS
from tilelang.errors import TileTypeError
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.dma import OOB
from tilelang.isa.enums import oob_mode as Oob
from tilelang.isa.params import BOOL, OPERATOR, Param
from tilelang.isa.rules import TWO_STEP, alias, semantic
from tilelang.isa.spec import Call, Finding, In, Out, Rule, instruction
from tilelang.isa.tile import RowsTile, Tile
from tilelang.numerics import alu, casts

__all__ = ["dma_compute", "indirect_operand", "same_view"]

_MOST_SOURCES = 16


def _numbers(value: Any) -> tuple[float, ...] | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and all(type(item) in (int, float) for item in value):
        return tuple(float(item) for item in value)
    raise TileTypeError(f"expected None or a list of numbers, got {value!r:.80}")


SCALES = Param("None or numbers", _numbers)


def _vectors(call: Call) -> list[tuple[str, NkiTensor]]:
    return [(n, t) for n, t in call.tiles() if t.dynamic is not None and t.dynamic.kind == "vector"]


def indirect_operand(call: Call) -> tuple[str, NkiTensor] | None:
    """(name, tensor) of the operand whose rows an index tile picks: `dst`, or the source of a gather."""
    found = _vectors(call)
    return next(((n, t) for n, t in found if n == "dst"), found[0] if found else None)


def _places(call: Call) -> list[Finding]:
    found = [
        Finding(f"{name} is in PSUM, which DMA cannot reach", name, TWO_STEP)
        for name, tensor in call.tiles()
        if tensor.buffer.value == "psum"
    ]
    if len(call.srcs) > _MOST_SOURCES:
        found.append(Finding(f"srcs has {len(call.srcs)} tensors; at most {_MOST_SOURCES}", "srcs"))
    return found


def _counts(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} has {tensor.size} elements {tensor.shape}, dst has {call.dst.size} {call.dst.shape}", name)
        for name, tensor in call.tiles()
        if tensor.size != call.dst.size
    ]


def _adds(call: Call) -> Finding | None:
    if call.reduce_op == "add":
        return None
    return Finding(f"reduce_op={call.reduce_op}; DMA engines only add", "reduce_op", "pass reduce_op=nl.add")


def _unit_scales(call: Call) -> Finding | None:
    if call.scales is None:
        return None
    if len(call.scales) != len(call.srcs):
        return Finding(f"scales has {len(call.scales)} numbers for {len(call.srcs)} sources", "scales")
    if any(scale != 1.0 for scale in call.scales):
        return Finding(f"scales={call.scales}; every scale must be 1.0", "scales", "scale with nisa.tensor_scalar")
    return None


def _indirect_form(call: Call) -> Finding | None:
    found = _vectors(call)
    if not found:
        return None
    if call.generation < 3:
        return Finding(f'gather and scatter need generation 3 (target="trn2"); this is {call.target}', found[0][0])
    sources = [name for name, _ in found if name != "dst"]
    if len(call.srcs) != 2 or len(sources) != 1:
        message = f"srcs has {len(call.srcs)} tensors, {len(sources)} with a vector_offset; it must be two, one with"
        return Finding(message, "srcs")
    if not call.unique_indices:
        return Finding("unique_indices=False; the indirect form needs unique indices", "unique_indices")
    return None


def same_view(first: NkiTensor, second: NkiTensor) -> bool:
    """Whether two views are the same elements, picked by the same indices if any."""
    if first is second:
        return True
    if first.storage is not second.storage or first.offset != second.offset or first.key != second.key:
        return False
    if first.dynamic is None or second.dynamic is None:
        return first.dynamic is second.dynamic
    one, two = first.dynamic.source, second.dynamic.source
    return one is two or (isinstance(one, NkiTensor) and isinstance(two, NkiTensor) and same_view(one, two))


def _other(call: Call) -> NkiTensor:
    """The source without a vector_offset."""
    return next(t for t in call.srcs if t.dynamic is None or t.dynamic.kind != "vector")


def _scatter(call: Call) -> Finding | None:
    found = indirect_operand(call)
    if found is None or found[0] != "dst" or _indirect_form(call) is not None:
        return None
    source = next(t for t in call.srcs if t.dynamic is not None and t.dynamic.kind == "vector")
    if call.buffer("dst") == "sbuf" or not same_view(call.dst, source):
        return Finding("a scatter adds to the same view in HBM: dst must be one of the sources", "dst")
    if _other(call).buffer.value != "sbuf":
        return Finding("a scatter adds an SBUF tile; the other tensor of srcs is in HBM", "srcs", TWO_STEP)
    return None


def _gather(call: Call) -> Finding | None:
    found = indirect_operand(call)
    if found is None or found[0] == "dst" or _indirect_form(call) is not None:
        return None
    if call.buffer("dst") != "sbuf" or found[1].buffer.value == "sbuf":
        return Finding("a gather adds rows from HBM to an SBUF tile", "dst")
    if not same_view(call.dst, _other(call)):
        return Finding("a gather adds to dst, which must be the other source in srcs", "srcs")
    return None


def _index(call: Call) -> Finding | None:
    for name, tensor in _vectors(call):
        index = tensor.dynamic.source  # type: ignore[union-attr]
        if tensor.shape[0] != index.P or index.F != 1:
            shape = (tensor.shape[0], 1)
            return Finding(f"the vector_offset of {name} is {index.shape}; expected {shape}", name)
    return None


def _skip(call: Call) -> Finding | None:
    if call.oob_mode is not Oob.skip or _vectors(call):
        return None
    return Finding("oob_mode.skip needs an operand with a vector_offset", "oob_mode")


def _unpacked(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} is {tensor.dtype}; packed, scale and 64-bit dtypes have no sums", name)
        for name, tensor in call.tiles()
        if tensor.dtype == "int64" or FORMATS[tensor.dtype].kind in ("packed", "scale")
    ]


def _static(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} has a scalar_offset; only a vector_offset may move an operand here", name)
        for name, tensor in call.tiles()
        if tensor.dynamic is not None and tensor.dynamic.kind == "scalar"
    ]


@instruction(
    operands=dict(dst=Out(), srcs=In(many=True)),
    params=dict(reduce_op=OPERATOR, scales=SCALES, unique_indices=BOOL, oob_mode=OOB),
    engines=("dma",),
    choose=lambda call: "dma",
    cost=lambda call: 0.0,
    lanewise=False,
    accuracy="exact rounding of each sum, in the order of srcs",
    rules=(
        Rule("R1", "1 to 16 sources; dst and srcs in SBUF or HBM", _places),
        Rule("R2", "equal element counts", _counts),
        Rule("R3", "reduce_op is add", _adds),
        Rule("R4", "scales: None, or 1.0 for each source", _unit_scales),
        Rule("R5", "indirect: two sources, one with vector_offset, unique indices, generation 3", _indirect_form),
        Rule("R5", "indirect: index (P, 1)", _index),
        Rule("R6", "scatter: dst in HBM is one source, the other in SBUF", _scatter),
        Rule("R7", "gather: dst in SBUF is one source, the other in HBM", _gather),
        Rule("R8", "oob_mode.skip only in the indirect form", _skip),
        Rule("R9", "no packed dtypes", _unpacked),
        semantic("R10", "equal indices add one after the other, in partition order"),
        Rule("R11", "no scalar_offset", _static),
        alias("DGE.R7", "indirect needs generation 3 (R5)"),
    ),
)
def dma_compute(
    dst: Tile,
    srcs: tuple[Tile, ...],
    reduce_op: str,
    scales: tuple[float, ...] | None = None,
    unique_indices: bool = True,
    oob_mode: Oob = Oob.error,
    name: str | None = None,
) -> None:
    """`dst` = the sum of `srcs`, made on the way by the DMA engines.

    dst, srcs: up to 16 tensors in SBUF or HBM with equal element counts, taken in row-major order of their shapes.
    reduce_op: nl.add; scales: None or 1.0 for each source. The sum runs in float32 in the order of `srcs`, from 0, and
    is rounded once into `dst.dtype`. Indirect forms (generation 3) have two sources, one with a `vector_offset`:
    scatter, where `dst` is that view of HBM and the other source an SBUF tile, and gather, where `dst` is an SBUF tile
    and the other source; rows are added in partition order, rows out of range raise or are left out with oob_mode.skip.
    Everything is read before it is written, except that equal indices add up. Engine: DMA. Source: isa.md 10.3.
    """
    add = alu.BINARY["add"]
    if isinstance(dst, RowsTile):
        addend = next(s for s in srcs if not isinstance(s, RowsTile)).f32().reshape(dst.P, dst.F)
        for row in np.flatnonzero(dst.valid).tolist():
            elements = dst.starts[row] + dst.inner.ravel()
            total = add(casts.decode(dst.memory[elements], dst.fmt.name), addend[row])
            dst.memory[elements] = casts.encode(total, dst.fmt.name)
        return
    gathered = next((s for s in srcs if isinstance(s, RowsTile)), None)
    if gathered is not None:
        held = dst.bits()
        total = add(dst.f32().reshape(gathered.P, -1), gathered.f32()).reshape(dst.P, dst.F)
        valid = np.broadcast_to(gathered.valid[:, None], (gathered.P, gathered.F)).reshape(dst.P, dst.F)
        dst.store_bits(np.where(valid, casts.encode(total, dst.fmt.name), held))
        return
    total = np.zeros((dst.P, dst.F), np.float32)
    for source in srcs:
        total = add(total, source.f32().reshape(dst.P, dst.F))
    dst.store(total)
