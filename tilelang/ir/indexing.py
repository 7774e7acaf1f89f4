"""`t[key]`: ints, slices, `...`, `nl.ds` and device integers as index items (language.md section 2.6)."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from tilelang.errors import TileIndexError, TileRuleError, TileTypeError, TileValueError
from tilelang.ir import hooks
from tilelang.ir.dynamic import dynamic_index
from tilelang.ir.handle import Handle
from tilelang.ir.scalars import NkiScalar, VirtualRegister, whole

__all__ = ["DynamicSlice", "Indexing"]

T = TypeVar("T", bound="Indexing")
_new = object.__new__
_DEVICE_INTEGERS = (VirtualRegister, NkiScalar, Handle)


class DynamicSlice:
    """`nl.ds(start, size)`: exactly the elements start .. start + size - 1. Attributes `start`, `size`, `stop`."""

    __slots__ = ("size", "start", "stop")

    def __init__(self, start: int, size: int) -> None:
        self.start = _integer(start, "nl.ds start")
        self.size = _integer(size, "nl.ds size")
        self.stop = self.start + self.size

    def __repr__(self) -> str:
        return f"nl.ds({self.start}, {self.size})"


class Indexing(Handle):
    """Item access of tensors."""

    __slots__ = ()

    def __getitem__(self: T, key: Any) -> T:
        """The view that `key` selects. Items: int (negative counts from the end), slice with positive step, `...`
        (once), `nl.ds(start, size)`, and one register, NkiScalar or one-element SBUF tensor, which selects at run
        time.

        An int drops its dim; on-chip, dim 0 stays with size 1 and the result keeps two dims; in HBM it keeps one.
        Raises TileIndexError when an index or slice leaves its dim, TileValueError for empty slices and steps < 1,
        TileTypeError for other items.
        """
        if type(key) is not tuple:
            key = (key,)
        shape = self.shape
        strides = self.strides
        rank = len(shape)
        if len(key) > rank:
            _check_item_count(self, key)
        dynamic = self.dynamic
        if dynamic is not None and dynamic.kind != "scalar":
            _check_gathered(self, key)
        offset = self.offset
        sizes: list[int] = []
        steps: list[int] = []
        dim = 0
        expanded = False
        for item in key:
            kind = type(item)
            if kind is slice:
                size = shape[dim]
                stride = strides[dim]
                start = item.start
                stop = item.stop
                if start is None:
                    start = 0
                elif type(start) is not int or start < 0:
                    start = _bound(self, dim, start, item)
                if stop is None:
                    stop = size
                elif type(stop) is not int or stop < 0:
                    stop = _bound(self, dim, stop, item)
                if stop > size or start >= stop:
                    stop = _checked_stop(self, dim, start, stop, item)
                if item.step is None:
                    sizes.append(stop - start)
                    steps.append(stride)
                else:
                    step = _step(self, dim, item)
                    sizes.append((stop - start + step - 1) // step)
                    steps.append(stride * step)
                offset += start * stride
                dim += 1
            elif kind is int:
                offset += _position(self, dim, item) * strides[dim]
                if dim == 0 and self.storage.on_chip:
                    sizes.append(1)
                    steps.append(strides[0])
                dim += 1
            elif kind is DynamicSlice:
                start = item.start
                if start < 0 or item.size < 1 or item.stop > shape[dim]:
                    _refuse_slice(self, dim, start, item.stop, item)
                sizes.append(item.size)
                steps.append(strides[dim])
                offset += start * strides[dim]
                dim += 1
            elif item is Ellipsis:
                width = rank - len(key) + 1
                if width < 0 or expanded:
                    _refuse_item(self, dim, item)
                expanded = True
                sizes.extend(shape[dim : dim + width])
                steps.extend(strides[dim : dim + width])
                dim += width
            elif isinstance(item, _DEVICE_INTEGERS):
                dynamic = dynamic_index(self, dim, item, dynamic)
                dim += 1
            else:
                offset += _position(self, dim, _integer_item(self, dim, item)) * strides[dim]
                if dim == 0 and self.storage.on_chip:
                    sizes.append(1)
                    steps.append(strides[0])
                dim += 1
        if dim < rank:
            sizes.extend(shape[dim:])
            steps.extend(strides[dim:])
        if len(sizes) < 2:
            restore_rank(self, sizes, steps)
        view = _new(type(self))
        view.storage = self.storage
        view.shape = tuple(sizes)
        view.strides = tuple(steps)
        view.offset = offset
        view.dtype = self.dtype
        view.dynamic = dynamic
        view._key = None
        view._span = None
        return view


def restore_rank(view: Handle, sizes: list[int], steps: list[int]) -> None:
    """Keep the last dropped dim with size 1 where a drop left too few: on-chip tensors keep two dims, HBM tensors
    one."""
    least = min(2, len(view.shape)) if view.storage.on_chip else 1
    while len(sizes) < least:
        sizes.append(1)
        steps.append(view.strides[-1])


def _check_item_count(view: Handle, key: tuple[Any, ...]) -> None:
    count = sum(item is not Ellipsis for item in key)
    if count > len(view.shape):
        raise TileIndexError(
            f"{count} index items for {view.describe()}, which has {len(view.shape)} dims",
            rule="LANG.R207",
            hint="new dims are made with t.expand_dim(dim)",
        )


def _check_gathered(view: Handle, key: tuple[Any, ...]) -> None:
    """Dims that an index tensor moves cannot be indexed again: dim 0 of vector views, all of indirect views."""
    assert view.dynamic is not None
    for dim, item in enumerate(key[:1] if view.dynamic.kind == "vector" else key):
        if item is Ellipsis:
            return
        whole = type(item) is slice and (item.start, item.stop) in ((None, None), (0, view.shape[dim]), (0, None))
        if not whole or item.step not in (None, 1):
            raise TileRuleError(
                f"dim {dim} of {view.describe()} is moved by an index tensor and cannot be indexed again with {item!r}",
                rule="AP.R9",
                hint="slice the tensor and its index first, then make the indirect view",
            )


def _position(view: Handle, dim: int, index: int) -> int:
    size = view.shape[dim]
    if not -size <= index < size:
        raise TileIndexError(
            f"index {index} of dim {dim} of {view.describe()} is out of range {-size}..{size - 1}",
            rule="LANG.R203",
            hint="for a ragged tail bound the loop by the real size",
        )
    return index if index >= 0 else index + size


def _bound(view: Handle, dim: int, bound: Any, item: slice) -> int:
    """A slice bound that is not a plain non-negative int: counted from the end, or refused."""
    value = _integer(bound, f"the bound of slice {_text(item)} of dim {dim}")
    if value >= 0:
        return value
    if value + view.shape[dim] < 0:
        _refuse_slice(view, dim, item.start, item.stop, item)
    return value + view.shape[dim]


def _checked_stop(view: Handle, dim: int, start: int, stop: int, item: slice) -> int:
    """The stop of a slice that is empty or ends beyond its dim: clamped when that is tolerated, else an error."""
    size = view.shape[dim]
    if hooks.clamp_slices and start < size < stop:
        hooks.warn(
            f"slice {_text(item)} of dim {dim} of {view.describe()} is cut at {size}",
            "LANG.R204",
            "devices refuse it: use min(stop, size)",
        )
        return size
    if stop > size:
        _refuse_slice(view, dim, start, stop, item)
    raise TileValueError(
        f"slice {_text(item)} of dim {dim} of {view.describe()} is empty",
        rule="LANG.R205",
        hint="skip the instruction when there is nothing to do",
    )


def _refuse_slice(view: Handle, dim: int, start: Any, stop: Any, item: slice | DynamicSlice) -> NoReturn:
    size = view.shape[dim]
    text = _text(item)
    if isinstance(item, DynamicSlice) and item.size < 1:
        raise TileValueError(f"{text} of dim {dim} of {view.describe()} is empty", rule="LANG.R205")
    raise TileIndexError(
        f"{text} of dim {dim} of {view.describe()} reaches outside 0..{size} (it has {size} elements)",
        rule="LANG.R204",
        hint=f"for a ragged tail write {start}:min({stop}, {size})",
    )


def _step(view: Handle, dim: int, item: slice) -> int:
    step = _integer(item.step, f"the step of slice {_text(item)} of dim {dim}")
    if step < 1:
        raise TileValueError(
            f"slice {_text(item)} of dim {dim} of {view.describe()} has step {step}; steps are positive",
            rule="LANG.R206",
            hint="reversed orders need a copy or, in HBM, .ap with a negative step",
        )
    return step


def _integer_item(view: Handle, dim: int, item: Any) -> int:
    """An index item that is no plain int as one, or an error that says what to write instead."""
    found = whole(item)
    if found is None:
        _refuse_item(view, dim, item)
    return found


def _refuse_item(view: Handle, dim: int, item: Any) -> NoReturn:
    hint = {
        "NoneType": "new dims are made with t.expand_dim(dim)",
        "ellipsis": "... may stand once in a key",
        "ndarray": "gathers use t.ap(..., vector_offset=index) or t.vector_select(0, index)",
    }.get(type(item).__name__, "items are ints, slices, ..., nl.ds(start, size) and one register or 1x1 SBUF tensor")
    raise TileTypeError(f"index item {item!r} of dim {dim} of {view.describe()}", rule="LANG.R206", hint=hint)


def _integer(value: Any, use: str) -> int:
    if type(value) is int:
        return value
    found = whole(value)
    if found is None:
        raise TileTypeError(
            f"{use} is {value!r}, not a Python int",
            rule="LANG.R206",
            hint="sizes and bounds are known while tracing; .ap(..., scalar_offset=value) moves a window at run time",
        )
    return found


def _text(item: slice | DynamicSlice) -> str:
    if isinstance(item, DynamicSlice):
        return repr(item)
    step = "" if item.step is None else f":{item.step}"
    return f"{'' if item.start is None else item.start}:{'' if item.stop is None else item.stop}{step}"
