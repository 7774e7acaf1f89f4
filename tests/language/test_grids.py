"""Tile and block grids against NumPy slices, and the gather by flattened positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.trace.binding import from_host

MODES = ("native", "reference", "debug")


def traced(function: Any, *arrays: Any) -> Any:
    """What `function` returns, called on symbolic tensors."""
    found = []
    kernel = tilelang.simulate(lambda *tensors: found.append(function(*tensors)))
    kernel.trace(arrays, {}, [from_host(a, "numpy") for a in arrays], kernel.options.resolve())
    return found[0]


def position(view: Any) -> tuple[Any, ...]:
    return view.shape, view.offset, view.strides


X = np.arange(300 * 70, dtype=np.float32).reshape(300, 70)


def test_tiles_of_a_tensor() -> None:
    def check(x: Any) -> None:
        grid = nl.tiles(x, tile_shape=(128, 32))
        assert isinstance(grid, nl.NkiTileGrid) and isinstance(grid, nl.NkiGrid)
        assert (grid.shape, grid.tile_shape, grid.element_shape) == ((3, 3), (128, 32), (300, 70))
        assert grid.index_step_elements == (128, 32) and grid.is_remainder and grid.is_data_representable
        assert position(grid.data) == position(x)
        assert (grid.dtype, grid.buffer) == (x.dtype, x.buffer)
        assert position(grid[1, 2].data) == position(x[128:256, 64:70])
        assert grid[1, 2].shape == () and grid[1, 2].element_shape == (128, 6) and grid[1, 1].is_remainder is False
        row = grid[-1]
        assert row.shape == (3,) and row.element_shape == (44, 70) and position(row.data) == position(x[256:300])
        assert position(row[0:2].data) == position(x[256:300, 0:64])
        stepped = grid[::2, 0]
        assert stepped.shape == (2,) and stepped.element_shape == (172, 32)
        assert not stepped.is_data_representable
        with pytest.raises(ValueError, match="no single access pattern"):
            _ = stepped.data
        assert position(stepped[1].data) == position(x[256:300, 0:32])
        assert len(grid) == 3 and [tile.element_shape for tile in grid[0]] == [(128, 32), (128, 32), (128, 6)]

    traced(check, X)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_cells_are_slices(data: Any) -> None:
    shape = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    tile = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    block = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))

    def check(x: Any) -> None:
        grid = nl.blocks(x, tile_shape=tile, block_shape=block)
        steps = [t * b for t, b in zip(tile, block, strict=True)]
        assert grid.shape == tuple(-(-n // s) for n, s in zip(shape, steps, strict=True))
        assert grid.block_shape == block and grid.index_step_elements == tuple(steps)
        i, j = (data.draw(st.integers(0, n - 1)) for n in grid.shape)
        cell = grid[i, j]
        wanted = x[steps[0] * i : min(steps[0] * (i + 1), shape[0]), steps[1] * j : min(steps[1] * (j + 1), shape[1])]
        assert cell.element_shape == wanted.shape and position(cell.data) == position(wanted)
        inner = nl.tiles(cell)
        assert inner.shape == tuple(-(-n // t) for n, t in zip(wanted.shape, tile, strict=True))
        k, m = (data.draw(st.integers(0, n - 1)) for n in inner.shape)
        last = wanted[
            tile[0] * k : min(tile[0] * (k + 1), wanted.shape[0]), tile[1] * m : min(tile[1] * (m + 1), wanted.shape[1])
        ]
        assert position(inner[k, m].data) == position(last)

    traced(check, np.zeros(shape, np.float32))


def test_leading_dims_are_slabs() -> None:
    def check(x: Any) -> None:
        grid = nl.tiles(x, tile_shape=(4, 8))
        assert grid.shape == (6, 2, 2) and grid.element_shape == (6, 7, 9)
        assert grid[3].element_shape == (7, 9) and position(grid[3, 1, 0].data) == position(x[3, 4:7, 0:8])
        assert position(grid[::2].data) == position(x[::2])

    traced(check, np.zeros((6, 7, 9), np.float32))


@pytest.mark.parametrize("mode", MODES)
def test_a_kernel_on_grids(mode: str) -> None:
    """Tiles of HBM through blocks of SBUF and back, remainders included."""

    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        source, target = nl.tiles(x, tile_shape=(128, 32)), nl.tiles(out, tile_shape=(128, 32))
        held = nl.alloc_tiles(tile_shape=(128, 32), element_shape=x.shape, buffer=nl.sbuf, dtype=x.dtype)
        assert held.shape == source.shape and held.element_shape == x.shape and held.buffer is nl.sbuf
        twice = nl.empty_like(held)
        for i in range(source.shape[0]):
            for j in range(source.shape[1]):
                nisa.dma_copy(held[i, j].data, source[i, j].data)
                nisa.tensor_scalar(twice[i, j].data, held[i, j].data, nl.multiply, 2.0)
        for i in range(source.shape[0]):
            row = twice[i]
            assert row.is_data_representable and not twice.is_data_representable
            nisa.dma_copy(target[i].data, row.data)
        return out

    np.testing.assert_array_equal(tilelang.simulate(kernel, mode=mode)(X), 2 * X)


def test_allocated_blocks_and_their_likes() -> None:
    def check(x: Any) -> None:
        grid = nl.alloc_blocks(
            tile_shape=(64, 2, 8), block_shape=(1, 2, 1), element_shape=(100, 7, 20), buffer=nl.sbuf, dtype=nl.bfloat16
        )
        assert grid.shape == (2, 2, 3) and grid.block_shape == (1, 2, 1)
        cells = nl.tiles(grid[1, 1, 2])
        assert cells.shape == (1, 2, 1) and cells[0, 1, 0].data.shape == (36, 1, 4)
        assert cells[0, 0, 0].data.offset == ((1 * 4 + 2) * 3 + 2) * 16
        stepped = nl.empty_like(nl.tiles(x, tile_shape=(100, 10))[::2, 1:4], buffer=nl.sbuf)
        assert stepped.shape == (2, 3) and stepped.element_shape == (200, 30) and stepped.tile_shape == (100, 10)
        with pytest.raises(TypeError, match=r"pass the grid's \.data"):
            nisa.memset(grid, 0)
        many = nl.alloc_tiles(
            tile_shape=(8, 8), element_shape=(16, 16), buffer=nl.private_hbm, dtype=nl.float32, name="m"
        )
        assert many.data.shape == (16, 16)

    traced(check, X)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda x: nl.tiles(x, tile_shape=[4, 4]), TypeError, "not a tuple of Python ints"),
        (lambda x: nl.tiles(x, tile_shape=(4, True)), TypeError, "not a tuple of Python ints"),
        (lambda x: nl.tiles(x, tile_shape=(4,)), ValueError, "at least 2"),
        (lambda x: nl.tiles(x, tile_shape=(4, 0)), ValueError, "positive"),
        (lambda x: nl.tiles(x, tile_shape=(1, 4, 4)), ValueError, "more dims"),
        (lambda x: nl.tiles(3, tile_shape=(4, 4)), TypeError, "must be a tensor or a grid"),
        (lambda x: nl.blocks(x, tile_shape=(4, 4), block_shape=(2,)), ValueError, "differ in length"),
        (lambda x: nl.blocks(x, tile_shape=(4, 4), block_shape=(2, 0)), ValueError, "positive"),
        (lambda x: nl.tiles(x, tile_shape=(4, 4))[0, 0, 0], IndexError, "3 indices"),
        (lambda x: nl.tiles(x, tile_shape=(4, 4))[99], IndexError, "cell 99"),
        (lambda x: nl.tiles(x, tile_shape=(4, 4))[::-1], ValueError, "positive step"),
        (lambda x: nl.tiles(x, tile_shape=(4, 4))[5:5], ValueError, "is empty"),
        (lambda x: nl.tiles(x, tile_shape=(4, 4))["a"], TypeError, "ints and slices"),
        (lambda x: len(nl.tiles(x, tile_shape=(4, 4))[0, 0]), TypeError, "no length"),
        (lambda x: nl.tiles(nl.tiles(x, tile_shape=(4, 4))[::2]), ValueError, "regrouped"),
        (lambda x: nl.tiles(nl.ndarray((4, 4, 4), nl.float32), tile_shape=(4, 4)), ValueError, "untiled leading"),
        (
            lambda x: nl.alloc_tiles(tile_shape=(4, 4), element_shape=(8, 8), buffer="sbuf", dtype=nl.int8),
            TypeError,
            "not a memory region",
        ),
        (
            lambda x: nl.alloc_tiles(tile_shape=(4, 4), element_shape=(8, 8, 8), buffer=nl.sbuf, dtype=nl.int8),
            ValueError,
            "differ in length",
        ),
    ],
)
def test_bad_grids(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        traced(make, X)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "uint16", "bfloat16"])
def test_gather_flattened(mode: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(0, 99, (64, 5, 6)).astype(dtype if dtype != "bfloat16" else np.float32)
    index = rng.integers(0, 30, (64, 2, 4)).astype(np.uint32)

    def kernel(x: Any, i: Any) -> Any:
        out = nl.ndarray(i.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.gather_flattened(nl.load(x), nl.load(i), dtype=nl.float32))
        return out

    ours = tilelang.simulate(kernel, mode=mode)(data, index)
    flat = np.take_along_axis(data.reshape(64, 30), index.reshape(64, 8).astype(np.int64), axis=1)
    np.testing.assert_array_equal(ours.reshape(64, 8), flat.astype(np.float32))
    with pytest.raises(ValueError, match="only 0 exists"):
        traced(lambda x, i: nl.gather_flattened(nl.load(x), nl.load(i), axis=1), data, index)
