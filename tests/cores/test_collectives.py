"""Collectives (language.md 6) against NumPy, written from their definitions, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilelang
import tilelang.collectives as ncc
import tilelang.isa as nisa
import tilelang.language as nl
from tests.tiles import load, store
from tilelang.errors import TileBoundsError

MODES = [dict(mode="native", threads=1), dict(mode="native", threads=2), dict(mode="reference"), dict(mode="debug")]
WORLD = ncc.ReplicaGroup([[0, 1, 2, 3]])
PAIRS = ncc.ReplicaGroup([[2, 0], [1, 3]])
GENERATOR = np.random.default_rng(11)


def launch(kernel: Callable[..., Any], ranks: list[Any], lnc: int | None = None) -> list[Any]:
    """Each rank's result; the same bits in every mode."""
    launched = tilelang.jit(kernel) if lnc is None else tilelang.jit(kernel)[lnc]
    results = [tilelang.launch(launched, ranks, **options) for options in MODES]
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            assert mine.tobytes() == theirs.tobytes()
    return results[0]


def data(shape: tuple[int, ...], dtype: Any = np.float32, ranks: int = 4) -> list[NDArray[Any]]:
    if np.issubdtype(np.dtype(dtype), np.integer):
        return [GENERATOR.integers(0, 60, shape).astype(dtype) for _ in range(ranks)]
    return [GENERATOR.standard_normal(shape).astype(dtype) for _ in range(ranks)]


def members(group: Any, rank: int) -> list[int]:
    return list(next(g for g in group.replica_groups if rank in g))


