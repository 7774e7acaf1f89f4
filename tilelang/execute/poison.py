"""Poison: what fresh memory holds, so that reading it shows: NaN in floats, 4 in integers, 1 in bools."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilelang.analysis.regions import Box
from tilelang.dtypes import Format
from tilelang.execute import dma_layout
from tilelang.execute.native.template import PSUM_PITCH, SBUF_PITCH, Record, physical
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.numerics import casts

__all__ = ["poison_bits", "poison_records"]


def poison_bits(fmt: Format) -> int:
    """The bit pattern of one poisoned element of `fmt`."""
    if fmt.kind == "float":
        return int(casts.encode(np.array([np.nan], np.float32), fmt.name)[0])
    if fmt.kind == "packed":
        return (1 << (8 * fmt.itemsize)) - 1
    return 1 if fmt.kind == "bool" else 255 if fmt.kind == "scale" else 4


def poison_records(storage: Storage, precision: str, boxes: list[Box] | None) -> Iterator[tuple[Record, int, int]]:
    """Records that poison all of `storage`, or the parts `boxes` of it: (record, row, byte) with operand 0 at that
    place.
    """
    tensor = NkiTensor.over(storage)
    fmt = physical(tensor, precision)
    bits = poison_bits(fmt)
    if not storage.on_chip:
        yield _fill(dma_layout.Region(fmt.name, (storage.row_elements,), (fmt.itemsize,)), bits), 0, 0
        return
    pitch = SBUF_PITCH if storage.buffer.value == "sbuf" else PSUM_PITCH
    size = fmt.itemsize
    for box in [Box(0, storage.partitions, 0, storage.row_elements * size, True)] if boxes is None else boxes:
        # Another tile may own bytes of an element: those of this one are filled with their bytes of the pattern.
        low, high = -(-box.c0 // size) * size, box.c1 // size * size
        if low > high:
            low = high = box.c1
        rows, start = box.r1 - box.r0, tensor.start_partition + box.r0
        if low < high:
            columns = (rows, (high - low) // size)
            yield _fill(dma_layout.Region(fmt.name, columns, (pitch, size), start), bits), box.r0, low
        for byte in (*range(box.c0, low), *range(high, box.c1)):
            one = dma_layout.Region("uint8", (rows, 1), (pitch, 1), start)
            yield _fill(one, bits >> 8 * (byte % size) & 0xFF), box.r0, byte


def _fill(region: dma_layout.Region, bits: int) -> Record:
    record = dma_layout.fill(region, bits)
    words = np.array(record.words, np.int64)
    return Record(words, [(record.operands[0][0], 0)], list(record.engines), [], [0])
