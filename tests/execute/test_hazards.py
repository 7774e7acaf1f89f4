"""Operands that share memory, results wider than their rows, destinations that meet themselves: the same bits in all
modes, or a clear refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tests.conformance.harness import run_everywhere
from tilelang import simulate
from tilelang.errors import TileRuleError, TileUnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:.*is not contiguous")
X = np.random.default_rng(11).integers(-9, 10, (128, 600)).astype(np.float32)


def saved(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def one(kernel: Callable[..., Any], *args: Any) -> Any:
    return run_everywhere(kernel, args)[0]


def pattern(tile: Any, offset: int, *pairs: tuple[int, int]) -> Any:
    """The view of a (128, 600) tile that walks (step, count) pairs from element `offset` of each row."""
    return tile.ap([[600, tile.shape[0]], *[list(pair) for pair in pairs]], offset=offset)


SHIFTS: dict[str, Callable[[Any], Any]] = {
    "copy right": lambda t: nisa.tensor_copy(t[:, 1:600], t[:, 0:599]),
    "copy left": lambda t: nisa.tensor_copy(t[:, 0:599], t[:, 1:600]),
    "interleaved": lambda t: nisa.tensor_copy(t[:, 0:300], t[:, 0:600:2]),
    "reversed order": lambda t: nisa.tensor_copy(
        t[:, 0:600].reshape((128, 20, 30)), t.reshape((128, 30, 20)).permute((0, 2, 1))
    ),
    "tensor_tensor": lambda t: nisa.tensor_tensor(t[:, 2:600], t[:, 0:598], t[:, 1:599], op=nl.add),
    "tensor_scalar by own column": lambda t: nisa.tensor_scalar(t, t, nl.add, t[:, 300:301]),
    "scan": lambda t: nisa.tensor_tensor_scan(t[:, 1:600], t[:, 0:599], t[:, 0:599], 0.5, nl.multiply, nl.minimum),
    "select": lambda t: nisa.select_reduce(t[:, 1:500], t.view(nl.uint16)[:, 0:499], t[:, 0:499], 2.0),
    "predicated": lambda t: nisa.tensor_copy_predicated(t[:, 1:600], t[:, 0:599], t.view(nl.uint32)[:, 1:600]),
    "reduction": lambda t: nisa.tensor_reduce(t[:, 7:27], nl.add, t.reshape((128, 20, 30)), (2,)),
    "activation": lambda t: nisa.activation(t[:, 3:600], nl.square, t[:, 0:597], bias=t[:, 0:1], scale=t[:, 1:2]),
    "second output in the input": lambda t: nisa.activation_reduce(
        t[:, 1:600], nl.square, t[:, 0:599], nl.add, t[:, 0:1]
    ),
    "second output elsewhere": lambda t: nisa.tensor_scalar_reduce(
        t[:, 1:500], t[:, 0:499], nl.add, 1.0, nl.maximum, t[:, 599:600]
    ),
    "top eight": lambda t: nisa.max8(t[:, 4:12], t),
    "statistics": lambda t: nisa.bn_stats(t[:, 2:8], t[:, 0:500]),
    "dma": lambda t: nisa.dma_copy(t[:, 1:600], t[:, 0:599]),
    "dma across rows": lambda t: nisa.dma_copy(t[1:128], t[0:127]),
    "dma with strided rows": lambda t: nisa.dma_copy(t[0:128:2], t[64:128]),
    "transpose in place": lambda t: nisa.dma_transpose(t[:, 0:128], t[:, 0:128]),
    "vector transpose in place": lambda t: nisa.nc_transpose(t[0:32, 0:32], t[0:32, 0:32], engine=nisa.engine.vector),
}


@pytest.mark.parametrize("case", SHIFTS)
def test_inputs_are_read_before_the_output_is_written(case: str) -> None:
    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        SHIFTS[case](tile)
        return saved(tile)

    changed = one(kernel, X)
    assert (changed != X).any()


def test_what_reading_first_means() -> None:
    """The reference itself, against NumPy."""

    def kernel(x: Any) -> Any:
        tile, other = nl.load(x), nl.load(x)
        nisa.tensor_tensor(tile[:, 2:600], tile[:, 0:598], tile[:, 1:599], op=nl.add)
        nisa.dma_copy(other[1:128], other[0:127])
        return saved(tile), saved(other)

    tile, other = run_everywhere(kernel, [X])
    np.testing.assert_array_equal(tile[:, 2:], X[:, :598] + X[:, 1:599])
    np.testing.assert_array_equal(other[1:], X[:127])


@pytest.mark.parametrize("dtype", [nl.float32, nl.int32, nl.bfloat16])
@pytest.mark.parametrize("columns", [1, 2, 3, 5, 8])
def test_statistics_wider_than_their_rows(columns: int, dtype: Any) -> None:
    """Six results of rows of fewer columns, into adjacent and into scattered places."""

    def kernel(x: Any) -> Any:
        tile, near, far = nl.load(x), nl.ndarray((128, 600), dtype), nl.ndarray((128, 600), dtype)
        nisa.memset(near, 0)
        nisa.memset(far, 0)
        nisa.bn_stats(near[:, 0:6], tile[:, 0:columns])
        nisa.bn_stats(pattern(far, 3, (7, 6)), tile[:, 0:columns])
        return saved(near), saved(far)

    near, far = run_everywhere(kernel, [X])
    np.testing.assert_array_equal(far[:, 3:45:7], near[:, :6])
    assert (near[:, 0] == (columns + 1) // 2).all() and (near[:, 3] == columns // 2).all()


OVERLAPPING: dict[str, Callable[[Any], Any]] = {
    "broadcast": lambda t: pattern(t, 5, (0, 40)),
    "outer broadcast": lambda t: pattern(t, 5, (0, 4), (1, 10)),
    "sliding": lambda t: pattern(t, 5, (1, 4), (1, 10)),
    "crossing": lambda t: pattern(t, 5, (3, 4), (2, 10)),
}
WRITERS: dict[str, Callable[[Any, Any], Any]] = {
    "dma": lambda d, s: nisa.dma_copy(d, s),
    "dma cast": lambda d, s: nisa.dma_copy(d.view(nl.int32), s),
    "vector": lambda d, s: nisa.tensor_copy(d, s),
    "arithmetic": lambda d, s: nisa.tensor_scalar(d, s, nl.multiply, 3.0),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("case", OVERLAPPING)
def test_the_last_element_wins(case: str, writer: str) -> None:
    def kernel(x: Any) -> Any:
        source, tile = nl.load(x), nl.load(x)
        WRITERS[writer](OVERLAPPING[case](tile), source[:, 100:140])
        return saved(tile)

    result = one(kernel, X)
    steps = {"broadcast": [(0, 40)], "outer broadcast": [(0, 4), (1, 10)], "sliding": [(1, 4), (1, 10)]}
    expected = X[0].copy()
    values = {"dma cast": X[0, 100:140].astype(np.int32).view(np.float32), "arithmetic": 3 * X[0, 100:140]}
    places = np.zeros(1, np.int64)
    for step, count in steps.get(case, [(3, 4), (2, 10)]):
        places = (places[:, None] + step * np.arange(count)).ravel()
    for place, value in zip(places, values.get(writer, X[0, 100:140]), strict=True):
        expected[5 + place] = value
    np.testing.assert_array_equal(result[0], expected)


def test_matmuls_into_elements_that_share_memory() -> None:
    def kernel(x: Any, accumulate: Any) -> Any:
        tile = nl.load(x)
        psum = nl.ndarray((32, 40), nl.float32, buffer=nl.psum)
        nisa.memset(psum, 1.0)
        nisa.nc_matmul(psum[:, 3:4].broadcast(1, 8), tile[:, 0:32], tile[:, 0:8], accumulate=accumulate)
        return saved(nl.copy(psum))

    expected = np.ones((32, 40), np.float32)
    expected[:, 3] = X[:, :32].T @ X[:, 7]
    np.testing.assert_array_equal(one(lambda x: kernel(x, False), X), expected)
    for accumulate in (True, None):
        with pytest.raises(
            TileUnsupportedError, match='elements of dst share memory(.|\n)*test_hazards(.|\n)*mode="reference"'
        ):
            simulate(kernel)(X, accumulate)
        added = simulate(kernel, mode="reference")(X, accumulate)
        np.testing.assert_array_equal(added[:, 3], expected[:, 3] + 1)


def gather_onto_index(x: Any, index: Any) -> None:
    where = nl.load(index)
    nisa.dma_copy(where[:, 1:2], x.view(nl.int32)[:, 0:1].ap([[600, 8], [1, 1]], vector_offset=where[:, 0:1]))
    nisa.dma_copy(where[:, 0:2], x.view(nl.int32).ap([[600, 8], [1, 2]], vector_offset=where[:, 0:1]))


def gather_within_a_tensor(x: Any, index: Any) -> None:
    where = nl.load(index)
    nisa.dma_copy(x[0:8], x.vector_select(0, where[:, 0:1]))


def scatter_within_a_tensor(x: Any, index: Any) -> None:
    where = nl.load(index)
    nisa.dma_copy(x.vector_select(0, where[:, 0:1]), x[0:8])


@pytest.mark.parametrize("kernel", [gather_onto_index, gather_within_a_tensor, scatter_within_a_tensor])
def test_indirect_copies_onto_what_they_read_are_refused(kernel: Callable[..., None]) -> None:
    index = np.zeros((8, 2), np.int32)
    with pytest.raises(TileUnsupportedError, match=r"dst shares memory with (src|its index)(.|\n)*test_hazards"):
        simulate(kernel)(X.copy(), index)
    simulate(kernel, mode="reference")(X.copy(), index)


def test_more_dims_than_a_descriptor_has() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((2, 2, 2, 2, 2, 2, 2), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(
            out.permute((6, 4, 5, 2, 3, 0, 1)),
            x[0:1, 0:128].reshape((2, 2, 2, 2, 2, 2, 2)).permute((1, 0, 3, 2, 5, 4, 6)),
        )
        return out

    with pytest.raises(TileUnsupportedError, match="at most 6 dims(.|\n)*test_hazards"):
        simulate(kernel)(X)
    assert simulate(kernel, mode="reference")(X).shape == (2,) * 7


def test_long_rows_that_overlap() -> None:
    def kernel(x: Any) -> Any:
        tile = nl.ndarray((1, 50000), nl.float32)
        nisa.memset(tile, 1.0)
        nisa.tensor_copy(tile[:, 0:600], nl.load(x[0:1]))
        nisa.tensor_tensor(tile[:, 8:50000], tile[:, 0:49992], tile[:, 0:49992], op=nl.add)
        return saved(tile)

    result = simulate(kernel)(X)
    np.testing.assert_array_equal(result[0, 8:608], 2 * X[0])
    np.testing.assert_array_equal(result[0, 608:], np.full(50000 - 608, 2.0))


def test_engines_take_four_free_dims() -> None:
    def kernel(x: Any, dims: int) -> Any:
        tile = nl.ndarray((128, *(3,) * dims), nl.float32)
        nisa.memset(tile.flatten_dims(1, dims), 2.0)
        part = tile
        for dim in range(1, dims + 1):
            part = part.slice(dim, 0, 2)
        result = nl.ndarray((128, 2**dims), nl.float32)
        nisa.tensor_copy(result, part)
        return saved(result)

    assert (simulate(kernel)(X, 4) == 2).all()
    with pytest.raises(TileRuleError, match=r"AP\.R5.*5 free dims"):
        simulate(kernel)(X, 5)
