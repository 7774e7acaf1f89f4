"""What every part of a tensor handle builds on: its fields, its layout arithmetic, and the bounds check.

A handle is a storage and a strided window on it. Byte positions are relative to the storage: for on-chip tensors to
its first byte in the partition, for HBM to its first byte.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import TYPE_CHECKING, TypeVar

from tilelang.dtypes import FORMATS, Format
from tilelang.errors import TileIndexError, TileTypeError, TileUnsupportedError
from tilelang.ir.context import active_builder
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.storage import PSUM_BANK_BYTES, Storage

if TYPE_CHECKING:
    from tilelang.ir.dynamic import Dynamic

__all__ = ["Handle", "check_bounds", "check_reinterpretation", "collapse", "make"]

_new = object.__new__
T = TypeVar("T", bound="Handle")


class Handle:
    """Fields of a tensor: `storage`, `shape`, `strides` and `offset` (elements of `dtype`), `dtype` (an `nl` name),
    `dynamic`."""

    __slots__ = ("_key", "_span", "dtype", "dynamic", "offset", "shape", "storage", "strides")

    storage: Storage
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    dynamic: Dynamic | None
    _key: Hashable
    _span: tuple[int, int] | None

    def _derive(self: T, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> T:
        """The same window kind with another layout; the dynamic part stays."""
        return make(type(self), self.storage, shape, strides, offset, self.dtype, self.dynamic)

    @property
    def buffer(self) -> MemoryRegion:
        """The memory that holds the tensor."""
        return self.storage.buffer

    @property
    def on_chip(self) -> bool:
        """True for sbuf and psum: dim 0 is the partition dim."""
        return self.storage.on_chip

    @property
    def fmt(self) -> Format:
        """The storage format of `dtype`."""
        return FORMATS[self.dtype]

    @property
    def itemsize(self) -> int:
        """Bytes per element (packed formats: per pack)."""
        return FORMATS[self.dtype].itemsize

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements of the view."""
        return prod(self.shape)

    @property
    def P(self) -> int:
        """Partition count of the flattened view: `shape[0]`."""
        return self.shape[0]

    @property
    def F(self) -> int:
        """Elements per partition of the flattened view: the product of `shape[1:]`."""
        shape = self.shape
        return shape[1] if len(shape) == 2 else prod(shape[1:])

    @property
    def start_partition(self) -> int:
        """First physical partition; storages without `address` start at 0. 0 for HBM."""
        storage = self.storage
        first = storage.address[0] if storage.address else 0
        return first + self.offset * self.itemsize // storage.row_bytes

    @property
    def partition_step(self) -> int:
        """Partitions from one row to the next: 1 unless dim 0 was sliced with a step (engines refuse that); 0 for
        HBM."""
        if not self.storage.on_chip:
            return 0
        return 1 if self.shape[0] == 1 else self.strides[0] * self.itemsize // self.storage.row_bytes

    @property
    def byte_offset(self) -> int:
        """Bytes from the storage's start (on-chip: within the partition) to element 0, without the dynamic part."""
        return self.offset * self.itemsize % self.storage.row_bytes

    @property
    def key(self) -> Hashable:
        """Layout signature: views with equal keys pass the same rules and need the same records up to addresses.

        Holds shape, strides, dtype, buffer, what else rules look at (on-chip: start partition, and in psum the byte
        within the bank and the storage's element size; HBM: whether it is a constant), signature of the dynamic part
        with
        the range of its index.
        """
        key = self._key
        if key is None:
            storage = self.storage
            place: Hashable
            if storage.buffer is MemoryRegion.psum:
                place = (self.start_partition, self.byte_offset % PSUM_BANK_BYTES, storage.fmt.itemsize)
            elif storage.on_chip:
                place = self.start_partition
            else:
                place = storage.kind == "constant"
            moving = None if self.dynamic is None else (self.dynamic.key, self.dynamic_range())
            self._key = key = (self.shape, self.strides, self.dtype, storage.buffer, place, moving)
        return key

    def free_pattern(self) -> list[tuple[int, int]]:
        """(count, stride in elements) of the free dims, outermost first; size-1 dims dropped, mergeable neighbours
        merged.

        Empty when one partition holds one element. Meaningless for `.indirect` views.
        """
        return collapse(self.shape[1:], self.strides[1:])

    def full_pattern(self) -> list[tuple[int, int]]:
        """As `free_pattern`, over all dims: what a DMA walks in HBM. Dim 0 of on-chip and vector views is kept
        apart."""
        if self.storage.on_chip or self._rows_are_gathered():
            return [(self.shape[0], self.strides[0]), *self.free_pattern()]
        return collapse(self.shape, self.strides)

    def dynamic_range(self) -> tuple[int, int]:
        """(lo, hi): the dynamic index `v` must satisfy `lo <= v < hi`. Both the indexed dim and the storage bound
        it."""
        dynamic = self._require_dynamic()
        step = dynamic.byte_multiplier
        if dynamic.kind == "indirect" or step == 0:
            return 0, dynamic.limit
        lo, hi = _static_span(self)
        room = self.storage.row_bytes - hi if step > 0 else lo
        return 0, min(dynamic.limit, room // abs(step) + 1)

    def byte_span(self) -> tuple[int, int]:
        """[lo, hi): the bytes the view may touch, relative to the storage (on-chip: within each partition).

        A dynamic index counts with every legal value.
        """
        dynamic = self.dynamic
        if dynamic is None:
            if self._span is None:
                self._span = _static_span(self)
            return self._span
        if dynamic.kind == "indirect":
            return dynamic.base.byte_span()
        lo, hi = _static_span(self)
        reach = (self.dynamic_range()[1] - 1) * dynamic.byte_multiplier
        return (lo, hi + reach) if reach > 0 else (lo + reach, hi)

    def describe(self) -> str:
        """Memory, dtype, shape and name in one phrase: `sbuf bfloat16[128, 512] 'x'`."""
        name = f" {self.storage.name!r}" if self.storage.name else ""
        return f"{self.storage.buffer} {self.dtype}[{', '.join(map(str, self.shape))}]{name}"

    def _rows_are_gathered(self) -> bool:
        return self.dynamic is not None and self.dynamic.kind == "vector"

    def _require_dynamic(self) -> Dynamic:
        if self.dynamic is None:
            raise TileTypeError(f"{self.describe()} has no dynamic index")
        return self.dynamic


def make(
    cls: type[T],
    storage: Storage,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    dtype: str,
    dynamic: Dynamic | None = None,
) -> T:
    """A handle from its fields, unchecked."""
    view = _new(cls)
    view.storage = storage
    view.shape = shape
    view.strides = strides
    view.offset = offset
    view.dtype = dtype
    view.dynamic = dynamic
    view._key = None
    view._span = None
    return view


def check_reinterpretation(view: Handle, dtype: str) -> None:
    """Refuse to read bits that `precision="high"` does not store (LANG.R229): it keeps low precision as float32."""
    builder = active_builder()
    if builder is None or builder.precision != "high":
        return
    if view.storage.fmt.is_low_precision or view.fmt.is_low_precision or FORMATS[dtype].is_low_precision:
        raise TileUnsupportedError(
            f'{view.describe()} cannot be read as {dtype} with precision="high", which stores low-precision tensors as '
            "float32",
            rule="LANG.R229",
            hint='run with precision="exact"',
        )


def collapse(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(count, stride) pairs that visit the same elements in the same order with the fewest dims of size > 1."""
    merged: list[tuple[int, int]] = []
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count == 1:
            continue
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0] * count, merged[-1][1])
        else:
            merged.append((count, stride))
    merged.reverse()
    return merged


def _static_span(view: Handle) -> tuple[int, int]:
    """Byte span of the static part: free dims within the partition for on-chip views, all dims for HBM."""
    storage = view.storage
    itemsize = view.itemsize
    lo = hi = view.offset * itemsize % storage.row_bytes if storage.on_chip else view.offset * itemsize
    first = 1 if storage.on_chip else 0
    for count, stride in zip(view.shape[first:], view.strides[first:]):
        if stride >= 0:
            hi += (count - 1) * stride * itemsize
        else:
            lo += (count - 1) * stride * itemsize
    return lo, hi + itemsize


def check_bounds(view: T, what: str) -> T:
    """`view`, when every element it touches without its dynamic part lies in its storage; else TileIndexError (AP.R2,
    AP.R3)."""
    storage = view.storage
    if storage.on_chip:
        first = view.offset * view.itemsize // storage.row_bytes
        last = first + (view.shape[0] - 1) * view.partition_step
        if first < 0 or last >= storage.partitions:
            raise TileIndexError(
                f"{what} touches partitions {first}..{last} of {storage.describe()}, "
                f"which has 0..{storage.partitions - 1}",
                rule="AP.R2",
                hint="shorten the partition count or lower the offset; offset = partition * free elements + free index",
            )
    lo, hi = _static_span(view)
    if lo < 0 or hi > storage.row_bytes:
        itemsize = view.itemsize
        place = "of each partition " if storage.on_chip else ""
        raise TileIndexError(
            f"{what} touches elements {lo // itemsize}..{(hi - 1) // itemsize} {place}of {storage.describe()}, "
            f"which has 0..{storage.row_bytes // itemsize - 1} in units of {view.dtype}",
            rule="AP.R3",
            hint="for a ragged tail use min(size, end - start) as the count",
        )
    return view
