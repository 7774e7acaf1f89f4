"""Index algebra of the older dialect against NumPy's own indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilelang.nki  # noqa: F401  (makes neuronxcc importable)
from tilelang.beta1 import kernel as legacy
from tilelang.beta1 import language as nl
from tilelang.beta1.indices import Affine, affine, box_of
from tilelang.errors import TileTypeError, TileUnsupportedError, TileValueError

X = np.arange(20 * 6 * 7, dtype=np.float32).reshape(20, 6, 7)


def run(function: Any, *arrays: Any) -> Any:
    return legacy.simulate_kernel(function, *arrays)


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_advanced_indices_pick_what_numpy_picks(data: Any) -> None:
    rows, outer, inner = (data.draw(st.integers(1, n)) for n in (8, 3, 3))
    steps = [data.draw(st.integers(0, 2)) for _ in range(4)]
    start = [data.draw(st.integers(0, 3)) for _ in range(3)]
    i = np.arange(rows)[:, None, None]
    j, k = np.arange(outer)[None, :, None], np.arange(inner)[None, None, :]
    key = (start[0] + (1 + steps[0]) * i % 20 * 0 + i, steps[1] * j + k, start[2] + steps[3] * k + (steps[2] > 1) * j)
    if max(key[1].max() - 5, key[2].max() - 6, key[0].max() - 19) > 0:
        return
    expected = X[tuple(np.broadcast_arrays(*key))]

    def from_hbm(x: Any) -> Any:
        return stored(nl.load(x[key]))

    def from_sbuf(x: Any) -> Any:
        tile = nl.load(x[0:20])
        return stored(nl.copy(tile[(i + 0, key[1], key[2])]))

    np.testing.assert_array_equal(run(from_hbm, X), expected)
    np.testing.assert_array_equal(run(from_sbuf, X), X[tuple(np.broadcast_arrays(i, key[1], key[2]))])


@pytest.mark.parametrize(
    "key",
    [np.s_[3], np.s_[2:9], np.s_[2:9, 1], np.s_[..., 2], np.s_[:, 1:5:2, 3:], np.s_[4, 2:4, ::3], np.s_[0:20, 0, 0]],
    ids=str,
)
def test_basic_indices(key: Any) -> None:
    ours = run(lambda x: stored(nl.load(x[key])), X)
    expected = X[key]
    np.testing.assert_array_equal(ours.ravel(), expected.ravel())
    assert ours.shape == (expected.shape if expected.ndim > 1 else (*expected.shape, 1))


@pytest.mark.parametrize(
    ("index", "shape", "expected"),
    [
        (np.arange(4)[:, None] * 3 + 2, (4, 5), Affine(2, (3, 0))),
        (np.arange(5)[None, :], (4, 5), Affine(0, (0, 1))),
        (np.array([[7]]), (4, 5), Affine(7, (0, 0))),
        (2 * np.arange(4)[:, None] - np.arange(5)[None, :], (4, 5), Affine(0, (2, -1))),
    ],
)
def test_affine(index: Any, shape: tuple[int, ...], expected: Affine) -> None:
    assert affine(index, shape) == expected
    low, high = expected.bounds(shape)
    assert (low, high) == (index.min(), index.max())


def test_what_is_not_affine_is_refused() -> None:
    with pytest.raises(TileUnsupportedError, match="not affine"):
        affine(np.arange(4)[:, None] ** 2, (4, 1))


def test_masks_are_blocks() -> None:
    i, j = np.arange(8)[:, None], np.arange(6)[None, :]
    box = box_of((i < 5) & (j >= 2), (8, 6))
    assert box is not None and (box.start, box.stop, box.shape) == ((0, 2), (5, 6), (5, 4))
    assert box_of(i < 0, (8, 6)) is None and box_of(None, (8, 6)) == box_of(i < 99, (8, 6))
    with pytest.raises(TileUnsupportedError, match="no block"):
        box_of(i >= j, (8, 6))
    with pytest.raises(TileValueError, match="mask of shape"):
        box_of(np.ones((3, 3), bool), (8, 6))
    with pytest.raises(TileTypeError, match="comparison"):
        box_of(i, (8, 6))


def test_mgrid() -> None:
    grid = nl.mgrid[0:4, 2:6]
    p, x = grid
    np.testing.assert_array_equal(p, np.mgrid[0:4, 2:6][0])
    np.testing.assert_array_equal(grid.x, x)
    assert len(grid) == 2
    with pytest.raises(AttributeError, match="has no 'z'"):
        _ = grid.z
    with pytest.raises(TileTypeError, match="slices"):
        _ = nl.mgrid[0:4, 3]
    np.testing.assert_array_equal(run(lambda x: stored(nl.load(x[nl.mgrid[0:20, 0:6, 0:7]])), X), X)


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda x: x[np.arange(4)], TileTypeError, "1-D index vector"),
        (lambda x: x[np.arange(4)[:, None], 0:3], TileTypeError, "do not mix"),
        (lambda x: x[0, 0, 0, 0], TileTypeError, "4 indices"),
        (lambda x: x["a"], TileTypeError, "index 'a'"),
        (lambda x: x[3:3], TileValueError, "empty"),
        (lambda x: nl.load(x[np.arange(30)[:, None], 0, 0]), TileValueError, "indices 0 to 29 of dim 0"),
        (lambda x: nl.load(x[0:21]), TileValueError, "indices 0 to 20"),
        (lambda x: x.__setitem__(0, 1.0), TileTypeError, "nl.store"),
    ],
)
def test_bad_indices(use: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(lambda x: use(x) and None, X)
