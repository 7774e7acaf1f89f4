"""When each on-chip storage is live, in positions of the program (an instruction or allocation each)."""

from __future__ import annotations

from collections.abc import Collection

from tilelang.ir.program import Instruction, Item, Loop, Program
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

__all__ = ["live_ranges"]


def live_ranges(program: Program, poisoned: Collection[int] = ()) -> dict[int, tuple[int, int]]:
    """Storage index → (first, last) position at which its memory is needed, for on-chip storages that are used.

    Those in `poisoned` are written where they are allocated. A storage from outside a loop that is used inside it stays
    live until the loop ends.
    """
    ranges: dict[int, tuple[int, int]] = {}
    born: dict[int, int] = {}
    _walk(program.items, 0, ranges, born)
    return {
        index: (min(first, born[index]), last) if index in poisoned else (first, last)
        for index, (first, last) in ranges.items()
    }


def _walk(items: list[Item], position: int, ranges: dict[int, tuple[int, int]], born: dict[int, int]) -> int:
    for item in items:
        position += 1
        if type(item) is Instruction:
            for tensor in item.tiles():
                _touch(tensor, position, ranges)
                dynamic = tensor.dynamic
                if dynamic is not None and isinstance(dynamic.source, NkiTensor):
                    _touch(dynamic.source, position, ranges)
        elif type(item) is Storage:
            born[item.index] = position
        elif type(item) is Loop:
            start = position
            position = _walk(item.body, position, ranges, born) + 1
            inside = {entry.index for entry in item.body if type(entry) is Storage}
            for index, (first, last) in ranges.items():
                if last > start and (first <= start or index not in inside):
                    ranges[index] = (min(first, start), position)
    return position


def _touch(tensor: NkiTensor, position: int, ranges: dict[int, tuple[int, int]]) -> None:
    storage = tensor.storage
    if storage.on_chip:
        first, _ = ranges.get(storage.index, (position, position))
        ranges[storage.index] = (first, position)
