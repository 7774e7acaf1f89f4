"""What part of a storage a view touches, as a box: rows x byte columns.

On chip rows are partitions and columns bytes within a partition. In HBM the storage is read as a matrix whose row is
its last dim, so that
tiles of a matrix are boxes too.
"""

from __future__ import annotations

from typing import NamedTuple

from tilelang.ir.overlap import is_injective
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

__all__ = ["Box", "Coverage", "box_of", "subtract", "whole"]


class Box(NamedTuple):
    """Rows [r0, r1) and bytes [c0, c1) of each. `exact`: the view touches every byte of it."""

    r0: int
    r1: int
    c0: int
    c1: int
    exact: bool

    def overlaps(self, other: Box) -> bool:
        """True when the boxes share a byte."""
        return self.r0 < other.r1 and other.r0 < self.r1 and self.c0 < other.c1 and other.c0 < self.c1

    def contains(self, other: Box) -> bool:
        """True when `other` lies inside."""
        return self.r0 <= other.r0 and other.r1 <= self.r1 and self.c0 <= other.c0 and other.c1 <= self.c1


def whole(storage: Storage) -> Box:
    """The box of all of `storage`."""
    if storage.on_chip:
        return Box(0, storage.partitions, 0, storage.row_bytes, True)
    width = storage.shape[-1] * storage.fmt.itemsize
    return Box(0, storage.row_bytes // width, 0, width, True)


def box_of(tensor: NkiTensor) -> Box:
    """The box `tensor` touches; with a dynamic index, everything it may touch (never exact)."""
    storage = tensor.storage
    size = tensor.itemsize
    if storage.on_chip:
        start = tensor.offset * size // storage.row_bytes
        rows = 1 + (tensor.shape[0] - 1) * tensor.partition_step
        low, high = tensor.byte_span()
        shape, strides = tensor.shape, tensor.strides
        if len(shape) == 2:
            dense = strides[1] == 1 or shape[1] == 1
        else:
            dense = tensor.F * size == high - low and is_injective(shape[1:], strides[1:])
        exact = dense and rows == shape[0] and tensor.dynamic is None
        return Box(start, start + rows, low, high, exact)
    return _hbm_box(tensor, size)


def _hbm_box(tensor: NkiTensor, size: int) -> Box:
    storage = tensor.storage
    width = storage.shape[-1] * storage.fmt.itemsize
    if tensor.dynamic is not None:
        return whole(storage)._replace(exact=False)
    start = tensor.offset * size
    row, column = start // width, start % width
    row_reach = column_reach = 0
    row_low = 0
    for count, stride in zip(tensor.shape, tensor.strides, strict=True):
        if count == 1:
            continue
        nbytes = stride * size
        if nbytes and nbytes % width == 0:
            steps = nbytes // width * (count - 1)
            row_reach, row_low = (row_reach + steps, row_low) if steps > 0 else (row_reach, row_low + steps)
        elif nbytes > 0 and nbytes * (count - 1) + column + column_reach + size <= width:
            column_reach += nbytes * (count - 1)
        else:
            # A dim that crosses matrix rows: fall back to the rows its bytes span.
            low, high = tensor.byte_span()
            first, last = low // width, (high - 1) // width
            linear = tensor.is_contiguous()
            if linear and low % width == 0 and high % width == 0:
                return Box(first, last + 1, 0, width, True)
            return Box(first, last + 1, 0, width, False)
    box = Box(row + row_low, row + row_reach + 1, column, column + column_reach + size, False)
    dense = is_injective(tensor.shape, tensor.strides)
    return box._replace(exact=dense and (box.r1 - box.r0) * (box.c1 - box.c0) == tensor.size * size)


class Coverage:
    """Which bytes of one storage have been written: `written` for sure, `touched` perhaps."""

    __slots__ = ("full", "touched", "written")

    def __init__(self) -> None:
        self.full: Box | None = None
        self.written: list[Box] = []
        self.touched: list[Box] = []

    def copy(self) -> Coverage:
        """An independent copy."""
        other = Coverage()
        other.full = self.full
        other.written = list(self.written)
        other.touched = list(self.touched)
        return other

    def add(self, box: Box) -> None:
        """Record a write to `box`."""
        if self.full is not None and self.full.contains(box):
            return
        if not box.exact:
            if not any(b.contains(box) for b in self.touched):
                self.touched.append(box)
            return
        if self.written:
            last = self.written[-1]
            if last.r0 == box.r0 and last.r1 == box.r1 and last.c0 <= box.c1 and box.c0 <= last.c1:
                self.written[-1] = Box(box.r0, box.r1, min(last.c0, box.c0), max(last.c1, box.c1), True)
                self._promote()
                return
            if last.c0 == box.c0 and last.c1 == box.c1 and last.r0 <= box.r1 and box.r0 <= last.r1:
                self.written[-1] = Box(min(last.r0, box.r0), max(last.r1, box.r1), box.c0, box.c1, True)
                self._promote()
                return
        self.written.append(box)
        self._promote()

    def _promote(self) -> None:
        if len(self.written) == 1:
            self.full = self.written[0]

    def covers(self, box: Box) -> bool:
        """True when every byte of `box` has been written for sure."""
        if self.full is not None and self.full.contains(box):
            return True
        if any(b.contains(box) for b in reversed(self.written)):
            return True
        return not subtract(box, [b for b in self.written if b.overlaps(box)])

    def untouched(self, box: Box) -> bool:
        """True when no byte of `box` can have been written."""
        return not any(b.overlaps(box) for b in self.written) and not any(b.overlaps(box) for b in self.touched)


def subtract(box: Box, covers: list[Box]) -> list[Box]:
    """The parts of `box` outside all `covers`, apart from one another."""
    left = [box]
    for cover in covers:
        rest: list[Box] = []
        for piece in left:
            if not piece.overlaps(cover):
                rest.append(piece)
                continue
            r0, r1 = max(piece.r0, cover.r0), min(piece.r1, cover.r1)
            if piece.r0 < r0:
                rest.append(piece._replace(r1=r0))
            if r1 < piece.r1:
                rest.append(piece._replace(r0=r1))
            if piece.c0 < cover.c0:
                rest.append(Box(r0, r1, piece.c0, cover.c0, True))
            if cover.c1 < piece.c1:
                rest.append(Box(r0, r1, cover.c1, piece.c1, True))
        left = rest
        if not left:
            break
    return left
