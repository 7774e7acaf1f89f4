"""Poison: what fresh memory holds, so that reading it shows: NaN in floats, 4 in integers, 1 in bools."""

from __future__ import annotations

import numpy as np

from tilelang.dtypes import Format
from tilelang.execute import dma_layout
from tilelang.execute.native.template import PSUM_PITCH, SBUF_PITCH, Record, physical
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.numerics import casts

__all__ = ["poison_bits", "poison_record"]


def poison_bits(fmt: Format) -> int:
    """The bit pattern of one poisoned element of `fmt`."""
    if fmt.kind == "float":
        return int(casts.encode(np.array([np.nan], np.float32), fmt.name)[0])
    if fmt.kind == "packed":
        return (1 << (8 * fmt.itemsize)) - 1
    return 1 if fmt.kind == "bool" else 255 if fmt.kind == "scale" else 4


def poison_record(storage: Storage, precision: str) -> Record:
    """A record that poisons all of `storage` (operand 0)."""
    tensor = NkiTensor.over(storage)
    fmt = physical(tensor, precision)
    if storage.on_chip:
        pitch = SBUF_PITCH if storage.buffer.value == "sbuf" else PSUM_PITCH
        shape: tuple[int, ...] = (storage.partitions, storage.row_elements)
        region = dma_layout.Region(fmt.name, shape, (pitch, fmt.itemsize), tensor.start_partition)
    else:
        region = dma_layout.Region(fmt.name, (storage.row_elements,), (fmt.itemsize,))
    record = dma_layout.fill(region, poison_bits(fmt))
    words = np.array(record.words, np.int64)
    return Record(words, [(record.operands[0][0], 0)], list(record.engines), [], [0])
