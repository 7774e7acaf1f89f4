"""Boxes, coverage and overlap of random views, against the sets of bytes they stand for."""

from __future__ import annotations

from math import prod
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.analysis.regions import Box, Coverage, box_of, subtract, whole
from tilelang.dtypes import FORMATS
from tilelang.errors import TileError
from tilelang.ir.overlap import DISJOINT, OVERLAP, SAME, is_injective, relation
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.scalars import VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

SEEDS = st.integers(0, 2**32 - 1)


def tensor(pick: Random, on_chip: bool, address: tuple[int, int] | None = None) -> NkiTensor:
    shape = tuple(pick.choice((1, 2, 3, 4, 6)) for _ in range(pick.randint(2 if on_chip else 1, 4)))
    buffer = MemoryRegion.sbuf if on_chip else MemoryRegion.shared_hbm
    fmt = FORMATS[pick.choice(("float32", "bfloat16", "uint8"))]
    return NkiTensor.over(Storage(shape, fmt, buffer, address=address))


def view(pick: Random, whole: NkiTensor) -> NkiTensor:
    """A random view, dynamic ones included."""
    found = whole
    for _ in range(pick.randint(0, 3)):
        dim = pick.randrange(found.ndim)
        kind = pick.randrange(6)
        try:
            if kind <= 1:
                start = pick.randrange(found.shape[dim])
                found = found.slice(dim, start, pick.randint(start + 1, found.shape[dim]), pick.randint(1, 3))
            elif kind == 2:
                order = list(range(found.ndim))
                pick.shuffle(order)
                found = found.permute(order)
            elif kind == 3:
                found = found.select(dim, VirtualRegister(0))
            elif kind == 4:
                steps = [[pick.randrange(4), pick.randint(1, 4)] for _ in range(pick.randint(1, 3))]
                rows = [[whole.storage.row_elements, pick.randint(1, whole.shape[0])]] if whole.on_chip else []
                found = whole.ap([*rows, *steps], offset=pick.randrange(4))
            else:
                found = found.view(pick.choice(("uint8", "bfloat16", "float32")))
        except TileError:
            continue
    return found


def rows_and_bytes(view: NkiTensor) -> list[tuple[int, int]]:
    """(row, byte) of the first byte of each element in iteration order, for every legal dynamic index: partitions on
    chip, rows of the last dim in HBM."""
    storage, size = view.storage, view.itemsize
    starts = [view.offset * size]
    if view.dynamic is not None:
        low, high = view.dynamic_range()
        starts = [starts[0] + index * view.dynamic.byte_multiplier for index in range(low, high)]
    width = storage.row_bytes if storage.on_chip else storage.shape[-1] * storage.itemsize
    found = []
    for start in starts:
        for number in range(view.size):
            position = start
            for count, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
                position += number % count * stride * size
                number //= count
            found.append(divmod(position, width))
    return found


def touched(view: NkiTensor) -> set[tuple[int, int]]:
    return {(row, byte + k) for row, byte in rows_and_bytes(view) for k in range(view.itemsize)}


def cells(box: Box) -> set[tuple[int, int]]:
    return {(row, byte) for row in range(box.r0, box.r1) for byte in range(box.c0, box.c1)}


@given(seed=SEEDS, on_chip=st.booleans())
def test_boxes_contain_what_views_touch(seed: int, on_chip: bool) -> None:
    pick = Random(seed)
    base = tensor(pick, on_chip)
    found = view(pick, base)
    box, bytes_ = box_of(found), touched(found)
    assert bytes_ <= cells(box)
    assert whole(base.storage).contains(box)
    if box.exact:
        assert bytes_ == cells(box) and found.dynamic is None


@pytest.mark.parametrize("strides", [(3, 3, 1), (4, 2, 2), (1, 1, 1), (0, 2, 1)])
def test_overlapping_strides_are_not_exact(strides: tuple[int, int, int]) -> None:
    """As many elements as the span has, but holes between them."""
    base = NkiTensor.over(Storage((2, 16), FORMATS["uint8"], MemoryRegion.sbuf))
    found = base.ap([[16, 2], *[[step, 2] for step in strides]])
    assert not box_of(found).exact and not is_injective(found.shape[1:], found.strides[1:])


