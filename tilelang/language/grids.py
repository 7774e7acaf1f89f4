"""Tile and block grids: views that cut a tensor into tiles, with exact remainders (nki-0.7.md 2.3).

A grid issues no instruction and holds no storage of its own; `grid.data` is what instructions take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.indexing import DynamicSlice as ds
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.tensor import NkiTensor
from tilelang.language.common import fail
from tilelang.language.creation import ndarray

__all__ = ["NkiBlockGrid", "NkiGrid", "NkiTileGrid", "alloc_blocks", "alloc_tiles", "blocks", "tiles"]


@dataclass(frozen=True, slots=True)
class _Dim:
    """Cells of one dim: cell `k` covers elements `start + k * stride * step` up to `step` more, but not beyond `stop`.

    `tile`: elements of a tile, None for untiled dims. `consumed`: an int has chosen the only cell.
    """

    start: int
    stop: int
    step: int
    tile: int | None
    stride: int = 1
    consumed: bool = False

    @property
    def count(self) -> int:
        cells = -(-(self.stop - self.start) // self.step)
        return -(-cells // self.stride)

    @property
    def elements(self) -> int:
        """Selected elements, the last cell counted as far as it goes."""
        last = self.start + (self.count - 1) * self.stride * self.step
        return (self.count - 1) * self.step + min(self.step, self.stop - last)

    @property
    def adjacent(self) -> bool:
        return self.stride == 1 or self.count == 1

    def cell(self, index: int) -> _Dim:
        start = self.start + index * self.stride * self.step
        return replace(self, start=start, stop=min(start + self.step, self.stop), stride=1, consumed=True)

    def range(self, chosen: range) -> _Dim:
        start = self.start + chosen.start * self.stride * self.step
        last = self.start + chosen[-1] * self.stride * self.step
        return replace(self, start=start, stop=min(last + self.step, self.stop), stride=self.stride * chosen.step)


class NkiGrid:
    """Tiles or blocks of a tensor. Made by `tiles`, `blocks`, `alloc_tiles`, `alloc_blocks`, and by indexing a grid.

    Indices are ints, which consume their coordinate, and slices with positive steps; the result is a grid.
    """

    def __init__(self, *, tensor: NkiTensor, dims: tuple[_Dim, ...], packed: tuple[int, ...] | None = None) -> None:
        self._tensor = tensor
        self._dims = dims
        self._packed = packed  # tiles per dim of a grid whose tiles lie side by side in SBUF or PSUM

    @property
    def _tiled(self) -> list[_Dim]:
        return [dim for dim in self._dims if dim.tile is not None]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of each coordinate that no int has consumed: untiled dims, then tiles or blocks."""
        return tuple(dim.count for dim in self._dims if not dim.consumed)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Elements of a tile."""
        return tuple(int(dim.tile or 0) for dim in self._tiled)

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Selected elements of each dim of the tensor, remainders exact, without untiled dims chosen by an int."""
        return tuple(dim.elements for dim in self._dims if dim.tile is not None or not dim.consumed)

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """Elements of the tensor for each unit of each coordinate."""
        return tuple(dim.step * dim.stride for dim in self._dims if not dim.consumed)

    @property
    def dtype(self) -> str:
        """dtype of the tensor."""
        return self._tensor.dtype

    @property
    def buffer(self) -> MemoryRegion:
        """Memory of the tensor."""
        return self._tensor.buffer

    @property
    def is_remainder(self) -> bool:
        """True when a selected tile is smaller than the others."""
        return any((dim.stop - dim.start) % int(dim.tile or 1) != 0 for dim in self._tiled)

    @property
    def is_data_representable(self) -> bool:
        """Whether `data` exists: one access pattern covers the whole selection."""
        if not all(dim.adjacent or dim.step == 1 for dim in self._dims):
            return False
        if self._packed is None:
            return True
        spread = [n for n, dim in enumerate(self._dims) if dim.stop - dim.start > int(dim.tile or 1)]
        return not spread or (spread == [1] and len(self._dims) == 2)

    @property
    def data(self) -> NkiTensor:
        """The selection as one tensor view. Raises TileValueError when no access pattern covers it."""
        if not self.is_data_representable:
            fail(
                TileValueError(
                    f"a selection of shape {self.shape} in tiles {self.tile_shape} is no single access pattern",
                    rule="grid.R6",
                    hint="index the grid until one cell, or adjacent cells, are left",
                )
            )
        if self._packed is not None:
            return self._packed_view(self._packed)
        key = tuple(
            dim.start
            if dim.consumed and dim.tile is None
            else slice(dim.start, dim.stop, dim.stride if dim.step == 1 else 1)
            for dim in self._dims
        )
        view: NkiTensor = self._tensor[key]
        return view

    def _packed_view(self, counts: tuple[int, ...]) -> NkiTensor:
        sizes = [int(dim.tile or 1) for dim in self._dims]
        position = 0
        for dim, size, count in zip(self._dims, sizes, counts, strict=True):
            position = position * count + dim.start // size
        rows, width = self._dims[0].elements, prod(sizes[1:])
        columns = self._dims[-1].elements
        view: NkiTensor = self._tensor[0:rows, ds(position * width, width if len(sizes) > 2 else columns)]
        if len(sizes) > 2:
            view = view.reshape_dim(1, tuple(sizes[1:]))
            view = view[(slice(0, rows), *(slice(0, dim.elements) for dim in self._dims[1:]))]
        return view

    def __len__(self) -> int:
        if not self.shape:
            raise TileTypeError("a grid of one cell has no length", rule="grid.R4")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        given = list(key) if isinstance(key, tuple) else [key]
        open_dims = [n for n, dim in enumerate(self._dims) if not dim.consumed]
        if len(given) > len(open_dims):
            raise IndexError(f"{len(given)} indices for a grid of shape {self.shape}")
        dims = list(self._dims)
        for n, item in zip(open_dims, given, strict=False):
            dims[n] = self._chosen(dims[n], item)
        return self._with(tuple(dims))

    def _chosen(self, dim: _Dim, item: Any) -> _Dim:
        if isinstance(item, bool) or not isinstance(item, (int, slice)):
            fail(TileTypeError(f"a grid takes ints and slices, got {item!r:.80}", rule="grid.R4"))
        if isinstance(item, int):
            index = item + dim.count if item < 0 else item
            if not 0 <= index < dim.count:
                raise IndexError(f"cell {item} of a grid dim with {dim.count} cells")
            return dim.cell(index)
        if item.step is not None and (not isinstance(item.step, int) or item.step < 1):
            fail(TileValueError(f"a grid slice needs a positive step, got {item.step!r:.80}", rule="grid.R4"))
        chosen = range(dim.count)[item]
        if not chosen:
            fail(TileValueError(f"the slice {item} of a grid dim with {dim.count} cells is empty", rule="grid.R4"))
        return dim.range(chosen)

    def _with(self, dims: tuple[_Dim, ...]) -> NkiGrid:
        return type(self)(tensor=self._tensor, dims=dims, packed=self._packed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, tile_shape={self.tile_shape}, {self._tensor.describe()})"


