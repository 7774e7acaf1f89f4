"""Placement: what is live together shares no byte; explicit addresses are kept; PSUM banks; peaks."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.analysis.aliasing import alias_groups
from tilelang.analysis.initialised import analyse_initialisation
from tilelang.analysis.liveness import live_ranges
from tilelang.ir.program import Program
from tilelang.ir.storage import PSUM_BANK_BYTES, Storage
from tilelang.scheduler.placement import Placement, place

X = np.zeros((128, 64), np.float32)


def placed(kernel: Any, precision: str = "exact") -> tuple[Program, Placement, dict[str, int]]:
    program = tilelang.compile(kernel, X, precision=precision).program
    placement = place(program, analyse_initialisation(program).poison)
    return program, placement, {program.storages[i].name: byte for i, byte in placement.bytes.items()}


def random_kernel(seed: int) -> Any:
    """Tiles of many sizes, some at explicit addresses, used at random times, some in loops."""

    def kernel(x: Any) -> None:
        pick = Random(seed)
        tiles: list[Any] = []

        def some(depth: int) -> None:
            mine = len(tiles)
            for _ in range(pick.randint(1, 8)):
                if not tiles or pick.random() < 0.5:
                    psum, dtype = pick.random() < 0.3, pick.choice((nl.float32, nl.uint8, nl.bfloat16))
                    columns = pick.choice((1, 3, 16, 65, 200, 700))
                    columns = min(columns, 1024) if not psum else columns
                    rows = pick.choice((128, 32))
                    address = None
                    if pick.random() < 0.3:
                        address = (
                            pick.choice((0, 128 - rows)),
                            pick.choice((0, 2048, 4096) if psum else (0, 7, 512, 4000)),
                        )
                    buffer = nl.psum if psum else nl.sbuf
                    tiles.append(
                        nl.ndarray((rows, columns), nl.float32 if psum else dtype, buffer=buffer, address=address)
                    )
                first, second = pick.choice(tiles), pick.choice(tiles)
                if pick.random() < 0.5:
                    nisa.memset(first, 0)
                rows = 32 if 32 in (first.P, second.P) else 128
                width = min(first.F, second.F)
                nisa.tensor_copy(first[:rows, :width], second[:rows, :width])
                if depth < 2 and pick.random() < 0.2:
                    nl.fori_loop(0, 2, lambda i: some(depth + 1))
            if depth:
                del tiles[mine:]

        some(0)
        some(0)

    return kernel


@given(seed=st.integers(0, 2**32 - 1))
def test_live_tiles_share_no_byte(seed: int) -> None:
    program = tilelang.compile(random_kernel(seed), X, mode="reference").program
    poison = analyse_initialisation(program).poison
    placement, ranges = place(program, poison), live_ranges(program, poison)
    used = [s for s in program.storages if s.index in ranges]
    assert set(placement.bytes) == set(ranges)
    kept = dict(ranges)
    for group in alias_groups(used):
        span = min(ranges[i][0] for i in group), max(ranges[i][1] for i in group)
        kept.update(dict.fromkeys(group, span))
    for i, first in enumerate(used):
        start = placement.bytes[first.index]
        end = start + first.row_bytes
        assert end <= placement.width[first.buffer.value]
        if first.address is not None:
            assert start == first.address[1]
        elif first.buffer is nl.psum:
            assert first.row_bytes > PSUM_BANK_BYTES or start // PSUM_BANK_BYTES == (end - 1) // PSUM_BANK_BYTES
        for second in used[:i]:
            if first.buffer is not second.buffer or (first.address is not None and second.address is not None):
                continue
            together = kept[first.index][0] <= kept[second.index][1] and kept[second.index][0] <= kept[first.index][1]
            other = placement.bytes[second.index]
            assert not together or end <= other or other + second.row_bytes <= start


@given(seed=st.integers(0, 2**32 - 1))
def test_peaks(seed: int) -> None:
    """The reported peak: bytes under the tiles live at one position, aliases counted once, never above the width."""
    program = tilelang.compile(random_kernel(seed), X, mode="reference").program
    poison = analyse_initialisation(program).poison
    placement, ranges = place(program, poison), live_ranges(program, poison)
    for region in ("sbuf", "psum"):
        used = [s for s in program.storages if s.index in ranges and s.buffer.value == region]
        needs = [need(placement, used, ranges, ranges[s.index][0]) for s in used]
        peak, live = placement.peak[region]
        assert peak >= max(needs, default=0)
        assert peak <= max([*needs, *(s.address[1] + s.row_bytes for s in used if s.address)], default=0)
        assert bool(live) == bool(used)


def need(placement: Placement, used: list[Storage], ranges: dict[int, tuple[int, int]], position: int) -> int:
    live = [s for s in used if ranges[s.index][0] <= position <= ranges[s.index][1]]
    automatic = sum(s.row_bytes for s in live if s.address is None)
    fixed = {byte for s in live if s.address for byte in range(s.address[1], s.address[1] + s.row_bytes)}
    return automatic + len(fixed)


def test_dead_tiles_give_their_memory_back() -> None:
    def kernel(x: Any) -> None:
        for number in range(3):
            tile = nl.ndarray((128, 64), nl.float32, name=f"t{number}")
            nisa.memset(tile, 0.0)

    _, placement, bytes_ = placed(kernel)
    assert bytes_ == {"t0": 0, "t1": 0, "t2": 0} and placement.width["sbuf"] == 256


def test_unused_tiles_get_no_memory() -> None:
    def kernel(x: Any) -> None:
        nl.ndarray((128, 64), nl.float32)

    _, placement, bytes_ = placed(kernel)
    assert placement.bytes == {} and bytes_ == {} and placement.width == {"sbuf": 0, "psum": 0}


def test_poison_does_not_reach_tiles_that_are_live() -> None:
    def kernel(x: Any) -> None:
        live, late, sink = (nl.ndarray((128, 64), nl.float32, name=name) for name in ("live", "late", "sink"))
        nisa.memset(live, 0.0)
        nisa.tensor_copy(sink, live)
        nisa.tensor_copy(sink, late)

    _, _, bytes_ = placed(kernel)
    assert bytes_["late"] != bytes_["live"]


def test_precision_high_leaves_room_for_float32() -> None:
    def kernel(x: Any) -> None:
        one = nl.ndarray((128, 64), nl.bfloat16, name="one", address=(0, 0))
        two = nl.ndarray((128, 64), nl.bfloat16, name="two", address=(0, 128))
        nisa.memset(one, 1.0)
        nisa.memset(two, 1.0)
        nisa.tensor_copy(one, two)

    assert placed(kernel)[2] == {"one": 0, "two": 128}
    _, placement, bytes_ = placed(kernel, precision="high")
    assert abs(bytes_["one"] - bytes_["two"]) >= 256 and placement.peak["sbuf"][0] == 512


@pytest.mark.parametrize(("columns", "expected"), [(64, 448), (512, PSUM_BANK_BYTES), (600, PSUM_BANK_BYTES)])
def test_psum_tiles_and_banks(columns: int, expected: int) -> None:
    def kernel(x: Any) -> None:
        first = nl.ndarray((128, 100), nl.float32, buffer=nl.psum, name="first")
        second = nl.ndarray((128, columns), nl.float32, buffer=nl.psum, name="second")
        nisa.memset(first, 0.0)
        nisa.memset(second, 0.0)
        nisa.tensor_copy(first[:, 0:1], second[:, 0:1])

    assert placed(kernel)[2]["second"] == expected


def test_many_explicit_tiles_are_placed_quickly() -> None:
    """Rotating buffers of a long unrolled loop: work grows with the tiles, not with their square."""

    def kernel(x: Any) -> None:
        for number in range(3000):
            tile = nl.ndarray((128, 16), nl.float32, address=(0, number % 8 * 64))
            nisa.memset(tile, 0.0)

    program, placement, _ = placed(kernel)
    assert len(program) == 3000 and placement.width["sbuf"] == 512 and placement.peak["sbuf"][0] == 512
