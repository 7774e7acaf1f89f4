"""Where the threads of a run must meet.

A thread owns fixed partitions and works on the rows it owns, so most records need no synchronisation. A barrier is
needed before a record that touches bytes which another
thread may have written, or that writes bytes another thread may have read, since the last barrier. On-chip bytes are
tracked in granules (one bit each), HBM as boxes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilelang.analysis.regions import Box

__all__ = ["Access", "SyncState", "granules"]

GRANULE = 256  # bytes of a partition per bit


def granules(start: int, end: int, base: int) -> int:
    """Bit mask of the granules of bytes [start, end), shifted to bit `base`."""
    first, last = start // GRANULE, (end + GRANULE - 1) // GRANULE
    return ((1 << (last - first)) - 1) << (first + base)


@dataclass(slots=True)
class Access:
    """What one record touches: masks of on-chip granules by kind (aligned = rows the thread owns, cross = any), and
    HBM boxes by storage index.
    """

    read_aligned: int = 0
    read_cross: int = 0
    write_aligned: int = 0
    write_cross: int = 0
    hbm_reads: list[tuple[int, Box]] = field(default_factory=list)
    hbm_writes: list[tuple[int, Box]] = field(default_factory=list)


class SyncState:
    """What happened since the last barrier."""

    __slots__ = ("hbm_reads", "hbm_writes", "read_aligned", "read_cross", "write_aligned", "write_cross")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: a barrier was passed."""
        self.read_aligned = self.read_cross = self.write_aligned = self.write_cross = 0
        self.hbm_reads: dict[int, list[Box]] = {}
        self.hbm_writes: dict[int, list[Box]] = {}

    def step(self, access: Access) -> bool:
        """Take `access` into account; True when a barrier is needed before it."""
        needed = self._conflicts(access)
        if needed:
            self.clear()
        self.read_aligned |= access.read_aligned
        self.read_cross |= access.read_cross
        self.write_aligned |= access.write_aligned
        self.write_cross |= access.write_cross
        for index, box in access.hbm_reads:
            _note(self.hbm_reads, index, box)
        for index, box in access.hbm_writes:
            _note(self.hbm_writes, index, box)
        return needed

    def _conflicts(self, access: Access) -> bool:
        written = self.write_aligned | self.write_cross
        if access.read_aligned & self.write_cross or access.read_cross & written:
            return True
        if access.write_aligned & (self.read_cross | self.write_cross):
            return True
        if access.write_cross & (written | self.read_aligned | self.read_cross):
            return True
        if access.hbm_reads and _hits(self.hbm_writes, access.hbm_reads):
            return True
        return bool(access.hbm_writes) and (
            _hits(self.hbm_writes, access.hbm_writes) or _hits(self.hbm_reads, access.hbm_writes)
        )

    def merge(self, other: SyncState) -> None:
        """Join with the state of another path to the same point."""
        self.read_aligned |= other.read_aligned
        self.read_cross |= other.read_cross
        self.write_aligned |= other.write_aligned
        self.write_cross |= other.write_cross
        for mine, theirs in ((self.hbm_reads, other.hbm_reads), (self.hbm_writes, other.hbm_writes)):
            for index, boxes in theirs.items():
                for box in boxes:
                    _note(mine, index, box)

    def copy(self) -> SyncState:
        """An independent copy."""
        other = SyncState()
        other.merge(self)
        return other


_MANY = 32


def _note(pending: dict[int, list[Box]], index: int, box: Box) -> None:
    boxes = pending.setdefault(index, [])
    if len(boxes) < _MANY:
        boxes.append(box)
        return
    first = boxes[0]
    boxes[0] = Box(min(first.r0, box.r0), max(first.r1, box.r1), min(first.c0, box.c0), max(first.c1, box.c1), False)


def _hits(pending: dict[int, list[Box]], accesses: Iterable[tuple[int, Box]]) -> bool:
    return any(box.overlaps(other) for index, box in accesses for other in pending.get(index, ()))
