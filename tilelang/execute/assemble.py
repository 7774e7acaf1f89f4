"""The end of encoding: record templates and loose records laid into one array, with NumPy for all records of a
template.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tilelang.execute import control, layout
from tilelang.execute.native.template import LANES, Record, Space
from tilelang.ir.program import Instruction

__all__ = ["Encoded", "Group", "Loose", "Made", "assemble"]


@dataclass
class Encoded:
    """A program as records: `table` with zero addresses; word `words[i]` gets `offsets[i]` + the base of `spaces[i]`;
    functions likewise by name.
    """

    table: NDArray[np.int64]
    words: NDArray[np.int64]
    spaces: NDArray[np.int64]
    offsets: NDArray[np.int64]
    functions: dict[str, NDArray[np.int64]]
    registers: int
    pitches: dict[str, int]
    bitmaps: dict[int, tuple[int, int]]
    instructions: list[Instruction] = field(default_factory=list)


class Group:
    """All records of one template."""

    __slots__ = ("flags", "indices", "offsets", "pitches", "record", "spaces", "starts")

    def __init__(self, record: Record, pitches: dict[int, int]) -> None:
        self.record = record
        self.pitches = pitches  # of operands that are images of HBM rows
        self.starts: list[int] = []
        self.flags: list[int] = []
        self.indices: list[int] = []
        self.spaces: list[int] = []
        self.offsets: list[int] = []


# A record of its own kind: position, words, (word, space, offset) of addresses, (word, function name).
Loose = tuple[int, list[int], list[tuple[int, int, int]], list[tuple[int, str]]]


class Made(Protocol):
    """What the encoder hands over: groups by template, loose records, and the positions that need a barrier after
    all.
    """

    position: int
    groups: dict[tuple[int, ...], Group]
    extra: list[Loose]
    revisited: set[int]
    registers: int
    pitches: dict[str, int]
    bitmaps: dict[int, tuple[int, int]]
    instructions: list[Instruction]


def assemble(made: Made) -> Encoded:
    """All records as one array."""
    table = np.zeros(made.position, np.int64)
    words: list[NDArray[np.int64]] = []
    spaces: list[NDArray[np.int64]] = []
    offsets: list[NDArray[np.int64]] = []
    functions: dict[str, list[NDArray[np.int64]]] = {}
    status: list[NDArray[np.int64]] = []
    for group in made.groups.values():
        _fill_group(made.pitches, table, group, words, spaces, offsets, functions, status)
    loose: list[tuple[int, int, int]] = []
    for position, content, fixups, names in made.extra:
        table[position : position + len(content)] = content
        loose += [(position + word, space, offset) for word, space, offset in fixups]
        if content[0] == 0:
            status.append(np.array([position]))
        for word, name in names:
            functions.setdefault(name, []).append(np.array([position + word]))
    if loose:
        columns = np.array(loose, np.int64)
        words.append(columns[:, 0])
        spaces.append(columns[:, 1])
        offsets.append(columns[:, 2])
    for position in made.revisited:
        table[position + layout.H_FLAGS] |= layout.FLAG_BARRIER
    if status:
        heads = np.concatenate(status)
        for word, space in ((layout.H_STATUS, Space.STATUS), (layout.H_SCRATCH, Space.SCRATCH)):
            words.append(heads + word)
            spaces.append(np.full(len(heads), space, np.int64))
            offsets.append(np.zeros(len(heads), np.int64))
    empty = np.zeros(0, np.int64)
    return Encoded(
        table=table,
        words=np.concatenate(words) if words else empty,
        spaces=np.concatenate(spaces) if spaces else empty,
        offsets=np.concatenate(offsets) if offsets else empty,
        functions={name: np.concatenate(found) for name, found in functions.items()},
        registers=made.registers,
        pitches=made.pitches,
        bitmaps=made.bitmaps,
        instructions=made.instructions,
    )


def _fill_group(
    pitches: dict[str, int],
    table: NDArray[np.int64],
    group: Group,
    words: list[NDArray[np.int64]],
    spaces: list[NDArray[np.int64]],
    offsets: list[NDArray[np.int64]],
    functions: dict[str, list[NDArray[np.int64]]],
    status: list[NDArray[np.int64]],
) -> None:
    record = group.record
    template = record.words.copy()
    for word, memory, factor in record.pitches:
        template[word] = pitches[memory] * factor
        if group.pitches:
            pitch = group.pitches.get(record.owner(word), 0)  # type: ignore[arg-type]
            template[word] = pitch * factor if pitch else template[word]
    starts = np.array(group.starts, np.int64)
    rows = starts[:, None]
    table[rows + np.arange(len(template))] = template
    flags = np.array(group.flags, np.int64) | (control.FALLIBLE if record.fallible else 0)
    table[starts + layout.H_FLAGS] = flags
    table[starts + layout.H_INDEX] = group.indices
    targets = [word for word, _ in record.addresses] + [word for word, _ in record.indices]
    if targets:
        words.append((rows + np.array(targets, np.int64)).ravel())
        spaces.append(np.array(group.spaces, np.int64))
        offsets.append(np.array(group.offsets, np.int64))
    for word, file in record.lanes:
        words.append(starts + word)
        space, lane, offset = LANES[file]
        spaces.append(np.full(len(starts), space, np.int64))
        offsets.append(np.full(len(starts), lane * record.start + offset, np.int64))
    for word, name in record.functions:
        functions.setdefault(name, []).append(starts + word)
    status.append(starts)
