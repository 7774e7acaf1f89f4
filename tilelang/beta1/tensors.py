"""Tensors of the older dialect: block dims, advanced indexing, operators, masked results (language.md 8.4).

A `Tile` is a view of a tensor of the modern kind: each dim of its storage is an affine function of the position in the
view. It becomes a modern tensor, by `.ap`, when an instruction uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tilelang import language
from tilelang.beta1.indices import Affine, Box, Grid, affine
from tilelang.dtypes import FORMATS, format_of
from tilelang.errors import TileTypeError, TileUnsupportedError, TileValueError
from tilelang.ir.indexing import DynamicSlice
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.tensor import NkiTensor

__all__ = ["ParDim", "Tile", "allocate", "from_modern", "hooks"]


class ParDim(int):
    """`nl.par_dim(n)`: the size of the partition dim."""


class Tile:
    """A tile or a tensor of the older dialect.

    `base`: the modern tensor; `sizes`, `strides`: its dims as the kernel declared them, strides in elements (of a
    partition: the elements of one). `index`: each of those dims as a function of the position in the view of `shape`.
    `origin`: position of the first element in the storage. `valid`: the block that a masked instruction has computed,
    None for all. `picked`: (dim, tile of row indices).
    """

    __slots__ = ("base", "index", "origin", "par", "pending", "picked", "shape", "sizes", "strides", "valid")
    __array_priority__ = 1000.0
    __array_ufunc__ = None

    def __init__(
        self,
        base: NkiTensor,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        par: int | None,
        shape: tuple[int, ...],
        index: tuple[Affine, ...],
        origin: int = 0,
        valid: Box | None = None,
        picked: tuple[int, Tile] | None = None,
    ) -> None:
        self.base = base
        self.origin = origin
        self.sizes = sizes
        self.strides = strides
        self.par = par
        self.shape = shape
        self.index = index
        self.valid = valid
        self.picked = picked
        self.pending: Callable[[NkiTensor, bool | None], None] | None = None

    @classmethod
    def over(cls, base: NkiTensor, sizes: tuple[int, ...] | None = None, par: int | None = None) -> Tile:
        """All of `base`; `sizes` and `par` when it was declared with block dims."""
        if sizes is None:
            sizes, par = tuple(base.shape), 0 if base.on_chip else None
        free = [n for d, n in enumerate(sizes) if d != par]
        steps = [prod(free[i + 1 :]) for i in range(len(free))]
        strides = list(steps)
        if par is not None:
            strides.insert(par, _row(base))
        index = tuple(Affine(0, tuple(int(a == d) for a in range(len(sizes)))) for d in range(len(sizes)))
        return cls(base, sizes, tuple(strides), par, sizes, index)

    # -- properties

    @property
    def dtype(self) -> Any:
        """The NumPy dtype; the name of formats that NumPy has no dtype for."""
        fmt = FORMATS[self.base.dtype]
        return fmt.name if fmt.name == "tfloat32" else fmt.host

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.base.itemsize)

    @property
    def buffer(self) -> MemoryRegion:
        """Memory region."""
        return self.base.buffer

    @property
    def on_chip(self) -> bool:
        """In SBUF or PSUM."""
        return bool(self.base.on_chip)

    def __repr__(self) -> str:
        return f"tile of shape {self.shape} in {self.base.describe()}"

    def __len__(self) -> int:
        return self.shape[0]

    # -- modern tensors

    def restricted(self, box: Box) -> Tile:
        """The part at `box`; axes of size 1 stand for all positions."""
        self.settle()
        starts = [0 if n == 1 else a for n, a in zip(self.shape, box.start, strict=True)]
        shape = tuple(1 if n == 1 else m for n, m in zip(self.shape, box.shape, strict=True))
        index = tuple(
            Affine(f.start + sum(s * a for s, a in zip(f.steps, starts, strict=True)), f.steps) for f in self.index
        )
        return Tile(self.base, self.sizes, self.strides, self.par, shape, index, self.origin, None, self.picked)

    def modern(self) -> NkiTensor:
        """The view as a modern tensor. Raises TileIndexError when it leaves the tensor."""
        self.settle()
        for dim, (function, size) in enumerate(zip(self.index, self.sizes, strict=True)):
            if self.picked is not None and self.picked[0] == dim:
                continue
            low, high = function.bounds(self.shape)
            if low < 0 or high >= size:
                raise TileValueError(
                    f"indices {low} to {high} of dim {dim} of {self.base.describe()}, declared as {self.sizes}",
                    hint="a mask keeps an instruction inside its tensors",
                )
        steps = [
            sum(f.steps[a] * stride for f, stride in zip(self.index, self.strides, strict=True))
            for a in range(len(self.shape))
        ]
        after = 1
        for a in range(len(steps) - 1, -1, -1):  # what a dim of one element steps is free: make it contiguous
            steps[a] = after if self.shape[a] == 1 else steps[a]
            after = steps[a] * self.shape[a]
        offset = self.origin + sum(f.start * stride for f, stride in zip(self.index, self.strides, strict=True))
        pairs = list(zip(steps, self.shape, strict=True))
        if self.on_chip:
            pairs = self._partition_first(pairs)
        if self.picked is not None:
            return self._gathered(pairs, offset)
        view: NkiTensor = self.base.ap([list(pair) for pair in pairs], offset=offset)
        return view

    def _partition_first(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        assert self.par is not None
        across = [a for a in range(len(self.shape)) if self.index[self.par].steps[a] and self.shape[a] > 1]
        if across not in ([], [0]):
            raise TileUnsupportedError(
                f"the partition dim of {self.base.describe()} is indexed by axes {across}; it must be the first axis"
            )
        row = _row(self.base)
        if not across and (not pairs or pairs[0][1] != 1):
            return [(row, 1), *pairs]
        return [(row * self.index[self.par].steps[0] if across else row, pairs[0][1]), *pairs[1:]]

    def _gathered(self, pairs: list[tuple[int, int]], offset: int) -> NkiTensor:
        assert self.picked is not None
        dim, rows = self.picked
        if self.on_chip or dim != 0:
            raise TileUnsupportedError("row indices in a tile pick rows along the first dim of an HBM tensor only")
        rest = [[step, count] for step, count in pairs[1:]]
        view: NkiTensor = self.base.ap(
            [[self.strides[0], pairs[0][1]], *rest], offset=offset, vector_offset=hooks.as_index(rows)
        )
        return view

    def settle(self) -> None:
        """Emit the instruction that computes this tile, if it has been put off (matrix products)."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending(self.modern(), False)

    # -- indexing

    def __getitem__(self, key: Any) -> Tile:
        self.settle()
        items = list(key) if isinstance(key, (tuple, Grid)) else [key]
        if any(item is Ellipsis for item in items):
            at = next(i for i, item in enumerate(items) if item is Ellipsis)
            items[at : at + 1] = [slice(None)] * (len(self.shape) - len(items) + 1)
        if len(items) > len(self.shape):
            raise TileTypeError(f"{len(items)} indices for {self!r}")
        items += [slice(None)] * (len(self.shape) - len(items))
        arrays = [np.asarray(item) for item in items if isinstance(item, np.ndarray) and item.ndim]
        rows = next((n for n, item in enumerate(items) if isinstance(item, Tile)), None)
        if arrays or rows is not None:
            return self._advanced(items, arrays, rows)
        functions = []
        shape: list[int] = []
        for item, size in zip(items, self.shape, strict=True):
            start, step, count = self._basic(item, size)
            functions.append((start, step, None if count is None else len(shape)))
            if count is not None:
                shape.append(count)
        inner = tuple(
            Affine(start, tuple(step if a == axis else 0 for a in range(len(shape)))) for start, step, axis in functions
        )
        return self._composed(inner, tuple(shape))

    def _basic(self, item: Any, size: int) -> tuple[int, int, int | None]:
        """(start, step, count) of a slice or an int; the count of an int is None."""
        if isinstance(item, DynamicSlice):
            item = slice(item.start, item.start + item.size)
        if isinstance(item, slice):
            start, stop, step = item.indices(size) if item.stop is None or item.stop <= size else (
                item.start or 0, item.stop, item.step or 1,
            )  # fmt: skip
            count = max(0, -(-(stop - start) // step))
            if count == 0:
                raise TileValueError(f"the slice {item} of a dim of {size} elements is empty")
            return start, step, count
        if isinstance(item, (int, np.integer)) or (isinstance(item, np.ndarray) and item.ndim == 0):
            value = int(item)
            return value + size if value < 0 else value, 0, None
        raise TileTypeError(f"index {item!r:.80} of {self!r}")

    def _advanced(self, items: list[Any], arrays: list[Any], rows: int | None) -> Tile:
        if any(array.ndim == 1 for array in arrays):
            raise TileTypeError("a 1-D index vector", hint="lift it to two dims: nl.arange(n)[:, None]")
        if any(isinstance(item, (slice, DynamicSlice)) and item != slice(None) for item in items):
            raise TileTypeError("slices and index arrays do not mix", hint="write the slice as nl.arange too")
        picked = None
        if rows is not None:
            tile = items[rows]
            picked = (rows, tile)
            items[rows] = 0
            arrays = [*arrays, np.zeros((tile.shape[0], 1), np.int64)]
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        whole = [n for n, item in enumerate(items) if isinstance(item, slice)]
        kept = tuple(self.shape[n] for n in whole)
        inner = []
        for n, item in enumerate(items):
            if n in whole:
                axis = len(shape) + whole.index(n)
                inner.append(Affine(0, tuple(int(a == axis) for a in range(len(shape) + len(kept)))))
            elif isinstance(item, np.ndarray) and item.ndim:
                found = affine(item, shape)
                inner.append(Affine(found.start, (*found.steps, *(0 for _ in kept))))
            else:
                start, _, _ = self._basic(item, self.shape[n])
                inner.append(Affine(start, (0,) * (len(shape) + len(kept))))
        found_view = self._composed(tuple(inner), (*shape, *kept))
        found_view.picked = picked
        return found_view

    def _composed(self, inner: tuple[Affine, ...], shape: tuple[int, ...]) -> Tile:
        """This view, its position given as functions `inner` of a position in `shape`."""
        self.settle()
        index = []
        for function in self.index:
            start = function.start + sum(s * f.start for s, f in zip(function.steps, inner, strict=True))
            steps = tuple(
                sum(s * f.steps[a] for s, f in zip(function.steps, inner, strict=True)) for a in range(len(shape))
            )
            index.append(Affine(start, steps))
        return Tile(self.base, self.sizes, self.strides, self.par, shape, tuple(index), self.origin, None, self.picked)

    def permuted(self, axes: tuple[int, ...]) -> Tile:
        """The axes in another order."""
        inner = tuple(Affine(0, tuple(int(axes[a] == d) for a in range(len(axes)))) for d in range(len(self.shape)))
        return self._composed(inner, tuple(self.shape[a] for a in axes))

    def __setitem__(self, key: Any, value: Any) -> None:
        hooks.assign(self[key], value)

    # -- methods

    def reshape(self, *shape: Any) -> Tile:
        """The same elements in another shape; of a tile, the partition dim stays."""
        sizes = tuple(int(n) for n in (shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape))
        if prod(sizes) != prod(self.shape):
            raise TileValueError(f"reshape of {self!r} to {sizes}")
        view = self.modern()
        return Tile.over(view.reshape(sizes)) if not view.on_chip else Tile._folded(view, sizes)

    @classmethod
    def _folded(cls, view: NkiTensor, sizes: tuple[int, ...]) -> Tile:
        flat = view.flatten_dims(1, view.ndim - 1) if view.ndim > 2 else view
        return from_modern(flat.reshape_dim(1, sizes[1:]) if len(sizes) > 2 else flat)

    def broadcast_to(self, *shape: Any) -> Tile:
        """A new tile with dims of size 1 repeated."""
        sizes = tuple(int(n) for n in (shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape))
        return from_modern(language.broadcast_to(self.modern(), sizes))

    def astype(self, dtype: Any) -> Tile:
        """A new tile, converted."""
        return from_modern(language.copy(self.modern(), dtype))

    def view(self, dtype: Any) -> Tile:
        """The same bits as another dtype."""
        return from_modern(self.modern().view(format_of(dtype).name))

    def expand_dims(self, axis: int) -> Tile:
        """A new dim of size 1."""
        position = axis + len(self.shape) + 1 if axis < 0 else axis
        inner, taken = [], 0
        for a in range(len(self.shape) + 1):
            if a != position:
                inner.append(Affine(0, tuple(int(b == a) for b in range(len(self.shape) + 1))))
                taken += 1
        return self._composed(tuple(inner), (*self.shape[:position], 1, *self.shape[position:]))

    def as_tile(self) -> Tile:
        """This tile."""
        return self

    def assert_shape(self, shape: Any) -> Tile:
        """This tile; raises when it has another shape."""
        if tuple(shape) != self.shape:
            raise TileValueError(f"{self!r} should have shape {tuple(shape)}")
        return self

    # -- operators (the others below)

    def __neg__(self) -> Tile:
        return hooks.operate("multiply", self, -1)

    def __invert__(self) -> Tile:
        return hooks.operate("invert", self, None)

    __hash__ = object.__hash__


def _row(base: NkiTensor) -> int:
    """Elements between two partitions, or rows."""
    return int(base.storage.row_bytes // base.itemsize)


def from_modern(tensor: NkiTensor, valid: Box | None = None) -> Tile:
    """A modern view as a tile of its shape."""
    base = NkiTensor.over(tensor.storage)
    if tensor.dtype != base.dtype:
        base = base.view(tensor.dtype)
    sizes = tuple(tensor.shape)
    index = tuple(Affine(0, tuple(int(a == d) for a in range(len(sizes)))) for d in range(len(sizes)))
    par = 0 if tensor.on_chip else None
    return Tile(base, sizes, tuple(tensor.strides), par, sizes, index, tensor.offset, valid)


def allocate(shape: Any, dtype: Any, buffer: Any, name: str = "") -> Tile:
    """A new tensor; `shape` may hold block dims before a `nl.par_dim`."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    plain = tuple(int(n) for n in sizes)
    if buffer not in (MemoryRegion.sbuf, MemoryRegion.psum):
        return Tile.over(language.ndarray(plain, dtype, buffer=buffer, name=name))
    par = next((d for d, n in enumerate(sizes) if isinstance(n, ParDim)), 0)
    free = [n for d, n in enumerate(plain) if d != par]
    base = language.ndarray((plain[par], prod(free)), dtype, buffer=buffer, name=name)
    return Tile.over(base, plain, par)


class _Hooks:
    """What the functions of the dialect do for tiles: set by `tilelang.beta1.language`."""

    assign: Callable[[Tile, Any], None]
    accumulate: Callable[[Tile, Any, str], None]
    operate: Callable[[str, Any, Any], Tile]
    as_index: Callable[[Tile], NkiTensor]


hooks = _Hooks()


def _operator(name: str, swapped: bool = False) -> Callable[[Tile, Any], Any]:
    def operate(self: Tile, other: Any) -> Any:
        return hooks.operate(name, other, self) if swapped else hooks.operate(name, self, other)

    return operate


def _in_place(name: str) -> Callable[[Tile, Any], Tile]:
    def operate(self: Tile, other: Any) -> Tile:
        hooks.accumulate(self, other, name)
        return self

    return operate


_ARITHMETIC = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power", "mod": "mod",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
_COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}
for _special, _name in _ARITHMETIC.items():
    setattr(Tile, f"__{_special}__", _operator(_name))
    setattr(Tile, f"__r{_special}__", _operator(_name, swapped=True))
    setattr(Tile, f"__i{_special}__", _in_place(_name))
for _special, _name in _COMPARISONS.items():
    setattr(Tile, f"__{_special}__", _operator(_name))
