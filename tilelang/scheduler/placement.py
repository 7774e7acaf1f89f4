"""Addresses for on-chip storages: first fit over live ranges, explicit `address=` kept as given."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Collection
from dataclasses import dataclass, field

from tilelang.analysis.aliasing import alias_groups
from tilelang.analysis.liveness import live_ranges
from tilelang.ir.program import Program
from tilelang.ir.storage import PSUM_BANK_BYTES, Storage

__all__ = ["Placement", "place"]

_ALIGN = 64  # bytes: one cache line, so that vector loads of a tile start aligned
_Range = tuple[int, int]


@dataclass
class Placement:
    """`bytes`: storage index → byte offset within its partitions. `width`: bytes per partition each memory needs, by
    region name;
    `peak`: the most bytes per partition live at once and the storages live then."""

    bytes: dict[int, int] = field(default_factory=dict)
    width: dict[str, int] = field(default_factory=lambda: {"sbuf": 0, "psum": 0})
    peak: dict[str, tuple[int, list[Storage]]] = field(default_factory=dict)


def place(program: Program, poisoned: Collection[int] = ()) -> Placement:
    """Place every used on-chip storage of `program`; `poisoned` are the indices of those that are poisoned first.

    Automatic tiles start at partition 0 and share no byte with another live one, nor with an explicit one that is live
    or whose content a later alias may look at. With precision "high", tiles need more room than the kernel planned, so
    that explicit bytes are not kept.
    """
    ranges = live_ranges(program, poisoned)
    result = Placement()
    high = program.precision == "high"
    for region in ("sbuf", "psum"):
        storages = [s for s in program.storages if s.index in ranges and s.buffer.value == region]
        storages.sort(key=lambda s: ranges[s.index][0])
        sizes = {s.index: _bytes(s, high) for s in storages}
        fixed = {} if high else {s.index: s for s in storages if s.address is not None}
        _place_region(region, storages, sizes, fixed, ranges, result)
    return result


def _bytes(storage: Storage, high: bool) -> int:
    return storage.row_elements * 4 if high and storage.fmt.is_low_precision else storage.row_bytes


def _place_region(
    region: str,
    storages: list[Storage],
    sizes: dict[int, int],
    fixed: dict[int, Storage],
    ranges: dict[int, _Range],
    result: Placement,
) -> None:
    kept = _kept(list(fixed.values()), ranges)
    blocks = [(*kept[i], s.address[1], s.address[1] + sizes[i]) for i, s in fixed.items()]  # type: ignore[index]
    active: list[_Range] = []  # (start byte, end byte), sorted
    expiring: list[tuple[int, int]] = []  # (last position, index)
    live: dict[int, Storage] = {}
    total = peak = position = 0
    for storage in storages:
        index = storage.index
        first, last = ranges[index]
        while expiring and expiring[0][0] < first:
            gone = heapq.heappop(expiring)[1]
            del live[gone]
            if gone not in fixed:
                total -= sizes[gone]
                active.remove((result.bytes[gone], result.bytes[gone] + sizes[gone]))
        live[index] = storage
        heapq.heappush(expiring, (last, index))
        if index in fixed:
            start = storage.address[1]  # type: ignore[index]
        else:
            blocked = [(low, high) for begin, end, low, high in blocks if begin <= last and first <= end]
            start = _first_fit(sorted(active + blocked) if blocked else active, sizes[index], region == "psum")
            insort(active, (start, start + sizes[index]))
            total += sizes[index]
        result.bytes[index] = start
        result.width[region] = max(result.width[region], start + sizes[index])
        need = max(total + _union(live, fixed), start + sizes[index] if index in fixed else 0)
        if need > peak:
            peak, position = need, first
    result.peak[region] = peak, [s for s in storages if ranges[s.index][0] <= position <= ranges[s.index][1]]


def _kept(fixed: list[Storage], ranges: dict[int, _Range]) -> dict[int, _Range]:
    """For each explicit storage the positions between which its bytes must stay: those of all that share memory with
    it.
    """
    kept = {}
    for group in alias_groups(fixed):
        span = min(ranges[i][0] for i in group), max(ranges[i][1] for i in group)
        kept.update(dict.fromkeys(group, span))
    return kept


def _union(live: dict[int, Storage], fixed: dict[int, Storage]) -> int:
    """Bytes per partition under the live explicit storages."""
    if not fixed:
        return 0
    intervals = sorted((s.address[1], s.address[1] + s.row_bytes) for i, s in live.items() if i in fixed)  # type: ignore[index]
    total = reached = 0
    for start, end in intervals:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _first_fit(taken: list[_Range], size: int, banked: bool) -> int:
    """The lowest aligned byte with `size` free bytes; a PSUM tile of at most one bank stays inside one, a larger one
    starts at a bank.
    """
    position = 0
    align = _ALIGN if size >= _ALIGN else max(4, 1 << (size - 1).bit_length())
    for start, end in taken:
        candidate = _fit(position, size, align, banked)
        if candidate + size <= start:
            return candidate
        position = max(position, end)
    return _fit(position, size, align, banked)


def _fit(position: int, size: int, align: int, banked: bool) -> int:
    position = -(-position // align) * align
    if banked:
        bank_end = position // PSUM_BANK_BYTES * PSUM_BANK_BYTES + PSUM_BANK_BYTES
        if position % PSUM_BANK_BYTES and position + size > bank_end:
            position = bank_end
    return position
