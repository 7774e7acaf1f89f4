"""Addresses for on-chip storages: first fit over live ranges, explicit `address=` kept as given."""

from __future__ import annotations

import heapq
from bisect import insort
from dataclasses import dataclass, field

from tilelang.analysis.liveness import live_ranges
from tilelang.ir.program import Program
from tilelang.ir.storage import PSUM_BANK_BYTES, Storage

__all__ = ["Placement", "place"]

_ALIGN = 64  # bytes: one cache line, so that vector loads of a tile start aligned


@dataclass
class Placement:
    """`bytes`: storage index → byte offset within its partitions. `width`: bytes per partition each memory needs, by region name;
    `peak`: the most bytes per partition live at once and the storages live then."""

    bytes: dict[int, int] = field(default_factory=dict)
    width: dict[str, int] = field(default_factory=lambda: {"sbuf": 0, "psum": 0})
    peak: dict[str, tuple[int, list[Storage]]] = field(default_factory=dict)


def place(program: Program) -> Placement:
    """Place every used on-chip storage of `program`. Automatic tiles start at partition 0 and share no byte with another live one."""
    ranges = live_ranges(program)
    result = Placement()
    for region in ("sbuf", "psum"):
        storages = [s for s in program.storages if s.index in ranges and s.buffer.value == region]
        storages.sort(key=lambda s: ranges[s.index][0])
        _place_region(region, storages, ranges, result, _scale(program))
    return result


def _scale(program: Program) -> bool:
    return program.precision == "high"


def _bytes(storage: Storage, widened: bool) -> int:
    if widened and storage.fmt.is_low_precision:
        return storage.row_elements * 4
    return storage.row_bytes


def _place_region(
    region: str, storages: list[Storage], ranges: dict[int, tuple[int, int]], result: Placement, widened: bool
) -> None:
    fixed = [s for s in storages if s.address is not None]
    for storage in fixed:
        result.bytes[storage.index] = storage.address[1]  # type: ignore[index]
    active: list[tuple[int, int]] = []  # (start byte, end byte), sorted
    ends: list[tuple[int, int, int]] = []  # (last position, start byte, end byte)
    live: dict[int, Storage] = {}
    peak, high_water = 0, []  # type: ignore[var-annotated]
    expiring: list[tuple[int, int]] = []
    for storage in storages:
        first, last = ranges[storage.index]
        while ends and ends[0][0] < first:
            _, start, end = heapq.heappop(ends)
            active.remove((start, end))
        while expiring and expiring[0][0] < first:
            live.pop(heapq.heappop(expiring)[1], None)
        live[storage.index] = storage
        heapq.heappush(expiring, (last, storage.index))
        size = _bytes(storage, widened)
        if storage.address is None:
            blocked = [
                (f.address[1], f.address[1] + _bytes(f, widened))  # type: ignore[index]
                for f in fixed
                if ranges[f.index][0] <= last and first <= ranges[f.index][1]
            ]
            start = _first_fit(sorted(active + blocked) if blocked else active, size, region == "psum")
            insort(active, (start, start + size))
            heapq.heappush(ends, (last, start, start + size))
            result.bytes[storage.index] = start
        else:
            start = storage.address[1]
        result.width[region] = max(result.width[region], start + size)
        total = sum(_bytes(s, widened) for s in live.values()) if len(live) < 4096 else peak
        if total > peak:
            peak, high_water = total, list(live.values())
    result.peak[region] = (peak, high_water)


def _first_fit(taken: list[tuple[int, int]], size: int, banked: bool) -> int:
    """The lowest aligned byte with `size` free bytes; a PSUM tile of at most one bank stays inside one, a larger one starts at a bank."""
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
