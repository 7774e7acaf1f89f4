"""What the analyses find in traced programs: initialisation, live ranges, shared addresses, barriers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.analysis.aliasing import Claims, alias_groups, placed_box, share_memory
from tilelang.analysis.initialised import ACCUMULATE, BITMAP, OVERWRITE, Initialisation, analyse_initialisation
from tilelang.analysis.liveness import live_ranges
from tilelang.analysis.regions import Box
from tilelang.analysis.sync import Access, SyncState, granules
from tilelang.dtypes import FORMATS
from tilelang.ir.program import Program
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.storage import Storage

X = np.zeros((128, 64), np.float32)


def traced(kernel: Callable[[Any], Any]) -> tuple[Program, Initialisation]:
    program = tilelang.compile(kernel, X).program
    return program, analyse_initialisation(program)


def names(program: Program, indices: Any) -> set[str]:
    return {s.name for s in program.storages if s.index in indices}


def tile(name: str, columns: int = 64, **options: Any) -> Any:
    return nl.ndarray((128, columns), nl.float32, name=name, **options)


# -- initialisation ----------------------------------------------------------------------------------------------------


def test_what_is_written_before_it_is_read_needs_no_poison() -> None:
    def kernel(x: Any) -> Any:
        whole, halves, partly, columns = tile("whole"), tile("halves"), tile("partly"), tile("columns")
        nisa.dma_copy(whole, x)
        nisa.memset(halves[:, 0:32], 0.0)
        nisa.memset(halves[:, 32:64], 0.0)
        nisa.memset(partly[:, 0:63], 0.0)
        for column in range(0, 64, 16):
            nisa.memset(columns[0:64, column : column + 16], 0.0)
            nisa.memset(columns[64:128, column : column + 16], 0.0)
        for source in (whole, halves, partly, columns):
            nisa.tensor_copy(tile(""), source)
        never = tile("never read")
        nisa.memset(never[:, 0:2], 0.0)
        out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm, name="out")
        nisa.dma_copy(out[:, 0:32], whole[:, 0:32])
        nisa.dma_copy(x[:, 0:1], whole[:, 0:1])
        return out

    program, init = traced(kernel)
    assert names(program, init.poison) == {"partly", "out"}
    assert names(program, init.written) == {"x"}
    assert {program.storages[i].name: item.opname for i, item in init.first_bad_read.items()} == {
        "partly": "tensor_copy"
    }


@pytest.mark.parametrize("trips", [0, 2, "register"])
def test_writes_in_loops_count_when_the_loop_runs(trips: Any) -> None:
    def kernel(x: Any) -> Any:
        inside = tile("inside")
        count = nisa.register_alloc(2) if trips == "register" else trips

        def body(i: Any) -> None:
            nisa.memset(inside, 0.0)

        nl.fori_loop(0, count, body)
        nisa.tensor_copy(tile("copy"), inside)

    program, init = traced(kernel)
    assert names(program, init.poison) == (set() if trips == 2 else {"inside"})


def test_what_the_next_iteration_reads_first_is_poisoned() -> None:
    def kernel(x: Any) -> Any:
        carried, source = tile("carried"), tile("source")
        nisa.memset(source, 0.0)

        def body(i: Any) -> None:
            nisa.tensor_tensor(source, source, carried, op=nl.add)
            nisa.memset(carried, 1.0)

        nl.fori_loop(0, 3, body)

    program, init = traced(kernel)
    assert names(program, init.poison) == {"carried"}


def test_skipped_and_dynamic_writes_prove_nothing() -> None:
    def kernel(x: Any) -> Any:
        skipped, dynamic, index = tile("skipped"), tile("dynamic"), nl.zeros((128, 1), nl.int32)
        nisa.dma_copy(skipped, x.vector_select(0, index), oob_mode=nisa.oob_mode.skip)
        nisa.memset(dynamic.select(1, nisa.register_alloc(0)), 0.0)
        nisa.tensor_copy(tile("a"), skipped)
        nisa.tensor_copy(tile("b", 1), dynamic[:, 0:1])
        sure = tile("sure")
        nisa.dma_copy(sure, x.vector_select(0, index))
        nisa.tensor_copy(tile("c"), sure)

    program, init = traced(kernel)
    assert names(program, init.poison) == {"skipped", "dynamic"}


def modes_of(kernel: Callable[[Any, Any], Any]) -> tuple[list[int], int]:
    """The modes of the matmuls of `kernel`, and how many PSUM tiles need a map of written elements."""

    def whole(x: Any) -> Any:
        source = nl.load(x)
        kernel(source, lambda: tile("", buffer=nl.psum)[0:64])

    program, init = traced(whole)
    modes = [init.modes[i.index] for i in program.walk() if i.opname == "nc_matmul"]
    return modes, len(init.bitmaps)


def matmul(dst: Any, source: Any, **options: Any) -> None:
    nisa.nc_matmul(dst, source, source, **options)


def test_accumulation_modes() -> None:
    def straight(source: Any, fresh: Any) -> None:
        psum = fresh()
        matmul(psum[:, 0:64], source)
        matmul(psum[:, 0:64], source)
        matmul(psum[:, 0:64], source, accumulate=False)

    assert modes_of(straight) == ([OVERWRITE, ACCUMULATE, OVERWRITE], 0)

    def partly(source: Any, fresh: Any) -> None:
        psum = fresh()
        nisa.nc_matmul(psum[:, 0:32], source, source[:, 0:32])
        matmul(psum[:, 0:64], source)

    assert modes_of(partly) == ([OVERWRITE, BITMAP], 1)

    def in_loop(source: Any, fresh: Any) -> None:
        outer = fresh()

        def body(i: Any) -> None:
            inner = fresh()
            matmul(inner[:, 0:64], source)
            matmul(inner[:, 0:64], source)
            matmul(outer[:, 0:64], source)

        nl.fori_loop(0, 2, body)

    assert modes_of(in_loop)[0] == [OVERWRITE, ACCUMULATE, BITMAP]

    def in_inner_loop(source: Any, fresh: Any) -> None:
        def outer(i: Any) -> None:
            psum = fresh()

            def inner(j: Any) -> None:
                matmul(psum[:, 0:64], source)

            nl.fori_loop(0, 2, inner)
            matmul(psum[:, 0:64], source)

        nl.fori_loop(0, 2, outer)

    assert modes_of(in_inner_loop) == ([BITMAP, ACCUMULATE], 1)

    def dynamic(source: Any, fresh: Any) -> None:
        psum = fresh()
        nisa.nc_matmul(
            psum.ap([[64, 64], [1, 8]], scalar_offset=nisa.register_alloc(0), indirect_dim=1), source, source[:, 0:8]
        )
        matmul(psum[:, 0:64], source)

    assert modes_of(dynamic) == ([OVERWRITE, BITMAP], 1)


# -- live ranges -------------------------------------------------------------------------------------------------------


def ranges_of(kernel: Callable[[Any], Any], poisoned: bool = False) -> dict[str, tuple[int, int]]:
    program, init = traced(kernel)
    found = live_ranges(program, init.poison if poisoned else ())
    return {program.storages[i].name: span for i, span in found.items()}


def test_ranges_run_from_first_to_last_use() -> None:
    def kernel(x: Any) -> Any:
        a, b, c, unused = tile("a"), tile("b"), tile("c"), tile("unused")
        assert unused is not None
        nisa.memset(b, 0.0)  # 5
        nisa.tensor_copy(a, b)  # 6
        nisa.tensor_copy(c, a)  # 7

    assert ranges_of(kernel) == {"b": (5, 6), "a": (6, 7), "c": (7, 7)}


def test_poisoned_tiles_live_from_their_allocation() -> None:
    def kernel(x: Any) -> Any:
        late, other = tile("late"), tile("other")  # 1, 2
        nisa.memset(other, 0.0)  # 3
        nisa.tensor_copy(other, late)  # 4

    assert ranges_of(kernel) == {"late": (4, 4), "other": (3, 4)}
    assert ranges_of(kernel, poisoned=True) == {"late": (1, 4), "other": (3, 4)}


def test_tiles_of_enclosing_scopes_live_through_the_loop() -> None:
    def kernel(x: Any) -> Any:
        before, carried, index = tile("before"), tile("carried"), nl.ndarray((1, 1), nl.int32, name="index")
        nisa.memset(before, 0.0)  # 4
        nisa.memset(carried, 0.0)  # 5
        nisa.memset(index, 0)  # 6

        def body(i: Any) -> None:  # 7
            inside = tile("inside", 1)  # 8
            nisa.tensor_copy(inside, carried.select(1, index))  # 9
            nisa.tensor_copy(inside, inside)  # 10
            nisa.memset(tile("brief"), 0.0)  # 11, 12

        nl.fori_loop(0, 3, body)  # until 13
        nisa.tensor_copy(carried, carried)  # 14

    found = ranges_of(kernel)
    assert found["before"] == (4, 4) and found["carried"] == (5, 14) and found["index"] == (6, 13)
    assert found["inside"] == (9, 10) and found["brief"] == (12, 12)


# -- shared addresses --------------------------------------------------------------------------------------------------


def placed(number: int, shape: tuple[int, int], address: tuple[int, int], buffer: Any = MemoryRegion.sbuf) -> Storage:
    storage = Storage(shape, FORMATS["uint8"], buffer, address=address)
    storage.index = number
    return storage


def test_groups_of_aliases() -> None:
    storages = [
        placed(0, (64, 8), (0, 0)),
        placed(1, (64, 8), (64, 0)),
        placed(2, (128, 4), (0, 4)),
        placed(3, (128, 4), (0, 8)),
        placed(4, (32, 2), (32, 11)),
        placed(5, (128, 100), (0, 0), MemoryRegion.psum),
    ]
    automatic = Storage((128, 8), FORMATS["uint8"], MemoryRegion.sbuf)
    groups = {frozenset(group) for group in alias_groups([*storages, automatic])}
    assert groups == {frozenset({0, 1, 2}), frozenset({3, 4}), frozenset({5})}
    assert share_memory(storages) == {0, 1, 2, 3, 4}


def test_the_first_to_cover_a_byte_poisons_it() -> None:
    claims = Claims()
    assert claims.to_poison(placed(0, (64, 8), (32, 16)), "exact") == [Box(0, 64, 0, 8, True)]
    mark = claims.mark()
    second = placed(1, (128, 16), (0, 12))
    parts = claims.to_poison(second, "exact")
    assert sum((b.r1 - b.r0) * (b.c1 - b.c0) for b in parts) == 128 * 16 - 64 * 8
    assert claims.to_poison(placed(2, (64, 8), (32, 16)), "exact") == []
    assert claims.to_poison(placed(3, (8, 8), (0, 12)), "exact") == []
    claims.reset(mark)
    assert claims.to_poison(placed(4, (8, 8), (0, 12)), "exact") == [Box(0, 8, 0, 8, True)]
    assert placed_box(second) == Box(0, 128, 12, 28, True)


# -- barriers ----------------------------------------------------------------------------------------------------------


def barriers(*accesses: Access) -> list[bool]:
    state = SyncState()
    return [state.step(access) for access in accesses]


BYTES = granules(0, 300, 0)


@pytest.mark.parametrize(
    ("first", "second", "needed"),
    [
        (Access(write_aligned=BYTES), Access(read_aligned=BYTES), False),
        (Access(write_aligned=BYTES), Access(write_aligned=BYTES), False),
        (Access(write_aligned=BYTES), Access(read_cross=BYTES), True),
        (Access(write_cross=BYTES), Access(read_aligned=BYTES), True),
        (Access(write_cross=BYTES), Access(write_aligned=BYTES), True),
        (Access(write_cross=BYTES), Access(write_cross=BYTES), True),
        (Access(read_cross=BYTES), Access(write_aligned=BYTES), True),
        (Access(read_cross=BYTES), Access(read_cross=BYTES), False),
        (Access(read_aligned=BYTES), Access(write_aligned=BYTES), False),
        (Access(read_aligned=BYTES), Access(write_cross=BYTES), True),
        (Access(write_aligned=BYTES), Access(read_cross=granules(512, 600, 0)), False),
    ],
)
def test_who_must_wait(first: Access, second: Access, needed: bool) -> None:
    assert barriers(first, second) == [False, needed]
    assert barriers(first, second, second)[2] is (needed and bool(second.write_cross))


def test_hbm_boxes_of_one_storage_conflict() -> None:
    low, high = Box(0, 4, 0, 16, True), Box(4, 8, 0, 16, True)
    write, read = Access(hbm_writes=[(1, low)]), Access(hbm_reads=[(1, low)])
    assert barriers(write, read) == [False, True]
    assert barriers(read, write) == [False, True]
    assert barriers(write, write) == [False, True]
    assert barriers(read, read) == [False, False]
    assert barriers(write, Access(hbm_reads=[(1, high)]), Access(hbm_reads=[(2, low)])) == [False, False, False]
    many = [Access(hbm_writes=[(1, Box(row, row + 1, 0, 4, True))]) for row in range(100)]
    assert barriers(*many, Access(hbm_reads=[(1, Box(99, 100, 0, 4, True))]))[-1] is True


def test_merged_paths_keep_what_either_did() -> None:
    state, other = SyncState(), SyncState()
    state.step(Access(write_cross=BYTES))
    other.step(Access(hbm_writes=[(3, Box(0, 1, 0, 4, True))]))
    both = state.copy()
    both.merge(other)
    assert both.copy().step(Access(read_aligned=BYTES))
    assert both.copy().step(Access(hbm_reads=[(3, Box(0, 1, 0, 4, True))]))
    state.clear()
    assert not state.step(Access(read_aligned=BYTES))
