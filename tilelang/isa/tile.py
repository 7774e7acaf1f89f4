"""Operands as the NumPy bodies of instructions see them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import Format
from tilelang.numerics import casts
from tilelang.numerics.random import UNSEEDED

__all__ = ["Machine", "RowsTile", "Tile", "number_bits", "vector"]


class Machine:
    """State of a core that instructions share (isa.md 2.4): accumulator registers, float32[128] by physical
    partition, random generators (numerics/random.py), scalar registers, generation.
    """

    def __init__(self, generation: int = 3) -> None:
        self.generation = generation
        self.act = np.zeros(128, np.float32)
        self.dve = np.zeros(128, np.float32)
        self.random = UNSEEDED.copy()
        self.registers: dict[int, int] = {}
        self.rounded: int | None = None  # the last integer operand that float32 could not hold

    def lanes(self, tile: Tile) -> slice:
        """The accumulator lanes of `tile`'s partitions."""
        return slice(tile.start, tile.start + tile.P)


class Tile:
    """A tensor operand bound to memory: `view` is a strided array of the format's carrier type, partition dim first.

    `dtype` is the declared dtype; `fmt` the storage format (float32 for low-precision floats under precision="high");
    `start` the first physical
    partition; `marks` (PSUM only) has a bool for each byte of each element, shape (*shape, item size): written since
    allocation.
    """

    __slots__ = ("dtype", "fmt", "machine", "marks", "start", "view")

    def __init__(
        self,
        view: NDArray[Any],
        fmt: Format,
        dtype: str,
        start: int = 0,
        machine: Machine | None = None,
        marks: NDArray[np.bool_] | None = None,
    ) -> None:
        self.view = view
        self.fmt = fmt
        self.dtype = dtype
        self.start = start
        self.machine = machine
        self.marks = marks

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the view."""
        return tuple(self.view.shape)

    @property
    def P(self) -> int:
        """Partition count (dim 0)."""
        return int(self.view.shape[0])

    @property
    def F(self) -> int:
        """Elements per partition."""
        return int(np.prod(self.view.shape[1:], dtype=np.int64))

    @property
    def written(self) -> NDArray[np.bool_] | None:
        """Which elements have been written since allocation, in the shape of the view; None where that is not
        tracked.
        """
        return None if self.marks is None else np.asarray(self.marks.all(axis=-1))

    def bits(self) -> NDArray[Any]:
        """A copy of the stored bits, (P, F) of the carrier type."""
        return np.array(self.view).reshape(self.P, self.F)

    def f32(self) -> NDArray[np.float32]:
        """The values as float32, (P, F); 32-bit integers round to it (isa.md 3.3), which the machine notes."""
        bits = self.bits()
        values = casts.decode(bits, self.fmt.name)
        if self.machine is not None and self.fmt.is_integer and self.fmt.itemsize == 4:
            lost = bits[values.astype(np.int64) != bits]
            if lost.size:
                self.machine.rounded = int(lost[-1])
        return values

    def store(self, values: NDArray[Any]) -> None:
        """Round float32 `values` (any shape with the element count) into the tile (isa.md section 3.3)."""
        self.store_bits(casts.encode(np.asarray(values, dtype=np.float32), self.fmt.name))

    def store_bits(self, bits: NDArray[Any]) -> None:
        """Write `bits` of the carrier type. Where elements share memory the last in iteration order wins (AP.R7)."""
        values = np.broadcast_to(bits, (self.P, self.F)).reshape(self.view.shape)
        index = _last_elements(self.view)
        self.view[index] = values[index]
        if self.marks is not None:
            self.marks[...] = True

    def store_where(self, condition: NDArray[np.bool_], bits: NDArray[Any]) -> None:
        """Write `bits` where `condition` holds, in iteration order: of elements that share an address (AP.R7) the last
        one written wins, which need not be the last.
        """
        shape = self.view.shape
        chosen = np.broadcast_to(condition, (self.P, self.F)).reshape(shape)
        values = np.broadcast_to(bits, (self.P, self.F)).reshape(shape)
        shared = [n if stride == 0 else 1 for stride, n in zip(self.view.strides, shape, strict=True)]
        for place in np.ndindex(*shared):
            index = tuple(
                slice(i, i + 1) if stride == 0 else slice(None)
                for i, stride in zip(place, self.view.strides, strict=True)
            )
            target, mask = self.view[index], chosen[index]
            target[mask] = values[index][mask]
        self.store_bits(self.bits())

    def store_rows(self, values: NDArray[Any], valid: NDArray[np.bool_], same: bool) -> None:
        """Write the rows of `values` (bits when `same`, else float32) for which `valid` holds; dim 0 is the row."""
        bits = values if same else casts.encode(values, self.fmt.name)
        rows = self.view.reshape(len(valid), -1) if self.view.flags.c_contiguous else None
        if rows is not None:
            rows[valid] = bits[valid]
            return
        merged = np.where(valid[:, None], bits, np.array(self.view).reshape(len(valid), -1))
        self.view[...] = merged.reshape(self.view.shape)


def _last_elements(view: NDArray[Any]) -> Any:
    """An index of the elements of `view` that no later one in iteration order shares memory with."""
    pairs = list(zip(view.strides, view.shape, strict=True))
    kept = tuple(slice(-1, None) if stride == 0 and n > 1 else slice(None) for stride, n in pairs)
    reach = view.itemsize
    for step, n in sorted((abs(stride), n) for stride, n in pairs if n > 1 and stride):
        if step < reach:
            break
        reach += step * (n - 1)
    else:
        return kept
    offsets = np.zeros(view.shape, np.int64)
    for axis, (stride, n) in enumerate(pairs):
        offsets += (np.arange(n) * stride).reshape([-1 if a == axis else 1 for a in range(view.ndim)])
    backwards = offsets.ravel()[::-1]
    _, first = np.unique(backwards, return_index=True)
    return np.unravel_index(backwards.size - 1 - first, view.shape)


class RowsTile(Tile):
    """A gathered or scattered tensor: row p of `view`'s shape lies at element `starts[p]` of the flat array `memory`.

    `inner` holds the element offsets of one row. Rows with `valid[p]` False are out of range and skipped.
    """

    __slots__ = ("inner", "memory", "starts", "valid")

    def __init__(
        self,
        memory: NDArray[Any],
        starts: NDArray[np.int64],
        inner: NDArray[np.int64],
        valid: NDArray[np.bool_],
        fmt: Format,
        dtype: str,
    ) -> None:
        super().__init__(np.empty(0, fmt.carrier), fmt, dtype)
        self.memory = memory
        self.starts = starts
        self.inner = inner
        self.valid = valid

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, then the shape of one row."""
        return (len(self.starts), *self.inner.shape)

    @property
    def P(self) -> int:
        """Number of rows."""
        return len(self.starts)

    @property
    def F(self) -> int:
        """Elements of one row."""
        return int(self.inner.size)

    def _elements(self, row: int) -> NDArray[np.int64]:
        return self.starts[row] + self.inner.ravel()

    def bits(self) -> NDArray[Any]:
        """The gathered bits, (rows, row elements); rows out of range are 0."""
        found = np.zeros((self.P, self.F), self.fmt.carrier)
        for row in np.flatnonzero(self.valid).tolist():
            found[row] = self.memory[self._elements(row)]
        return found

    def store_bits(self, bits: NDArray[Any]) -> None:
        """Scatter all rows in range."""
        self.store_rows(np.asarray(bits).reshape(self.P, self.F), self.valid, True)

    def store_rows(self, values: NDArray[Any], valid: NDArray[np.bool_], same: bool) -> None:
        """Scatter rows in ascending order, so that the last of equal indices wins."""
        bits = values if same else casts.encode(values, self.fmt.name)
        for row in np.flatnonzero(valid & self.valid).tolist():
            self.memory[self._elements(row)] = bits[row]


def vector(operand: Tile | float | int | None, rows: int, default: float = 0.0) -> NDArray[np.float32]:
    """A vec(P) operand as float32 (rows, 1): a number is repeated, None means `default`."""
    if isinstance(operand, Tile):
        return operand.f32()
    return np.full((rows, 1), default if operand is None else operand, np.float32)


def number_bits(value: float | int, fmt: Format) -> NDArray[Any]:
    """`value` as one element of `fmt`, shape (1, 1) of its carrier: ints into 32-bit integers exactly, the rest
    through float32; saturating.
    """
    if isinstance(value, int) and fmt.name in ("int32", "uint32"):
        limits = np.iinfo(fmt.carrier)
        return np.full((1, 1), min(max(value, limits.min), limits.max), fmt.carrier)
    return casts.encode(np.full((1, 1), value, np.float32), fmt.name)
