"""Index expressions of the older dialect: integer arrays that must be affine in the position, and masks over them.

`nl.arange` and `nl.mgrid` give NumPy arrays, so index arithmetic and comparisons are NumPy's (language.md 8.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilelang.errors import TileTypeError, TileUnsupportedError, TileValueError

__all__ = ["Affine", "Box", "Grid", "affine", "arange", "box_of", "mgrid", "whole_box"]


class Affine(NamedTuple):
    """`start + sum of steps[a] * i_a`, i the position in the result."""

    start: int
    steps: tuple[int, ...]

    def bounds(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Smallest and largest value over a result of `shape`."""
        low = high = self.start
        for step, count in zip(self.steps, shape, strict=True):
            reach = step * (count - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


class Box(NamedTuple):
    """A block of positions: `[start, stop)` along each axis."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return tuple(b - a for a, b in zip(self.start, self.stop, strict=True))


def whole_box(shape: tuple[int, ...]) -> Box:
    """All positions of `shape`."""
    return Box((0,) * len(shape), shape)


def affine(index: NDArray[Any], shape: tuple[int, ...]) -> Affine:
    """The integer array `index`, broadcast to `shape`, as an affine function. Raises TileUnsupportedError if none."""
    padded = index.reshape((1,) * (len(shape) - index.ndim) + index.shape)
    start = int(padded[(0,) * padded.ndim])
    steps = []
    expected: Any = start
    for axis, count in enumerate(padded.shape):
        first = [0] * padded.ndim
        step = 0
        if count > 1:
            first[axis] = 1
            step = int(padded[tuple(first)]) - start
            ramp = np.arange(count) * step
            expected = expected + ramp.reshape([-1 if a == axis else 1 for a in range(padded.ndim)])
        steps.append(step)
    if padded.size > 1 and not np.array_equal(padded, np.broadcast_to(expected, padded.shape)):
        raise TileUnsupportedError(
            "an index expression is not affine in the position", hint="use sums of nl.arange terms times constants"
        )
    return Affine(start, tuple(steps))


def box_of(mask: Any, shape: tuple[int, ...]) -> Box | None:
    """The block of positions where `mask` holds; None when it holds nowhere. Raises for other regions than blocks."""
    if mask is None or mask is True:
        return whole_box(shape)
    if mask is False:
        return None
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise TileTypeError(f"mask must be a comparison of index expressions, got {array.dtype}")
    try:
        np.broadcast_shapes(array.shape, shape)
    except ValueError:
        raise TileValueError(f"mask of shape {array.shape} for an instruction of shape {shape}") from None
    padded = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if not padded.any():
        return None
    start, stop = [], []
    for axis, count in enumerate(shape):
        if padded.shape[axis] == 1:
            start.append(0)
            stop.append(count)
            continue
        held = np.flatnonzero(padded.any(axis=tuple(a for a in range(padded.ndim) if a != axis)))
        start.append(int(held[0]))
        stop.append(int(held[-1]) + 1)
    inside = tuple(slice(a, b) if n > 1 else slice(None) for a, b, n in zip(start, stop, padded.shape, strict=True))
    if not padded[inside].all():
        raise TileUnsupportedError(
            "the mask is no block of rows and columns", hint="use nisa.affine_select with pred= for other regions"
        )
    return Box(tuple(start), tuple(stop))


def arange(start: int, stop: int | None = None) -> NDArray[np.int64]:
    """Index vector; lift it with `[:, None]` or `[None, :]` before indexing."""
    return np.arange(start) if stop is None else np.arange(start, stop)


class Grid:
    """What `nl.mgrid[…]` gives: index arrays, to unpack, or by the attributes p, x, y, z, w."""

    def __init__(self, arrays: list[NDArray[Any]]) -> None:
        self._arrays = arrays

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, item: int) -> NDArray[Any]:
        return self._arrays[item]

    def __getattr__(self, name: str) -> NDArray[Any]:
        position = "pxyzw".find(name) if len(name) == 1 else -1
        if not 0 <= position < len(self._arrays):
            raise AttributeError(f"nl.mgrid of {len(self._arrays)} dims has no {name!r}")
        return self._arrays[position]


class _MGrid:
    """`nl.mgrid[a:b, c:d]`: dense index arrays."""

    def __getitem__(self, key: Any) -> Grid:
        slices = key if isinstance(key, tuple) else (key,)
        for item in slices:
            if not isinstance(item, slice) or item.stop is None:
                raise TileTypeError(f"nl.mgrid takes slices a:b, got {item!r}")
        vectors = [np.arange(item.start or 0, item.stop, item.step or 1) for item in slices]
        shape = tuple(len(v) for v in vectors)
        lifted = [
            np.broadcast_to(v.reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape)
            for axis, v in enumerate(vectors)
        ]
        return Grid(lifted)


mgrid = _MGrid()