class NkiTileGrid(NkiGrid):
    """A grid whose cells are tiles."""


class NkiBlockGrid(NkiGrid):
    """A grid whose cells are blocks of tiles."""

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Tiles of a block."""
        return tuple(-(-dim.step // int(dim.tile or 1)) for dim in self._tiled)


def _shape(name: str, value: Any, rule: str, least: int = 1) -> tuple[int, ...]:
    if not isinstance(value, tuple) or any(type(size) is not int for size in value):
        fail(TileTypeError(f"{name}={value!r:.80} is not a tuple of Python ints", rule=rule))
    if len(value) < least or any(size < 1 for size in value):
        fail(TileValueError(f"{name}={value}: at least {least} positive sizes", rule=rule))
    shape: tuple[int, ...] = value
    return shape


def _tensor_dims(source: NkiTensor, tile_shape: tuple[int, ...]) -> tuple[_Dim, ...]:
    rank = len(source.shape)
    if len(tile_shape) > rank:
        fail(TileValueError(f"tile_shape {tile_shape} has more dims than {source.describe()}", rule="grid.R1"))
    leading = rank - len(tile_shape)
    if leading and source.on_chip:
        hint = "only HBM tensors have untiled leading dims"
        fail(TileValueError(f"tile_shape {tile_shape} leaves dims of {source.describe()}", rule="grid.R1", hint=hint))
    sizes: tuple[int | None, ...] = (None,) * leading + tile_shape
    return tuple(_Dim(0, n, size or 1, size) for n, size in zip(source.shape, sizes, strict=True))


def _retiled(grid: NkiGrid, tile_shape: tuple[int, ...], block: tuple[int, ...] | None) -> tuple[_Dim, ...]:
    """The dims of what `grid` selects, in tiles of `tile_shape`, in blocks if given."""
    if len(tile_shape) != len(grid.tile_shape):
        fail(TileValueError(f"tile_shape {tile_shape} for a grid in tiles {grid.tile_shape}", rule="grid.R7"))
    if grid._packed is not None and tile_shape != grid.tile_shape:
        fail(TileValueError(f"tiles of an allocated grid keep their shape {grid.tile_shape}", rule="grid.R7"))
    if not all(dim.adjacent for dim in grid._tiled):
        fail(TileValueError("a stepped selection cannot be regrouped", rule="grid.R7"))
    sizes = iter(zip(tile_shape, block or (1,) * len(tile_shape), strict=True))
    dims = []
    for dim in grid._dims:
        if dim.tile is None:
            dims.append(dim)
            continue
        tile, group = next(sizes)
        dims.append(_Dim(dim.start, dim.stop, tile * group, tile))
    return tuple(dims)


def _source(function: str, source: Any) -> None:
    if not isinstance(source, (NkiTensor, NkiGrid)):
        fail(
            TileTypeError(
                f"nl.{function}: source must be a tensor or a grid, got {type(source).__name__}", rule="grid.R1"
            )
        )


def tiles(source: NkiTensor | NkiGrid, *, tile_shape: Any = None) -> NkiTileGrid:
    """The tiles of a tensor, or those inside what a grid selects.

    tile_shape: elements of a tile, at least 2 sizes, for the trailing dims; of a grid, by default the one it has. The
    last tile of a dim is as small as what is left. Source: nki-0.7.md 2.3.
    """
    _source("tiles", source)
    if isinstance(source, NkiTensor):
        return NkiTileGrid(tensor=source, dims=_tensor_dims(source, _shape("tile_shape", tile_shape, "grid.R1", 2)))
    shape = source.tile_shape if tile_shape is None else _shape("tile_shape", tile_shape, "grid.R1", 2)
    return NkiTileGrid(tensor=source._tensor, dims=_retiled(source, shape, None), packed=source._packed)


def blocks(source: NkiTensor | NkiGrid, *, tile_shape: Any = None, block_shape: Any) -> NkiBlockGrid:
    """Blocks of tiles of a tensor, or of what a grid selects. block_shape: tiles of a block, for each tiled dim."""
    _source("blocks", source)
    if tile_shape is None and isinstance(source, NkiGrid):
        tile_shape = source.tile_shape
    shape = _shape("tile_shape", tile_shape, "grid.R1", 2)
    block = _shape("block_shape", block_shape, "grid.R2")
    if len(block) != len(shape):
        fail(TileValueError(f"block_shape {block} and tile_shape {shape} differ in length", rule="grid.R2"))
    tensor, packed = (source, None) if isinstance(source, NkiTensor) else (source._tensor, source._packed)
    base = tiles(source, tile_shape=shape)
    return NkiBlockGrid(tensor=tensor, dims=_retiled(base, shape, block), packed=packed)


def alloc_tiles(
    *, tile_shape: Any, element_shape: Any, buffer: Any, dtype: Any, address: Any = None, name: str = ""
) -> NkiTileGrid:
    """A new tensor in tiles, contents undefined: in HBM of `element_shape`; on chip whole tiles side by side along the
    free dim, in row-major order, `tile_shape[0]` partitions.
    """
    shape = _shape("tile_shape", tile_shape, "grid.R1", 2)
    extent = _shape("element_shape", element_shape, "grid.R8")
    if not isinstance(buffer, MemoryRegion):
        fail(TileTypeError(f"buffer={buffer!r:.80} is not a memory region", rule="grid.R9", hint="nl.sbuf, nl.psum, …"))
    if buffer not in (MemoryRegion.sbuf, MemoryRegion.psum):
        return tiles(ndarray(extent, dtype, buffer=buffer, name=name, address=address), tile_shape=shape)
    if len(extent) != len(shape):
        fail(TileValueError(f"element_shape {extent} and tile_shape {shape} differ in length", rule="grid.R8"))
    counts = tuple(-(-n // size) for n, size in zip(extent, shape, strict=True))
    storage = ndarray((shape[0], prod(counts) * prod(shape[1:])), dtype, buffer=buffer, name=name, address=address)
    dims = tuple(_Dim(0, n, size, size) for n, size in zip(extent, shape, strict=True))
    return NkiTileGrid(tensor=storage, dims=dims, packed=counts)


def alloc_blocks(
    *,
    tile_shape: Any,
    block_shape: Any,
    element_shape: Any,
    buffer: Any,
    dtype: Any,
    address: Any = None,
    name: str = "",
) -> NkiBlockGrid:
    """As `alloc_tiles`, seen in blocks of `block_shape` tiles; the order in memory is the same."""
    grid = alloc_tiles(
        tile_shape=tile_shape, element_shape=element_shape, buffer=buffer, dtype=dtype, address=address, name=name
    )
    return blocks(grid, block_shape=block_shape)


def empty_like_grid(x: NkiGrid, dtype: Any, buffer: Any, name: str, address: Any) -> NkiGrid:
    """A new tensor in the cells that `x` selects, navigated in the same way; stepped cells are packed densely."""
    kept = [dim for dim in x._dims if dim.tile is not None or not dim.consumed]
    made = alloc_tiles(
        tile_shape=x.tile_shape,
        element_shape=tuple(dim.elements for dim in kept),
        buffer=x.buffer if buffer is None else buffer,
        dtype=x.dtype if dtype is None else dtype,
        address=address,
        name=name,
    )
    dims = tuple(replace(new, step=old.step, consumed=old.consumed) for new, old in zip(made._dims, kept, strict=True))
    return type(x)(tensor=made._tensor, dims=dims, packed=made._packed)
