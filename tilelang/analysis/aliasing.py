"""Tiles with an explicit `address=`: which of them share memory, and who poisons a byte they share.

On the device an allocation writes nothing, so an alias must find what the other tile holds. A byte of an explicit
placement is therefore poisoned once, where the first tile that covers it is allocated, and by no later one.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilelang.analysis.regions import Box, subtract
from tilelang.errors import TileUnsupportedError
from tilelang.ir.storage import Storage

__all__ = ["EXPLICIT_BYTES", "Claims", "alias_groups", "placed_box", "share_memory"]

EXPLICIT_BYTES = 1 << 18  # bytes per partition that explicit addresses reach: the largest SBUF


def placed_box(storage: Storage) -> Box:
    """Physical partitions and bytes of a storage with an explicit address."""
    assert storage.address is not None
    partition, byte = storage.address
    return Box(partition, partition + storage.partitions, byte, byte + storage.row_bytes, True)


class Claims:
    """Which bytes the explicit storages allocated so far cover, and which storage did so first."""

    def __init__(self) -> None:
        self.owned: list[tuple[Box, Storage]] = []

    def claim(self, storage: Storage) -> tuple[list[Box], list[Storage]]:
        """Take `storage` into account: the parts it is the first to cover, and the storages that own the others."""
        box = placed_box(storage)
        found = [
            (other, owner) for other, owner in self.owned if owner.buffer is storage.buffer and other.overlaps(box)
        ]
        first = subtract(box, [other for other, _ in found])
        self.owned += [(part, storage) for part in first]
        return first, list({owner.index: owner for _, owner in found}.values())

    def mark(self) -> int:
        """The present state, for `reset`: the tiles of a loop body are gone when the body ends."""
        return len(self.owned)

    def reset(self, mark: int) -> None:
        """Back to the state at `mark`."""
        del self.owned[mark:]

    def to_poison(self, storage: Storage, precision: str) -> list[Box]:
        """`claim`, and the parts that the allocation of `storage` poisons, relative to the storage.

        Raises TileUnsupportedError for shared memory under precision "high", which stores tiles apart.
        """
        first, owners = self.claim(storage)
        if owners and precision == "high":
            raise TileUnsupportedError(
                f'{storage.describe()} shares memory with {owners[0].describe()}; precision="high" stores tiles apart',
                hint='run with precision="exact", or give the tiles addresses of their own',
            ).at(storage.site)
        partition, byte = storage.address or (0, 0)
        return [Box(b.r0 - partition, b.r1 - partition, b.c0 - byte, b.c1 - byte, True) for b in first]


def share_memory(storages: Iterable[Storage]) -> set[int]:
    """Indices of the storages with an explicit address that share a byte with another one."""
    return {index for group in alias_groups(storages) if len(group) > 1 for index in group}


def alias_groups(storages: Iterable[Storage]) -> list[list[int]]:
    """The explicit storages of `storages`, by index, in groups that are connected by shared bytes."""
    claims = Claims()
    group_of: dict[int, list[int]] = {}
    for storage in storages:
        if storage.address is None:
            continue
        group = group_of[storage.index] = [storage.index]
        for owner in claims.claim(storage)[1]:
            other = group_of[owner.index]
            if other is not group:
                if len(other) > len(group):
                    group, other = other, group
                group += other
                for index in other:
                    group_of[index] = group
    return list({id(group): group for group in group_of.values()}.values())