def reduced(op: Any, parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Ascending in float32, rounded once; integers exactly."""
    wide = np.int64 if np.issubdtype(parts[0].dtype, np.integer) else np.float32
    total = parts[0].astype(wide)
    for part in parts[1:]:
        total = op(total, part.astype(wide))
    return total.astype(parts[0].dtype)


@pytest.mark.parametrize("buffer", [nl.private_hbm, nl.shared_hbm, nl.sbuf])
@pytest.mark.parametrize("group", [WORLD, PAIRS])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8])
@pytest.mark.parametrize(("op", "numpy"), [(nl.add, np.add), (nl.maximum, np.maximum), (nl.minimum, np.minimum)])
def test_all_reduce(buffer: Any, group: Any, dtype: Any, op: Any, numpy: Any) -> None:
    def kernel(x: Any) -> Any:
        src = load(x, buffer)
        dst = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
        ncc.all_reduce([src], [dst], group, op)
        return store(dst)

    xs = data((32, 12), dtype)
    for rank, result in enumerate(launch(kernel, [(x,) for x in xs])):
        np.testing.assert_array_equal(result, reduced(numpy, [xs[m] for m in members(group, rank)]))


def test_integer_sums_saturate_below_32_bits_and_wrap_at_32() -> None:
    def kernel(x: Any) -> Any:
        src, dst = load(x, nl.private_hbm), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
        ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0, 1]]), nl.add)
        return store(dst)

    small, large = np.array([[100, -100]], np.int8), np.array([[2**31 - 1, -(2**31)]], np.int32)
    assert launch(kernel, [small, small])[0].tolist() == [[127, -128]]
    assert launch(kernel, [large, large])[1].tolist() == [[-2, 0]]


@pytest.mark.parametrize(("buffer", "dim"), [(nl.private_hbm, 0), (nl.sbuf, 0), (nl.sbuf, 1)])
@pytest.mark.parametrize("group", [WORLD, PAIRS])
def test_all_gather(buffer: Any, dim: int, group: Any) -> None:
    size = len(group.replica_groups[0])

    def kernel(x: Any) -> Any:
        src = load(x, buffer)
        shape = (x.shape[0] * size, x.shape[1]) if dim == 0 else (x.shape[0], x.shape[1] * size)
        dst = nl.ndarray(shape, dtype=x.dtype, buffer=buffer)
        ncc.all_gather([src], [dst], group, dim)
        return store(dst)

    xs = data((16, 6), ml_dtypes.bfloat16)
    for rank, result in enumerate(launch(kernel, [(x,) for x in xs])):
        np.testing.assert_array_equal(result, np.concatenate([xs[m] for m in members(group, rank)], axis=dim))


@pytest.mark.parametrize("buffer", [nl.private_hbm, nl.sbuf])
@pytest.mark.parametrize("group", [WORLD, PAIRS])
def test_reduce_scatter(buffer: Any, group: Any) -> None:
    size = len(group.replica_groups[0])

    def kernel(x: Any) -> Any:
        src = load(x, buffer)
        dst = nl.ndarray((x.shape[0] // size, x.shape[1]), dtype=x.dtype, buffer=buffer)
        ncc.reduce_scatter([src], [dst], group, 0, nl.add)
        return store(dst)

    xs = data((32, 6))
    for rank, result in enumerate(launch(kernel, [(x,) for x in xs])):
        parts = members(group, rank)
        total = reduced(np.add, [xs[m] for m in parts])
        np.testing.assert_array_equal(result, np.split(total, size)[parts.index(rank)])


@pytest.mark.parametrize("group", [WORLD, PAIRS])
def test_all_to_all_of_several_tensors_in_place(group: Any) -> None:
    def kernel(x: Any, y: Any) -> Any:
        first, second = load(x, nl.private_hbm), load(y, nl.private_hbm)
        ncc.all_to_all([first, second], [first, second], group, 0)
        return store(first) if x.shape[0] == 8 else store(second)

    xs, ys = data((8, 4)), data((4, 2, 3))
    results = launch(kernel, list(zip(xs, ys, strict=True)))
    for rank, result in enumerate(results):
        parts = members(group, rank)
        chunks = [np.split(xs[m], len(parts))[parts.index(rank)] for m in parts]
        np.testing.assert_array_equal(result, np.concatenate(chunks))


def test_collective_permute_leaves_others_alone() -> None:
    def kernel(x: Any) -> Any:
        src, dst = load(x, nl.private_hbm), load(x, nl.private_hbm)
        ncc.collective_permute([src], [dst], [(0, 2), (2, 3)])
        return store(dst)

    xs = data((4, 8))
    expected = [xs[0], xs[1], xs[0], xs[2]]
    for result, wanted in zip(launch(kernel, [(x,) for x in xs]), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_ring_with_ranks_in_registers() -> None:
    """A ring all-gather: at each step the block of the rank whose data is at hand is written to its place."""
    size = 4

    def kernel(x: Any, table: Any) -> Any:
        out = nl.ndarray((size, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        blocks = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm) for _ in range(size)]
        nisa.dma_copy(dst=blocks[0], src=x)
        for step in range(size):
            at = ncc.collective_permute_implicit_current_processing_rank_id(step, WORLD)
            rows, columns = x.shape
            place = out.ap([[columns, rows], [1, columns]], scalar_offset=at, indirect_dim=0)
            nisa.dma_copy(dst=place, src=blocks[step])
            if step + 1 < size:
                ncc.collective_permute_implicit([[blocks[step]]], [[blocks[step + 1]]], WORLD)
        return out

    xs = data((8, 16))
    for result in launch(kernel, [(x, np.zeros(1, np.float32)) for x in xs]):
        np.testing.assert_array_equal(result, np.stack(xs))


def test_permute_implicit_reduce_on_two_channels() -> None:
    def kernel(x: Any, y: Any) -> Any:
        a, b = load(x, nl.private_hbm), load(y, nl.private_hbm)
        c, d = load(x, nl.private_hbm), load(x, nl.private_hbm)
        channels = dict(channel_ids=[0, 1])
        ncc.collective_permute_implicit_reduce([[a], [b]], [[b], [b]], [[c], [d]], WORLD, nl.add, **channels)
        nisa.dma_copy(dst=a, src=d)
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0], src=c)
        nisa.dma_copy(dst=out[1], src=d)
        return out

    xs, ys = data((4, 8), ml_dtypes.bfloat16), data((4, 8), ml_dtypes.bfloat16)
    for rank, result in enumerate(launch(kernel, list(zip(xs, ys, strict=True)))):
        x, y = xs[rank - 1].astype(np.float32), ys[rank - 1].astype(np.float32)
        np.testing.assert_array_equal(result, np.stack([x + y, y + y]).astype(ml_dtypes.bfloat16))


def test_rank_id() -> None:
    def kernel(x: Any) -> Any:
        tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.register_store(tile, ncc.rank_id())
        return store(tile)

    assert [int(r[0, 0]) for r in launch(kernel, [np.zeros(1, np.float32)] * 3)] == [0, 1, 2]
    assert int(tilelang.simulate(kernel)(np.zeros(1, np.float32))[0, 0]) == 0


@pytest.mark.parametrize("buffer", [nl.private_hbm, nl.sbuf])
def test_two_cores_a_rank(buffer: Any) -> None:
    """HBM operands: once a rank, when both cores have come; SBUF operands: among cores of one number."""

    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        src = load(x, nl.sbuf)
        nisa.tensor_scalar(dst=src, data=src, op0=nl.multiply, operand0=float(core + 1))
        dst = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
        ncc.all_reduce([load(src, buffer) if buffer is not nl.sbuf else src], [dst], ncc.ReplicaGroup([[0, 1]]), nl.add)
        nisa.dma_copy(dst=out[core], src=dst)
        return out

    xs = data((16, 4), ranks=2)
    for result in launch(kernel, [(x,) for x in xs], lnc=2):
        np.testing.assert_array_equal(result, np.stack([xs[0] + xs[1], 2 * xs[0] + 2 * xs[1]]))


def test_one_rank_alone_copies() -> None:
    def kernel(x: Any) -> Any:
        src, dst = load(x, nl.private_hbm), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
        ncc.all_reduce([src], [dst], [[0]], nl.add)
        return store(dst)

    x = data((4, 4))[0]
    for options in MODES:
        np.testing.assert_array_equal(tilelang.simulate(kernel, **options)(x), x)


# -- variable lengths


def tables(n: int, length: int, rows: int) -> list[NDArray[np.uint32]]:
    found = []
    for _ in range(n):
        table = np.zeros((rows, n), np.uint32)
        table[0] = GENERATOR.integers(0, 4, n)
        table[1] = [GENERATOR.integers(0, length - int(c) + 1) for c in table[0]]
        if rows == 4:
            table[3] = np.arange(n)[::-1] * 4
        found.append(table)
    return found


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("memory", [nl.private_hbm, nl.sbuf])
@pytest.mark.parametrize(
    ("gathers", "rows", "known"), [(False, 3, False), (False, 4, False), (True, 3, False), (False, 3, True)]
)
def test_variable_lengths(prepared: bool, memory: Any, gathers: bool, rows: int, known: bool) -> None:
    n, length, slot = 4, 10, 4

    def kernel(x: Any, table: Any) -> Any:
        src, dst = load(x, nl.private_hbm), nl.ndarray((n * slot,), dtype=x.dtype, buffer=nl.private_hbm)
        zero = nl.ndarray((1, n * slot), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=zero, value=0)
        nisa.dma_copy(dst=dst.reshape((1, n * slot)), src=zero)
        metadata = load(table if memory is nl.private_hbm else table.reshape((1, rows, n)), memory)
        arguments = ([src], [dst], WORLD, metadata, known, rows == 4)
        if prepared:
            start = ncc.all_gather_v_prepare if gathers else ncc.all_to_all_v_prepare
            go = ncc.all_gather_v_trigger if gathers else ncc.all_to_all_v_trigger
            handle = start(*arguments)
            if memory is nl.sbuf:
                nisa.memset(dst=metadata[:, 0:2], value=0)  # what was prepared does not change any more
            go(handle)
        else:
            (ncc.all_gather_v if gathers else ncc.all_to_all_v)(*arguments)
        out = nl.ndarray((n * slot + n,), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0 : n * slot], src=dst)
        row = metadata[2] if memory is nl.private_hbm else metadata[0:1, 2, :]
        counts = nl.ndarray((1, n), dtype=x.dtype, buffer=nl.sbuf)
        seen = nl.ndarray((1, n), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.dma_copy(dst=seen, src=row)
        nisa.tensor_copy(dst=counts, src=seen)
        nisa.dma_copy(dst=out[n * slot : n * slot + n], src=counts)
        return out

    xs, metadata = data((length,), np.int32), tables(n, length, rows)
    results = launch(kernel, list(zip(xs, metadata, strict=True)))
    for rank, result in enumerate(results):
        expected = np.zeros(n * slot + n, np.int32)
        for sender in range(n):
            column = 0 if gathers else rank
            count, start = int(metadata[sender][0, column]), int(metadata[sender][1, column])
            at = int(metadata[rank][3, sender]) if rows == 4 else slot * sender
            expected[at : at + count] = xs[sender][start : start + count]
            expected[n * slot + sender] = 0 if known else count
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize(("row", "value"), [(0, 5), (1, 9)])
def test_counts_that_do_not_fit(options: dict[str, Any], row: int, value: int) -> None:
    def kernel(x: Any, table: Any) -> Any:
        dst = nl.ndarray((8,), dtype=x.dtype, buffer=nl.shared_hbm)
        ncc.all_to_all_v([x], [dst], [[0, 1]], load(table, nl.private_hbm))
        return dst

    table = np.full((3, 2), 2, np.uint32)
    wrong = table.copy()
    wrong[row, 1] = value
    with pytest.raises(TileBoundsError, match="rank 1 sends .* to rank 1"):
        tilelang.launch(kernel, [(np.zeros(10, np.float32), t) for t in (table, wrong)], **options)
