"""Native bodies of the tensor engine's instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.analysis.initialised import BITMAP
from tilelang.errors import TileUnsupportedError
from tilelang.execute import dma_layout, layout, tensor_layout
from tilelang.execute.native.dma import add_dma
from tilelang.execute.native.template import Lowering, native
from tilelang.ir.overlap import DISJOINT, is_injective, relation
from tilelang.isa.matmul import is_double_row

__all__: list[str] = []


@native("nc_matmul")
def _nc_matmul(lowering: Lowering) -> None:
    call = lowering.call
    if call.is_transpose and call.generation >= 3:
        _one_hot(lowering)
    else:
        _matmul(lowering, double_row=is_double_row(call))


@native("nc_matmul_mx")
def _nc_matmul_mx(lowering: Lowering) -> None:
    _matmul(lowering, scales=(lowering.operand("stationary_scale"), lowering.operand("moving_scale")))


def _matmul(lowering: Lowering, **options: Any) -> None:
    dst = lowering.tensor("dst")
    mode = lowering.mode if lowering.mode is not None else tensor_layout.OVERWRITE
    if mode != tensor_layout.OVERWRITE and not is_injective(dst.shape[1:], dst.strides[1:]):
        raise TileUnsupportedError(
            f"{lowering.call.spec.name}: elements of dst share memory; native mode cannot accumulate into them",
            hint='pass accumulate=False, or run it with mode="reference"',
        )
    record = tensor_layout.matmul_record(
        lowering.operand("dst"),
        lowering.operand("stationary"),
        lowering.operand("moving"),
        k=lowering.call.P("stationary"),
        m=dst.P,
        n=dst.F,
        mode=mode,
        first_partition=dst.start_partition,
        written=(0, 0) if mode == BITMAP else None,
        **options,
    )
    addresses = [(word, lowering.slot(name)) for word, name in record.operands if name != "written"]
    lowering.add(
        record.words,
        addresses,
        record.engines,
        cross=frozenset(slot for word, slot in addresses if word != tensor_layout.DST),
        bitmap=(tensor_layout.WRITTEN, tensor_layout.WRITTEN_PITCH) if mode == BITMAP else None,
        start=dst.start_partition,
    )


def _one_hot(lowering: Lowering) -> None:
    """A transpose picks, for each column of moving, the row of stationary where it is not zero."""
    dst = lowering.tensor("dst")
    names = [lowering.fmt(name).name for name in ("stationary", "dst", "moving")]
    record = tensor_layout.matmul_record(
        lowering.operand("dst"),
        lowering.operand("stationary"),
        lowering.operand("moving"),
        k=lowering.call.P("moving"),
        m=dst.P,
        n=dst.F,
        mode=tensor_layout.OVERWRITE,
        first_partition=dst.start_partition,
    )
    slots = {name: lowering.slot(name) for name in ("dst", "stationary", "moving")}
    lowering.add(
        record.words,
        [(word, slots[name]) for word, name in record.operands if name in slots],
        [(layout.H_FN, "one_hot." + ".".join(names))],
        cross=frozenset((slots["stationary"], slots["moving"])),
        start=dst.start_partition,
    )


def _transpose(lowering: Lowering, source: str) -> None:
    dst, data = lowering.tensor("dst"), lowering.tensor(source)
    overlap = relation(dst, data) != DISJOINT
    record = dma_layout.pe_transpose(lowering.region("dst"), lowering.region(source), overlap=overlap)
    add_dma(lowering, record, "dst", source)


@native("nc_transpose")
def _nc_transpose(lowering: Lowering) -> None:
    call = lowering.call
    if call.engine == "tensor" and call.generation < 3:
        _through_identity(lowering)
    else:
        _transpose(lowering, "data")


def _through_identity(lowering: Lowering) -> None:
    """Generation 2 multiplies by an identity, so NaN and Inf contaminate their row (isa.md 10.7)."""
    data, dst = lowering.tensor("data"), lowering.tensor("dst")
    identity = lowering.operand("data", [(data.P, 1)])
    identity[1], identity[2] = 0, 4 * 128
    identity[4:12] = [1, 1, 1, data.P, 0, 0, 0, 4]
    record = tensor_layout.matmul_record(
        lowering.operand("dst"),
        lowering.operand("data"),
        identity,
        k=data.P,
        m=data.F,
        n=data.P,
        mode=tensor_layout.OVERWRITE,
        first_partition=dst.start_partition,
    )
    slots = {"dst": lowering.slot("dst"), "stationary": lowering.slot("data")}
    lowering.add(
        record.words,
        [(word, slots[name]) for word, name in record.operands if name in slots],
        record.engines,
        cross=frozenset((slots["stationary"],)),
        lanes=[(tensor_layout.MOVING, "identity")],
        start=dst.start_partition,
    )


IDENTITY = np.eye(128, dtype=np.float32)
