"""Tiles with an explicit `address=`: which of them share memory, and who poisons a byte they share.

On the device an allocation writes nothing, so an alias must find what the other tile holds. A byte of an explicit
placement is therefore poisoned once, where the first tile that covers it is allocated, and by no later one.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilelang.analysis.regions import Box, subtract
from tilelang.errors import TileUnsupportedError
from tilelang.ir.storage import Storage

__all__ = ["Claims", "placed_box", "share_memory"]


def placed_box(storage: Storage) -> Box:
    """Physical partitions and bytes of a storage with an explicit address."""
    assert storage.address is not None
    partition, byte = storage.address
    return Box(partition, partition + storage.partitions, byte, byte + storage.row_bytes, True)


def share_memory(storages: Iterable[Storage]) -> set[int]:
    """Indices of the storages with an explicit address that share a byte with another one."""
    claims, found = Claims(), set()
    for storage in storages:
        if storage.address is not None:
            others = claims.overlapping(storage)
            found |= {other.index for other in others}
            if others:
                found.add(storage.index)
            claims.add(storage)
    return found


class Claims:
    """The storages with an explicit address allocated so far, in program order."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []

    def overlapping(self, storage: Storage) -> list[Storage]:
        """Those that share a byte with `storage`."""
        box = placed_box(storage)
        return [s for s in self.storages if s.buffer is storage.buffer and placed_box(s).overlaps(box)]

    def add(self, storage: Storage) -> None:
        """Take `storage` into account."""
        self.storages.append(storage)

    def claim(self, storage: Storage, precision: str) -> list[Box]:
        """The parts of `storage` that no earlier one covers, relative to it: what its allocation poisons.

        Raises TileUnsupportedError for shared memory under precision "high", which stores tiles apart (ruling 9).
        """
        others = self.overlapping(storage)
        if others and precision == "high":
            raise TileUnsupportedError(
                f'{storage.describe()} shares memory with {others[0].describe()}; precision="high" stores tiles apart',
                hint='run with precision="exact", or give the tiles addresses of their own',
            ).at(storage.site)
        self.add(storage)
        whole = placed_box(storage)
        left = subtract(whole, [placed_box(other) for other in others])
        return [
            Box(b.r0 - whole.r0, b.r1 - whole.r0, b.c0 - whole.c0, b.c1 - whole.c0, True) for b in left
        ]
