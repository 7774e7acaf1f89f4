"""DMA instructions: dma_copy and dma_transpose (isa.md 6, 10.1, 10.2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilelang.isa.enums import dge_mode as Dge
from tilelang.isa.enums import engine as Engine
from tilelang.isa.enums import oob_mode as Oob
from tilelang.isa.params import AXES, ENGINE, PRIORITY, Param, enum_param
from tilelang.isa.rules import TWO_STEP, alias, semantic
from tilelang.isa.spec import Call, Finding, In, Out, Rule, instruction
from tilelang.isa.tile import RowsTile, Tile

__all__ = ["DEFAULT_AXES", "dma_copy", "dma_transpose"]

DGE = enum_param(Dge, values=True)  # production kernels write dge_mode=3
OOB = enum_param(Oob)
DEFAULT_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
_OPTIONAL_AXES = Param("axes", lambda value: None if value is None else AXES.normalise(value))


def _vector_operands(call: Call) -> list[str]:
    return [n for n, t in call.tiles() if t.dynamic is not None and t.dynamic.kind == "vector"]


def _scalar_operands(call: Call) -> list[str]:
    return [n for n, t in call.tiles() if t.dynamic is not None and t.dynamic.kind == "scalar"]


def _no_psum(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} is in PSUM, which DMA cannot reach", name, TWO_STEP)
        for name, tensor in call.tiles()
        if tensor.buffer.value == "psum"
    ]


def _counts(call: Call) -> Finding | None:
    src, dst = call.src, call.dst
    if src.size != dst.size:
        return Finding(
            f"src has {src.size} elements {src.shape}, dst has {dst.size} {dst.shape}; they must be equal", "src"
        )
    return None


def _hwdge_since(call: Call) -> Finding | None:
    if call.dge_mode is Dge.hwdge and call.generation < 3:
        return Finding(
            f'dge_mode.hwdge needs generation 3 (target="trn2") or newer; the target is {call.target}', "dge_mode"
        )
    return None


def _swdge_for_vectors(call: Call) -> Finding | None:
    if _vector_operands(call) and call.dge_mode not in (Dge.unknown, Dge.swdge):
        return Finding(f"a vector_offset needs dge_mode unknown or swdge, got {call.dge_mode.name}", "dge_mode")
    return None


def _hwdge_same_dtype(call: Call) -> Finding | None:
    if call.dge_mode is Dge.hwdge and call.dtype("src") != call.dtype("dst"):
        return Finding(
            f"dge_mode.hwdge moves bytes: src is {call.dtype('src')}, dst {call.dtype('dst')}",
            "dge_mode",
            "match them with .view()",
        )
    return None


def _engine_with_hwdge(call: Call) -> Finding | None:
    if call.values["engine"] is Engine.unknown:
        return None
    if call.dge_mode is not Dge.hwdge or call.values["engine"] not in (Engine.scalar, Engine.sync):
        return Finding(
            f"engine={call.values['engine'].name} with dge_mode {call.dge_mode.name}; "
            "engine= chooses who triggers hwdge: scalar or sync",
            "engine",
        )
    return None


def _priority(call: Call) -> Finding | None:
    if call.priority is None:
        return None
    if call.generation < 4:
        return Finding(f'priority needs generation 4 (target="trn3"); the target is {call.target}', "priority")
    if not 0 <= call.priority <= 3:
        return Finding(f"priority {call.priority} is outside 0 (highest) to 3", "priority")
    return None


def _indirect_since(call: Call) -> Finding | None:
    found = _vector_operands(call)
    if found and call.generation < 3:
        return Finding(
            f'gather and scatter need generation 3 (target="trn2") or newer; the target is {call.target}', found[0]
        )
    return None


def _packed_same(call: Call) -> Finding | None:
    kinds = {call.fmt(n).kind for n in ("src", "dst")}
    if kinds & {"packed", "scale"} and call.dtype("src") != call.dtype("dst"):
        return Finding(
            f"{call.dtype('src')} to {call.dtype('dst')}: packed and scale dtypes are only copied as they are", "src"
        )
    if "int64" in (call.dtype("src"), call.dtype("dst")) and call.dtype("src") != call.dtype("dst"):
        return Finding(f"{call.dtype('src')} to {call.dtype('dst')}: int64 is only copied as it is", "src")
    return None


def _one_vector(call: Call) -> Finding | None:
    found = _vector_operands(call)
    if len(found) > 1:
        return Finding("src and dst both have a vector_offset; only one side can be indirect", found[1])
    for name in found:
        index = call.values[name].dynamic.source
        if index.dtype not in ("int32", "uint32"):
            return Finding(f"the vector_offset of {name} is {index.dtype}; it must be int32 or uint32", name)
        if call.values[name].shape[0] != index.P or index.F != 1:
            return Finding(
                f"the vector_offset of {name} is {index.shape}; expected "
                f"({call.values[name].shape[0]}, 1): one row index per row",
                name,
            )
    return None


_DGE_RULES = (
    Rule("DGE.R1", "hwdge needs generation 3", _hwdge_since),
    Rule("DGE.R2", "vector_offset: mode unknown or swdge", _swdge_for_vectors),
    Rule("DGE.R6", "priority 0..3, generation 4", _priority),
    Rule("DGE.R7", "indirect needs generation 3", _indirect_since),
    alias("DGE.R8", "oob_mode is a member of oob_mode (GEN.R9); range checks run for dynamic accesses only"),
)


@instruction(
    operands=dict(dst=Out(), src=In()),
    params=dict(priority=PRIORITY, oob_mode=OOB, dge_mode=DGE, engine=ENGINE),
    engines=("dma",),
    choose=lambda call: "dma",
    cost=lambda call: 0.0,
    lanewise=False,
    accuracy="exact; other dtypes are rounded once through float32",
    rules=(
        Rule("R1", "dst and src in SBUF or HBM", _no_psum),
        Rule("R2", "equal element counts", _counts),
        alias("R3", "descriptor rules DGE.R1 to DGE.R8"),
        Rule("R4", "packed, scale and 64-bit dtypes: equal on both sides", _packed_same),
        Rule("R5", "one indirect side, index (P, 1) of int32 or uint32", _one_vector),
        semantic("R6", "oob_mode.skip with static operands has no effect"),
        *_DGE_RULES,
        Rule("DGE.R3", "hwdge: equal dtypes", _hwdge_same_dtype),
        Rule("DGE.R4", "engine= only with hwdge: scalar or sync", _engine_with_hwdge),
        semantic("DGE.R5", "scalar_offset with dge_mode.none is accepted"),
    ),
    legacy=("mask", "dtype"),
)
def dma_copy(
    dst: Tile,
    src: Tile,
    priority: int | None = None,
    oob_mode: Oob = Oob.error,
    dge_mode: Dge = Dge.unknown,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> None:
    """Copy `src` to `dst`, element by element in row-major order of their shapes, which may differ.

    Both are in SBUF or HBM. Equal dtypes move bits; otherwise each value passes through float32 and is rounded once.
    A `vector_offset` on one side
    gathers or scatters rows; an index out of range raises, or with `oob_mode.skip` leaves its row untouched. Overlap:
    everything is read first.
    Source: isa.md 10.1.
    """
    same = dst.dtype == src.dtype
    if isinstance(src, RowsTile) or isinstance(dst, RowsTile):
        indirect: Any = src if isinstance(src, RowsTile) else dst
        rows = indirect.valid
        count = len(rows)
        values = src.bits().reshape(count, -1) if same else src.f32().reshape(count, -1)
        dst.store_rows(values, rows, same)
    elif same:
        dst.store_bits(src.bits().reshape(dst.P, dst.F))
    else:
        dst.store(src.f32().reshape(dst.P, dst.F))


def _axes(call: Call) -> tuple[int, ...]:
    return tuple(call.axes) if call.axes is not None else DEFAULT_AXES.get(len(call.src.shape), ())


def _rank(call: Call) -> Finding | None:
    rank = len(call.src.shape)
    if rank not in DEFAULT_AXES:
        return Finding(f"src has rank {rank}; a transpose takes rank 2, 3 or 4", "src")
    if call.axes is not None and tuple(call.axes) != DEFAULT_AXES[rank]:
        return Finding(f"axes {tuple(call.axes)} for rank {rank}; only {DEFAULT_AXES[rank]} exists", "axes")
    return None


def _transposed_shape(call: Call) -> Finding | None:
    if len(call.src.shape) not in DEFAULT_AXES or sorted(_axes(call)) != list(range(len(call.src.shape))):
        return None
    expected = tuple(call.src.shape[a] for a in _axes(call))
    if tuple(call.dst.shape) != expected:
        return Finding(f"dst is {call.dst.shape}; the transpose of src {call.src.shape} is {expected}", "dst")
    return None


def _transpose_buffers(call: Call) -> Finding | None:
    if call.buffer("dst") != "sbuf":
        return Finding(f"dst is in {call.buffer('dst')}; a DMA transpose writes SBUF", "dst")
    if call.buffer("src") == "psum":
        return Finding("src is in PSUM, which DMA cannot reach", "src", TWO_STEP)
    return None


def _transpose_dtype(call: Call) -> Finding | None:
    if call.dtype("src") != call.dtype("dst"):
        return Finding(f"dst is {call.dtype('dst')}, src {call.dtype('src')}; a transpose keeps the dtype", "dst")
    if call.fmt("src").itemsize not in (2, 4):
        return Finding(f"src is {call.dtype('src')}; a DMA transpose moves 2- and 4-byte elements", "src")
    return None


def _transpose_mode(call: Call) -> Finding | None:
    if not _vector_operands(call) and call.dge_mode is Dge.swdge:
        return Finding("dge_mode.swdge without a vector_offset; a direct transpose takes unknown or hwdge", "dge_mode")
    return None


def _hwdge_shape(call: Call) -> Finding | None:
    if call.dge_mode is not Dge.hwdge:
        return None
    shape = call.src.shape
    if len(shape) == 2 and shape[0] != 16:
        return Finding(f"src has {shape[0]} rows; a 2-D hwdge transpose takes 16", "src")
    if len(shape) > 2 and (shape[0] not in (1, 2, 4, 8, 16) or shape[0] * shape[-2] % 16):
        return Finding(
            f"src is {shape}; hwdge needs shape[0] in 1, 2, 4, 8, 16 and shape[0] * shape[-2] a multiple of 16", "src"
        )
    return None


def _hwdge_inner(call: Call) -> Finding | None:
    if call.dge_mode is Dge.hwdge and (call.src.shape[-1] > 128 or call.fmt("src").itemsize != 2):
        return Finding(
            f"src is {call.dtype('src')} with last dim {call.src.shape[-1]}; "
            "hwdge transposes 2-byte elements, last dim at most 128",
            "src",
        )
    return None


def _indirect_transpose(call: Call) -> Finding | None:
    if "dst" in _vector_operands(call):
        return Finding("dst has a vector_offset; only src can be indirect", "dst")
    if "src" not in _vector_operands(call):
        return None
    src = call.src
    if call.fmt("src").itemsize != 2 or src.shape[-1] > 128 or src.shape[0] % 16:
        return Finding(
            f"src is {call.dtype('src')}{list(src.shape)}; an indirect transpose "
            "takes 2-byte elements, last dim at most 128, rows a multiple of 16",
            "src",
        )
    if len(src.shape) == 4 and 1 not in src.shape[1:3]:
        return Finding(f"src is {src.shape}; an indirect 4-D transpose needs shape[1] or shape[2] equal to 1", "src")
    return None


def _transpose_index(call: Call) -> Finding | None:
    if "src" not in _vector_operands(call):
        return None
    index = call.src.dynamic.source
    rows, columns = index.P, index.F
    if index.dtype != "uint32" or len(index.shape) != 2:
        return Finding(f"the index tile is {index.dtype}{list(index.shape)}; it must be 2-D uint32", "src")
    if not 16 <= rows <= 128 or rows % 16 or (columns > 1 and rows != 128) or rows * columns < call.src.shape[0]:
        return Finding(
            f"the index tile is {index.shape} for {call.src.shape[0]} rows; it needs 16..128 partitions in steps of 16 "
            "(128 when it has several columns) and at least one entry per row",
            "src",
        )
    return None


def _transpose_skip(call: Call) -> Finding | None:
    if call.oob_mode is Oob.skip and call.src.dynamic is None:
        return Finding(
            "oob_mode.skip without a dynamic src", "oob_mode", "drop it: static accesses are checked while tracing"
        )
    return None


def _transpose_alignment(call: Call) -> Finding | None:
    if call.dge_mode is Dge.hwdge and call.buffer("dst") == "sbuf" and call.dst.byte_offset % 32:
        return Finding(f"dst starts at byte {call.dst.byte_offset}; hwdge transposes want a multiple of 32", "dst")
    return None


@instruction(
    operands=dict(dst=Out(), src=In()),
    params=dict(axes=_OPTIONAL_AXES, priority=PRIORITY, dge_mode=DGE, oob_mode=OOB),
    engines=("dma",),
    cost=lambda call: 0.0,
    lanewise=False,
    accuracy="exact",
    rules=(
        Rule("R1", "rank 2, 3 or 4; axes (1,0), (2,1,0), (3,1,2,0)", _rank),
        Rule("R2", "dst has the transposed shape", _transposed_shape),
        Rule("R3", "dst in SBUF, src in SBUF or HBM", _transpose_buffers),
        Rule("R4", "equal dtypes of 2 or 4 bytes", _transpose_dtype),
        Rule("R5", "direct: mode unknown, hwdge or none", _transpose_mode),
        Rule("R6", "hwdge: shape", _hwdge_shape),
        Rule("R7", "hwdge: last dim at most 128, 2-byte dtype", _hwdge_inner),
        alias("R8", "indirect: mode unknown or swdge (DGE.R2)"),
        Rule("R9", "indirect: 2-byte dtype, last dim at most 128, rows a multiple of 16", _indirect_transpose),
        Rule("R10", "indirect: index tile", _transpose_index),
        Rule("R11", "oob_mode.skip only with a dynamic src", _transpose_skip),
        alias("R12", "priority as DGE.R6"),
        Rule("R13", "hwdge: dst byte address a multiple of 32", _transpose_alignment, warn=True),
        *_DGE_RULES,
    ),
)
def dma_transpose(
    dst: Tile,
    src: Tile,
    axes: tuple[int, ...] | None = None,
    priority: int | None = None,
    dge_mode: Dge = Dge.unknown,
    oob_mode: Oob = Oob.error,
    name: str | None = None,
) -> None:
    """`dst = transpose(src, axes)`, bit for bit; rank 2, 3 or 4, `dst` in SBUF.

    With a `vector_offset` on `src` its rows are gathered first, the index tile read column by column; with
    `oob_mode.skip` columns of rows out of range
    keep their content. Source: isa.md 10.2.
    """
    order = axes or DEFAULT_AXES[len(src.shape)]
    values = np.transpose(src.bits().reshape(src.shape), order)
    if isinstance(src, RowsTile) and not src.valid.all():
        keep = dst.bits().reshape(dst.shape)
        values = np.where(src.valid, values, keep)
    dst.store_bits(values.reshape(dst.P, math.prod(dst.shape[1:])))
