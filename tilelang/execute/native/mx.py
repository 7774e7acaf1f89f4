"""Native body of quantize_mx; nc_matmul_mx is a matmul (native/tensor.py)."""

from __future__ import annotations

from tilelang.errors import TileUnsupportedError
from tilelang.execute.native.plain import add_plain
from tilelang.execute.native.template import Lowering, native
from tilelang.ir.overlap import DISJOINT, relation

__all__: list[str] = []


@native("quantize_mx")
def _quantize_mx(lowering: Lowering) -> None:
    names = ("dst", "src", "dst_scale")
    tensors = [lowering.tensor(name) for name in names]
    if any(relation(a, b) != DISJOINT for i, a in enumerate(tensors) for b in tensors[:i]):
        raise TileUnsupportedError(
            "quantize_mx: dst, src and dst_scale share memory, which the engine cannot keep apart",
            hint='quantise into tiles of their own, or run it with mode="reference"',
        )
    name = f"quantize_mx.{lowering.fmt('src').name}.{lowering.call.dtype('dst')}"
    add_plain(lowering, name, [lowering.call.F("dst")], names, cross=("src", "dst_scale"))