@given(seed=SEEDS)
def test_subtract(seed: int) -> None:
    pick = Random(seed)

    def box() -> Box:
        r, c = sorted(pick.sample(range(8), 2)), sorted(pick.sample(range(8), 2))
        return Box(r[0], r[1], c[0], c[1], True)

    first, covers = box(), [box() for _ in range(pick.randint(0, 4))]
    left = subtract(first, covers)
    assert set().union(*map(cells, left)) == cells(first).difference(*map(cells, covers))
    assert sum(len(cells(piece)) for piece in left) == len(set().union(*map(cells, left))), "pieces are apart"


@given(seed=SEEDS, on_chip=st.booleans())
def test_coverage(seed: int, on_chip: bool) -> None:
    """`covers` and `untouched` claim nothing that is not so, and know whole writes."""
    pick = Random(seed)
    base = tensor(pick, on_chip)
    state, written, perhaps = Coverage(), set(), set()
    for _ in range(pick.randint(0, 6)):
        write = view(pick, base)
        box = box_of(write)
        state.add(box)
        if box.exact:
            written |= touched(write)
        perhaps |= cells(box)
        asked = box_of(view(pick, base))
        if state.covers(asked):
            assert cells(asked) <= written
        elif cells(asked) <= written:
            assert len(state.written) > 1
        if state.untouched(asked):
            assert not cells(asked) & perhaps
        else:
            assert any(box_.overlaps(asked) for box_ in (*state.written, *state.touched))
    other = state.copy()
    other.add(whole(base.storage))
    assert other.covers(whole(base.storage)) and not other.untouched(whole(base.storage))


def places(view: NkiTensor) -> list[tuple[int, int]]:
    """As `rows_and_bytes`, in physical partitions and bytes for explicit storages."""
    partition, byte = view.storage.address or (0, 0)
    return [(row + partition, column + byte) for row, column in rows_and_bytes(view)]


@given(seed=SEEDS, kind=st.sampled_from(("chip", "hbm", "explicit")))
def test_relation(seed: int, kind: str) -> None:
    pick = Random(seed)
    on_chip = kind != "hbm"
    address = (pick.randrange(3), pick.randrange(9)) if kind == "explicit" else None
    base = tensor(pick, on_chip, address)
    other = (
        tensor(pick, on_chip, (pick.randrange(3), pick.randrange(9)))
        if kind == "explicit" and pick.random() < 0.7
        else base
    )
    first = view(pick, base)
    second = first if pick.random() < 0.2 else view(pick, other)
    found = relation(first, second)
    assert found == relation(second, first)
    one, two = places(first), places(second)
    shared = {(r, b + k) for r, b in one for k in range(first.itemsize)} & {
        (r, b + k) for r, b in two for k in range(second.itemsize)
    }
    if found == DISJOINT:
        assert not shared
    elif found == SAME:
        assert first.dtype == second.dtype and one == two
        if first.dynamic is None:
            assert len(set(one)) == len(one)
    else:
        assert found == OVERLAP
    if second is first and first.dynamic is None and len(set(one)) == prod(first.shape) and first.ndim == 2:
        assert found == SAME


def test_storages_without_addresses_are_apart() -> None:
    first, second = (NkiTensor.over(Storage((4, 4), FORMATS["int32"], MemoryRegion.sbuf)) for _ in range(2))
    placed = NkiTensor.over(Storage((4, 4), FORMATS["int32"], MemoryRegion.sbuf, address=(0, 0)))
    psum = NkiTensor.over(Storage((4, 4), FORMATS["int32"], MemoryRegion.psum, address=(0, 0)))
    assert {relation(first, second), relation(first, placed), relation(placed, psum)} == {DISJOINT}


def test_strided_partitions_reach_further_than_their_count() -> None:
    base = NkiTensor.over(Storage((128, 4), FORMATS["int32"], MemoryRegion.sbuf))
    assert relation(base[0:128:2], base[64:96]) == OVERLAP
    assert relation(base[0:64:2], base[64:96]) == DISJOINT
