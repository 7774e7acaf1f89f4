"""Native bodies of the DMA instructions."""

from __future__ import annotations

from tilelang.errors import TileUnsupportedError
from tilelang.execute import dma_layout
from tilelang.execute.dma_layout import BY_DST, BY_SRC, SERIAL, DmaRecord
from tilelang.execute.native.template import Lowering, native
from tilelang.ir.overlap import DISJOINT, OVERLAP, relation
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.dma import DEFAULT_AXES
from tilelang.isa.enums import oob_mode

__all__ = ["add_dma"]


def add_dma(lowering: Lowering, record: DmaRecord, dst: str = "dst", src: str = "src") -> None:
    """Add a DMA record: which operand rows its threads own follows from the mode."""
    slots = {"dst": lowering.slot(dst), "src": lowering.slot(src)}
    addresses = [(word, slots[name]) for word, name in record.operands if name in slots]
    indices = [(word, slots["src"]) for word, name in record.operands if name == "index"]
    dst_tensor, src_tensor = lowering.tensor(dst), lowering.tensor(src)
    cross = set(slots.values())
    if record.mode == BY_DST:
        cross.discard(slots["dst"])
        same_rows = (
            src_tensor.on_chip
            and src_tensor.P == dst_tensor.P
            and src_tensor.start_partition == dst_tensor.start_partition
        )
        if (
            same_rows
            and record.engines[0][1] == "dma.copy"
            and src_tensor.partition_step == dst_tensor.partition_step == 1
        ):
            straight = (
                record.words[dma_layout.SRC + 3 : dma_layout.SRC + 9] is not None and src_tensor.F == dst_tensor.F
            )
            if straight and lowering.call.spec.name == "dma_copy":
                cross.discard(slots["src"])
    elif record.mode == BY_SRC:
        cross.discard(slots["src"])
    lowering.add(
        record.words,
        addresses,
        record.engines,
        cross=frozenset(cross),
        indices=indices,
        serial=record.mode == SERIAL,
        start=(dst_tensor if dst_tensor.on_chip else src_tensor).start_partition,
        fallible=bool(indices),
    )


def _no_overlap(lowering: Lowering, index: NkiTensor) -> None:
    """Rows move one after the other, so what they read must not change on the way."""
    dst, src = lowering.tensor("dst"), lowering.tensor("src")
    for what, tensor in (("src", src), ("its index", index)):
        if relation(dst, tensor) != DISJOINT:
            raise TileUnsupportedError(
                f"{lowering.call.spec.name}: dst shares memory with {what}, which an indirect DMA cannot keep apart",
                hint='gather into a tensor of its own, or run it with mode="reference"',
            )


@native("dma_copy")
def _dma_copy(lowering: Lowering) -> None:
    call = lowering.call
    dst, src = lowering.tensor("dst"), lowering.tensor("src")
    for name, tensor in (("dst", dst), ("src", src)):
        dynamic = tensor.dynamic
        if dynamic is None or dynamic.kind != "vector":
            continue
        _no_overlap(lowering, dynamic.source)
        index = lowering.region_of(dynamic.source)
        build = dma_layout.scatter if name == "dst" else dma_layout.gather
        factor = lowering.fmt(name).itemsize // tensor.itemsize
        record = build(
            lowering.region("dst"),
            lowering.region("src"),
            index,
            dynamic.byte_multiplier * factor,
            tensor.dynamic_range()[1],
            call.oob_mode is oob_mode.skip,
        )
        add_dma(lowering, record)
        lowering.records[-1].indices = [(word, lowering.slot(name)) for word, _ in lowering.records[-1].indices]
        return
    add_dma(
        lowering, dma_layout.copy(lowering.region("dst"), lowering.region("src"), overlap=relation(dst, src) == OVERLAP)
    )


@native("dma_transpose")
def _dma_transpose(lowering: Lowering) -> None:
    call = lowering.call
    src = lowering.tensor("src")
    axes = call.axes or DEFAULT_AXES[len(src.shape)]
    if src.dynamic is not None and src.dynamic.kind == "vector":
        dynamic = src.dynamic
        _no_overlap(lowering, dynamic.source)
        factor = lowering.fmt("src").itemsize // src.itemsize
        record = dma_layout.gather_transposed(
            lowering.region("dst"),
            lowering.region("src"),
            lowering.region_of(dynamic.source),
            axes,
            dynamic.byte_multiplier * factor,
            src.dynamic_range()[1],
            call.oob_mode is oob_mode.skip,
        )
    else:
        overlap = relation(lowering.tensor("dst"), src) != DISJOINT
        record = dma_layout.transpose(lowering.region("dst"), lowering.region("src"), axes, overlap=overlap)
    add_dma(lowering, record)
