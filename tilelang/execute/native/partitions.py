"""Native bodies of instructions that move or combine whole partitions."""

from __future__ import annotations

from tilelang.execute import layout
from tilelang.execute.native.plain import add_plain
from tilelang.execute.native.template import Lowering, native
from tilelang.ir.overlap import DISJOINT, SAME, relation

__all__: list[str] = []


@native("nc_stream_shuffle")
def _shuffle(lowering: Lowering) -> None:
    dst, src, size = lowering.tensor("dst"), lowering.tensor("src"), lowering.fmt("dst").itemsize
    shared = relation(dst, src)
    columns = layout.SCRATCH_BYTES // (size * dst.P) if shared != DISJOINT else dst.F
    if columns < dst.F and shared not in (DISJOINT, SAME):
        raise ValueError("dst overlaps src, and a row is longer than the engine holds")
    params = [dst.F, min(columns, dst.F), int(shared != DISJOINT), *lowering.call.shuffle_mask]
    cross = ("src",) if shared == DISJOINT else ("src", "dst")
    add_plain(lowering, f"shuffle.{lowering.fmt('dst').carrier.name}", params, ("dst", "src"), cross=cross)


@native("tensor_partition_reduce")
def _partition_reduce(lowering: Lowering) -> None:
    call, data = lowering.call, lowering.tensor("data")
    given, wanted = lowering.fmt("data").name, lowering.fmt("dst").name
    params = [data.F, data.P, 0]
    if call.op.startswith("bitwise") or (call.op != "average" and given == wanted == "int32"):
        name = f"partition_combine.{call.op}.{given}"
    else:
        name = f"partition_reduce.{'add' if call.op == 'average' else call.op}.{given}.{wanted}"
        params[2] = layout.float_bits(float(data.P)) if call.op == "average" else 0
    add_plain(lowering, name, params, ("dst", "data"), cross=("data",))
