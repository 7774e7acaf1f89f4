"""Native bodies of the gpsimd selections."""

from __future__ import annotations

from tilelang.execute.native.plain import add_plain
from tilelang.execute.native.template import Lowering, native
from tilelang.ir.overlap import DISJOINT, relation

__all__: list[str] = []


def _apart(lowering: Lowering, *names: str) -> None:
    tensors = [lowering.tensor(name) for name in names]
    if any(relation(a, b) != DISJOINT for i, a in enumerate(tensors) for b in tensors[:i]):
        raise ValueError(f"{', '.join(names)} share memory")


@native("sequence_bounds")
def _sequence_bounds(lowering: Lowering) -> None:
    _apart(lowering, "dst", "segment_ids")
    name = f"bounds.{lowering.fmt('segment_ids').name}.{lowering.fmt('dst').name}"
    ids = lowering.tensor("segment_ids").F
    add_plain(lowering, name, [ids], ("dst", "segment_ids"), cross=("segment_ids",), fallible=True)


@native("nonzero_with_count")
def _nonzero(lowering: Lowering) -> None:
    call = lowering.call
    params = [lowering.tensor("src").F, call.index_offset, call.padding_val]
    add_plain(lowering, f"nonzero.{lowering.fmt('src').name}", params, ("dst", "src"))


@native("topk")
def _topk(lowering: Lowering) -> None:
    _apart(lowering, "val_dst", "idx_dst")
    params = [lowering.tensor("val_dst").F, lowering.call.n, int(lowering.call.sorted)]
    operands = ("val_dst", "idx_dst", "src")
    add_plain(lowering, "topk", params, operands, like="val_dst", cross=operands)
