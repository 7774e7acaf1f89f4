"""Native body of dma_compute: one record of the engine function `dma_add`."""

from __future__ import annotations

from math import gcd, prod

from tilelang.errors import TileUnsupportedError
from tilelang.execute import layout
from tilelang.execute.dma_layout import Region, is_injective, merged
from tilelang.execute.native.template import Lowering, native, physical
from tilelang.ir.overlap import OVERLAP, relation
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.dma_compute import indirect_operand, same_view
from tilelang.isa.enums import oob_mode

__all__: list[str] = []

_MOST_DIMS = 6


def _dims(region: Region, rows: bool) -> list[tuple[int, int]]:
    """(count, stride) of the merged dims of `region`, without dim 0 if that counts the rows."""
    start = 1 if rows else 0
    shape, strides = merged(region.shape[start:], region.strides[start:])
    return list(zip(shape, strides, strict=True)) or [(1, region.itemsize)]


def _is_picked(tensor: NkiTensor) -> bool:
    return tensor.dynamic is not None and tensor.dynamic.kind == "vector"


@native("dma_compute")
def _dma_compute(lowering: Lowering) -> None:
    call = lowering.call
    tensors = [call.dst, *call.srcs]
    first = lowering.slot("srcs")
    slots = [lowering.slot("dst"), *range(first, first + len(call.srcs))]
    if any(relation(call.dst, source) == OVERLAP and not same_view(call.dst, source) for source in call.srcs):
        raise TileUnsupportedError(
            "dma_compute: dst shares part of its memory with a source, which the engines add up piece by piece",
            hint='add into a tensor of its own, or run it with mode="reference"',
        )
    indirect = indirect_operand(call)
    rows = indirect[1].shape[0] if indirect else 0
    if indirect and any(tensor.shape[0] != rows for tensor in tensors):
        raise TileUnsupportedError(f"dma_compute: every operand of an indirect sum needs {rows} rows as its dim 0")
    regions = [lowering.region_of(tensor) for tensor in tensors]
    dims = [_dims(region, rows > 0) for region in regions]
    run = gcd(*(d[-1][0] for d in dims))
    head = [0] * layout.PLAIN_PARAMS
    dynamic = indirect[1].dynamic if indirect else None
    picked = [0, 0, 0]
    if indirect is not None and dynamic is not None:
        size = physical(indirect[1], lowering.precision).itemsize
        stride = dynamic.byte_multiplier * (size // indirect[1].itemsize)
        picked = [stride, indirect[1].dynamic_range()[1], int(call.oob_mode is oob_mode.skip)]
    words = [*head, prod(call.dst.shape[1 if rows else 0 :]), run, len(call.srcs), rows, *picked]
    addresses, functions = [], [(layout.H_FN, "dma_add")]
    for number, (tensor, region) in enumerate(zip(tensors, regions, strict=True)):
        if region.format != "float32":
            functions.append((len(words), f"row_{'decode' if number else 'encode'}.{region.format}"))
        addresses.append((len(words) + 3, slots[number]))
        (count, stride), outer = dims[number][-1], dims[number][:-1]
        around = [*outer, (count // run, stride * run)]
        if len(around) > _MOST_DIMS:
            raise TileUnsupportedError(f"dma_compute: {tensor.describe()} has more than {_MOST_DIMS} strided dims")
        around = [(1, 0)] * (_MOST_DIMS - len(around)) + around
        words += [0, region.itemsize, int(_is_picked(tensor)), 0, region.strides[0] if rows else 0, stride]
        words += [n for n, _ in around] + [s for _, s in around]
    indices = []
    if indirect is not None and dynamic is not None:
        index = lowering.region_of(dynamic.source)
        indices.append((len(words), slots[next(k for k, t in enumerate(tensors) if t is indirect[1])]))
        free = list(zip(index.shape[1:], index.strides[1:], strict=True))
        words += layout.operand(0, index.itemsize, index.strides[0], free)
    words[layout.H_LENGTH] = len(words)
    lowering.add(
        words,
        addresses,
        functions,
        cross=frozenset(slots),
        indices=indices,
        serial=not is_injective(regions[0]),
        fallible=bool(indices),
    )
