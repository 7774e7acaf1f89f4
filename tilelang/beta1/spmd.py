"""Grids of programs: the body runs once for each point, one after the other, over the same shared HBM (language.md
8.5).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from itertools import product
from typing import Any

from tilelang.ir.regions import MemoryRegion

__all__ = ["Grid", "nc", "num_programs", "program_id", "program_ndim", "run_grid", "shared", "spmd_dim"]


class Grid:
    """The launch under way: sizes, the point that runs, and the shared tensors made so far."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.point = (0,) * len(sizes)
        self.made: list[Any] = []
        self.next = 0


_grid: ContextVar[Grid | None] = ContextVar("grid", default=None)
_ALONE = Grid(())


def run_grid(sizes: tuple[int, ...], body: Callable[[], Any]) -> Any:
    """`body` at each point, row-major; the result of the last."""
    grid = Grid(sizes)
    token = _grid.set(grid)
    try:
        result = None
        for point in product(*(range(n) for n in sizes)):
            grid.point, grid.next = point, 0
            result = body()
        return result
    finally:
        _grid.reset(token)


def _current() -> Grid:
    return _grid.get() or _ALONE


def shared(make: Callable[[], Any], region: Any) -> Any:
    """A new tensor; one in shared HBM is the same for all points, by the order in which they are made."""
    grid = _current()
    if region is not MemoryRegion.shared_hbm or not grid.sizes:
        return make()
    if grid.next == len(grid.made):
        grid.made.append(make())
    grid.next += 1
    return grid.made[grid.next - 1]


def program_id(axis: int) -> int:
    """Position of the running program along `axis` of the grid."""
    return _current().point[axis]


def num_programs(axes: Any = None) -> Any:
    """Sizes of the grid: of one axis, of several, or of all."""
    sizes = _current().sizes
    if axes is None:
        return sizes
    return tuple(sizes[a] for a in axes) if isinstance(axes, (list, tuple)) else sizes[axes]


def program_ndim() -> int:
    """Dims of the grid."""
    return len(_current().sizes)


def nc(n: int) -> int:
    """A grid axis over `n` cores: placement only."""
    return int(n)


def spmd_dim(*sizes: int) -> int:
    """A grid axis of the product of `sizes`: placement only."""
    total = 1
    for size in sizes:
        total *= int(size)
    return total
