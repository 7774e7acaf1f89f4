"""View methods: new layouts on the same storage, never a copy (language.md section 2.7).

Dim 0 of an on-chip tensor is the partition dim and dim 0 of a `vector_select` view is moved by an index tensor: views
leave both where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeVar

from tilelang.dtypes import format_of
from tilelang.errors import TileIndexError, TileRuleError, TileTypeError, TileValueError
from tilelang.ir.dynamic import Dynamic, dynamic_index
from tilelang.ir.handle import Handle, check_reinterpretation, make
from tilelang.ir.indexing import restore_rank
from tilelang.ir.rearrange import plan
from tilelang.ir.scalars import NkiScalar, VirtualRegister, whole

__all__ = ["Views"]

T = TypeVar("T", bound="Views")


class Views(Handle):
    """View methods of tensors. Each returns a new handle on the same storage."""

    __slots__ = ()

    def slice(self: T, dim: int, start: int, end: int, step: int = 1) -> T:
        """Elements start, start + step, … before `end` of `dim`; `0 <= start < end <= shape[dim]`, `step >= 1`.

        Raises TileIndexError outside that range, TileValueError for a bad dim, step or empty range.
        """
        dim = _axis(self, dim, "slice")
        start, end, step = (_plain(value, "slice") for value in (start, end, step))
        _guard_gathered(self, dim, "slice")
        if step < 1:
            raise TileValueError(f"slice: step {step} is not positive", rule="LANG.R206")
        size = self.shape[dim]
        if start < 0 or end > size:
            raise TileIndexError(
                f"slice {start}:{end} of dim {dim} of {self.describe()} reaches outside 0..{size}",
                rule="LANG.R204",
                hint=f"for a ragged tail use end=min({end}, {size})",
            )
        if start >= end:
            raise TileValueError(f"slice {start}:{end} of dim {dim} of {self.describe()} is empty", rule="LANG.R205")
        shape = _replaced(self.shape, dim, (end - start + step - 1) // step)
        strides = _replaced(self.strides, dim, self.strides[dim] * step)
        return self._derive(shape, strides, self.offset + start * self.strides[dim])

    def select(self: T, dim: int, index: Any) -> T:
        """Position `index` of `dim`; the dim is dropped.

        `index`: an int with `0 <= index < shape[dim]`, or, read at run time, a VirtualRegister, NkiScalar or
        one-element integer tensor in SBUF (one such index per view, not along partitions or broadcast dims). On-chip,
        dim 0 stays with size 1 and the result keeps two dims.
        """
        dim = _axis(self, dim, "select")
        _guard_gathered(self, dim, "select")
        offset = self.offset
        dynamic = self.dynamic
        if isinstance(index, (VirtualRegister, NkiScalar, Handle)):
            dynamic = dynamic_index(self, dim, index, dynamic)
        else:
            position = _plain(index, "select")
            if not 0 <= position < self.shape[dim]:
                raise TileIndexError(
                    f"select: index {position} of dim {dim} of {self.describe()} is out of range "
                    f"0..{self.shape[dim] - 1}",
                    rule="LANG.R203",
                )
            offset += position * self.strides[dim]
        sizes, steps = list(self.shape), list(self.strides)
        if dim == 0 and self.on_chip:
            sizes[0] = 1
        else:
            del sizes[dim], steps[dim]
            restore_rank(self, sizes, steps)
        return make(type(self), self.storage, tuple(sizes), tuple(steps), offset, self.dtype, dynamic)

    def permute(self: T, dims: Sequence[int]) -> T:
        """Dims in the order `dims`, a permutation of `range(ndim)`; dim 0 of on-chip and gathered tensors stays
        first."""
        order = tuple(_plain(dim, "permute") for dim in _sequence(dims, "permute"))
        if sorted(order) != list(range(self.ndim)):
            raise TileValueError(
                f"permute: {order} is not a permutation of 0..{self.ndim - 1} ({self.describe()})", rule="LANG.R210"
            )
        if order[0] != 0:
            _guard(self, 0, "permute")
        return self._derive(tuple(self.shape[d] for d in order), tuple(self.strides[d] for d in order), self.offset)

    def broadcast(self: T, dim: int, size: int) -> T:
        """Repeat the size-1 dim `dim` `size` times (stride 0)."""
        dim = _axis(self, dim, "broadcast")
        size = _plain(size, "broadcast")
        _guard(self, dim, "broadcast")
        if self.shape[dim] != 1 or size < 1:
            raise TileRuleError(
                f"broadcast of dim {dim} of {self.describe()} to {size}: the dim must have size 1, "
                "the result at least 1",
                rule="LANG.R211",
            )
        return self._derive(_replaced(self.shape, dim, size), _replaced(self.strides, dim, 0), self.offset)

    def expand_dim(self: T, dim: int) -> T:
        """Insert a size-1 dim before dim `dim` (`ndim`: at the end)."""
        dim = _axis(self, dim, "expand_dim", self.ndim)
        _guard(self, dim, "expand_dim")
        stride = self.strides[dim] * self.shape[dim] if dim < self.ndim else 1
        shape = (*self.shape[:dim], 1, *self.shape[dim:])
        return self._derive(shape, (*self.strides[:dim], stride, *self.strides[dim:]), self.offset)

    def squeeze_dim(self: T, dim: int) -> T:
        """Remove the size-1 dim `dim`."""
        dim = _axis(self, dim, "squeeze_dim")
        _guard(self, dim, "squeeze_dim")
        if self.shape[dim] != 1 or self.ndim == 1:
            raise TileRuleError(
                f"squeeze_dim({dim}) of {self.describe()}: the dim must have size 1 and not be the only one",
                rule="LANG.R212",
            )
        return self._derive(_without(self.shape, dim), _without(self.strides, dim), self.offset)

    def reshape_dim(self: T, dim: int, shape: Sequence[int]) -> T:
        """Split `dim` into dims of sizes `shape`, row-major; one size may be -1."""
        dim = _axis(self, dim, "reshape_dim")
        sizes = [_plain(size, "reshape_dim") for size in _sequence(shape, "reshape_dim")]
        if len(sizes) != 1:
            _guard(self, dim, "reshape_dim")
        total = self.shape[dim]
        if sizes.count(-1) == 1:
            known = prod(size for size in sizes if size != -1)
            sizes[sizes.index(-1)] = total // known if known > 0 else 0
        if not sizes or min(sizes) < 1 or prod(sizes) != total:
            raise TileRuleError(
                f"reshape_dim: dim {dim} of {self.describe()} has {total} elements, {tuple(shape)} does not",
                rule="LANG.R213",
            )
        steps = _row_major(sizes, self.strides[dim])
        return self._derive(
            (*self.shape[:dim], *sizes, *self.shape[dim + 1 :]),
            (*self.strides[:dim], *steps, *self.strides[dim + 1 :]),
            self.offset,
        )

    def flatten_dims(self: T, start_dim: int, end_dim: int) -> T:
        """Merge dims start_dim … end_dim (inclusive) into one; each must continue the next one's steps."""
        start = _axis(self, start_dim, "flatten_dims")
        end = _axis(self, end_dim, "flatten_dims")
        if start > end:
            raise TileValueError(f"flatten_dims: start {start} lies after end {end}", rule="LANG.R210")
        if start != end:
            _guard(self, start, "flatten_dims")
        for dim in range(start, end):
            if self.strides[dim] != self.shape[dim + 1] * self.strides[dim + 1]:
                raise TileValueError(
                    f"flatten_dims: dims {dim} and {dim + 1} of {self.describe()} with strides {self.strides} cannot "
                    f"merge: stride {self.strides[dim]} is not {self.shape[dim + 1]} * {self.strides[dim + 1]}",
                    rule="LANG.R214",
                    hint="copy to a contiguous tile first, or keep the dims apart: instructions take several free dims",
                )
        shape = (*self.shape[:start], prod(self.shape[start : end + 1]), *self.shape[end + 1 :])
        return self._derive(shape, (*self.strides[:start], *self.strides[end:]), self.offset)

    def reshape(self: T, shape: Sequence[int]) -> T:
        """The same elements in row-major order under another shape, when strides can express it.

        Raises TileRuleError when the element counts differ or dim 0 of an on-chip or gathered tensor would change,
        TileValueError when the layout would need a copy.
        """
        sizes = tuple(_plain(size, "reshape") for size in _sequence(shape, "reshape"))
        _guard_indirect(self, "reshape")
        if not sizes or min(sizes) < 1 or prod(sizes) != self.size:
            raise TileRuleError(
                f"reshape of {self.describe()} ({self.size} elements) to {sizes} ({prod(sizes)} elements)",
                rule="LANG.R215",
                hint="all sizes are positive and their product is the element count",
            )
        fixed = int(self.on_chip or self._rows_are_gathered())
        if fixed and sizes[0] != self.shape[0]:
            raise TileRuleError(
                f"reshape of {self.describe()} to {sizes} changes dim 0, {_reason(self)}",
                rule="LANG.R209",
                hint=f"keep {self.shape[0]} as the first size",
            )
        steps = _refit(self.shape[fixed:], self.strides[fixed:], sizes[fixed:])
        if steps is None:
            raise TileValueError(
                f"reshape of {self.describe()} with strides {self.strides} to {sizes} would need a copy",
                rule="LANG.R216",
                hint="copy to a contiguous tensor first",
            )
        return self._derive(sizes, (*self.strides[:fixed], *steps), self.offset)

    def rearrange(self: T, src_pattern: Any, dst_pattern: Any, fixed_sizes: dict[str, int] | None = None) -> T:
        """Split, permute and merge dims by name, as `einops.rearrange` does.

        Patterns are tuples of names, one per dim; a nested tuple stands for a dim made of several. `fixed_sizes` gives
        sizes of names; in each group of `src_pattern` one may be left out. Every step obeys the rules of
        `reshape_dim`, `permute`, `flatten_dims`.
        """
        groups, order, merges = plan(self, src_pattern, dst_pattern, fixed_sizes)
        view = self
        for dim in reversed(range(len(groups))):
            if len(groups[dim]) > 1:
                view = view.reshape_dim(dim, groups[dim])
        view = view.permute(order)
        for start, end in merges:
            view = view.flatten_dims(start, end)
        return view

    def view(self: T, dtype: Any) -> T:
        """The same bits read as `dtype`; sizes of elements may differ when the last dim is contiguous (AP.R10).

        Narrower elements multiply the last dim, wider ones divide it: last dim, outer strides and offset must then be
        divisible.
        """
        name = format_of(dtype).name
        if name == self.dtype:
            return self._derive(self.shape, self.strides, self.offset)
        _guard_indirect(self, "view(dtype)", every=True)
        check_reinterpretation(self, name)
        old, new = self.itemsize, format_of(name).itemsize
        if old == new:
            return make(type(self), self.storage, self.shape, self.strides, self.offset, name, self.dynamic)
        last = self.ndim - 1
        if (self.strides[last] != 1 and self.shape[last] != 1) or (self.on_chip and last == 0):
            raise TileRuleError(
                f"view: {self.describe()} with strides {self.strides} read as {name}: the last dim must be contiguous "
                "and not the partition dim",
                rule="AP.R10",
                hint="take the dtype view first, then slice",
            )
        # Size-1 dims take no step: their strides need not divide.
        steps = [0 if n == 1 and k else s for k, (n, s) in enumerate(zip(self.shape[:last], self.strides[:last]))]
        if self.on_chip and self.shape[0] == 1:
            steps[0] = self.storage.row_elements * self.storage.itemsize // old
        wide = (*steps, self.shape[last], self.offset)
        if any(value * old % new for value in wide):
            raise TileRuleError(
                f"view: {self.describe()} with strides {self.strides} and offset {self.offset} cannot be read as "
                f"{name}: last dim, outer strides and offset must be multiples of {new // old}",
                rule="AP.R10",
            )
        shape = (*self.shape[:last], self.shape[last] * old // new)
        strides = (*(step * old // new for step in steps), 1)
        return make(type(self), self.storage, shape, strides, self.offset * old // new, name, self.dynamic)

    reinterpret_cast = view

    def get_pattern(self) -> list[list[int]]:
        """[[stride, count], …] per dim, outermost first; a fresh list."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape)]

    def is_contiguous(self) -> bool:
        """True when the elements of the view (on-chip: of each row) follow each other without gaps."""
        expected = 1
        for dim in range(self.ndim - 1, 0 if self.on_chip else -1, -1):
            if self.shape[dim] != 1 and self.strides[dim] != expected:
                return False
            expected *= self.shape[dim]
        return True

    def is_indirect(self) -> bool:
        """True when part of the address is read at run time."""
        return self.dynamic is not None


def _refit(shape: tuple[int, ...], strides: tuple[int, ...], sizes: tuple[int, ...]) -> list[int] | None:
    """Strides under which `sizes` walks the layout (shape, strides) in order; None when there are none."""
    blocks: list[list[int]] = []  # [elements left, stride], innermost last
    for count, stride in zip(shape, strides):
        if count == 1:
            continue
        if blocks and blocks[-1][1] == stride * count:
            blocks[-1] = [blocks[-1][0] * count, stride]
        else:
            blocks.append([count, stride])
    steps: list[int] = []
    left, step = blocks.pop() if blocks else (1, 1)
    for size in reversed(sizes):
        if left == 1 and size > 1:
            if not blocks:
                return None
            left, step = blocks.pop()
        if left % size:
            return None
        steps.append(step)
        left //= size
        step *= size
    steps.reverse()
    return steps


def _row_major(sizes: Sequence[int], step: int) -> list[int]:
    steps = []
    for size in reversed(sizes):
        steps.append(step)
        step *= size
    return steps[::-1]


def _reason(view: Handle) -> str:
    return "the partition dim" if view.on_chip else "which an index tensor moves"


def _guard(view: Handle, dim: int, method: str) -> None:
    """Dim 0 of on-chip and gathered tensors stays as it is, and indirect views keep their layout altogether."""
    _guard_indirect(view, method)
    if dim == 0 and (view.on_chip or view._rows_are_gathered()):
        raise TileRuleError(
            f"{method} may not touch dim 0 of {view.describe()}, {_reason(view)}",
            rule="LANG.R209",
            hint="partitions are moved by nisa.nc_transpose or dma_copy, not by views" if view.on_chip else None,
        )


def _guard_indirect(view: Handle, method: str, every: bool = False) -> None:
    """Refuse `.indirect` views, with `every` all views that have a dynamic index."""
    dynamic: Dynamic | None = view.dynamic
    if dynamic is not None and (every or dynamic.kind == "indirect"):
        raise TileRuleError(
            f"{method} of {view.describe()}, whose address is read at run time ({dynamic.kind})",
            rule="AP.R10" if every else "AP.R9",
            hint="apply it before the dynamic index",
        )


def _guard_gathered(view: Handle, dim: int, method: str) -> None:
    """Dims that an index tensor moves cannot be sliced or selected (AP.R9)."""
    _guard_indirect(view, method)
    if dim == 0 and view._rows_are_gathered():
        raise TileRuleError(
            f"{method} of dim 0 of {view.describe()}, {_reason(view)}",
            rule="AP.R9",
            hint="apply it to the index tensor",
        )


def _axis(view: Handle, dim: Any, method: str, top: int | None = None) -> int:
    value = _plain(dim, method)
    limit = len(view.shape) - 1 if top is None else top
    if not 0 <= value <= limit:
        raise TileValueError(f"{method}: dim {value} of {view.describe()} is not in 0..{limit}", rule="LANG.R208")
    return value


def _plain(value: Any, method: str) -> int:
    if type(value) is int:
        return value
    found = whole(value)
    if found is None:
        raise TileTypeError(
            f"{method}: {value!r} is not a Python int",
            rule="LANG.R208",
            hint="layouts are known while tracing; select() and .ap() take one dynamic index",
        )
    return found


def _sequence(values: Any, method: str) -> tuple[Any, ...]:
    if isinstance(values, Iterable) and not isinstance(values, (str, Handle, type)):
        try:
            return tuple(values)
        except TypeError:  # an array without dims
            pass
    raise TileTypeError(f"{method}: {values!r} is not a sequence of ints", rule="LANG.R208")


def _replaced(values: tuple[int, ...], dim: int, value: int) -> tuple[int, ...]:
    return (*values[:dim], value, *values[dim + 1 :])


def _without(values: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return values[:dim] + values[dim + 1 :]
