"""Running modern instructions and wrappers on tiles of the older dialect: masks, result tiles, accumulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilelang import isa, language
from tilelang.beta1.indices import Box, box_of, whole_box
from tilelang.beta1.tensors import Tile, from_modern, hooks
from tilelang.dtypes import format_of
from tilelang.errors import TileTypeError, TileUnsupportedError
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.tensor import NkiTensor

__all__ = [
    "Reduced",
    "accumulate",
    "assign",
    "box_for",
    "emit",
    "fresh",
    "lifted",
    "modern",
    "part",
    "two_dims",
    "wrapped",
]

_MOST_FREE_DIMS = 4


class Reduced:
    """`nl.loop_reduce(x, op, …)`: what an assignment accumulates into its target."""

    def __init__(self, value: Tile, op: str) -> None:
        self.value = value
        self.op = op


def two_dims(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Tiles have at least two dims."""
    return shape if len(shape) > 1 else (*shape, 1) if shape else (1, 1)


def lifted(tile: Tile) -> Tile:
    """`tile` with at least two dims."""
    while tile.ndim < 2:
        tile = tile.expand_dims(tile.ndim)
    return tile


def fresh(shape: tuple[int, ...], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf) -> Tile:
    """A new tile, contents undefined."""
    return from_modern(language.ndarray(two_dims(shape), format_of(dtype).name, buffer=buffer))


def box_for(mask: Any, shape: tuple[int, ...]) -> Box:
    """Where `mask` lets an instruction of `shape` work."""
    box = box_of(mask, shape)
    if box is None:
        raise TileUnsupportedError("the mask lets nothing pass", hint="leave the instruction out")
    return box


def part(value: Any, box: Box) -> Any:
    """Operand `value` at `box` as a modern tensor; numbers stay."""
    if not isinstance(value, Tile):
        return value
    tile = lifted(value)
    if tile.ndim < len(box.start):
        raise TileTypeError(f"{value!r} in an instruction of {len(box.start)} dims")
    return tile.restricted(Box(box.start[: tile.ndim], box.stop[: tile.ndim])).modern()


def modern(value: Any) -> Any:
    """`value` as a modern tensor, if it is a tile."""
    return lifted(value).modern() if isinstance(value, Tile) else value


def _common(values: Sequence[Any]) -> tuple[int, ...]:
    shapes = [lifted(value).shape for value in values if isinstance(value, Tile)]
    if not shapes:
        raise TileTypeError("no operand is a tile", hint="compute it in Python")
    return tuple(np.broadcast_shapes(*shapes))


def wrapped(function: Callable[..., NkiTensor], *operands: Any, mask: Any = None, **options: Any) -> Tile:
    """The modern wrapper `function` on `operands`, element by element, where `mask` holds."""
    shape = _common(operands)
    box = box_for(mask, shape)
    whole: Tile | None = None
    pieces = _pieces(box, [value for value in operands if isinstance(value, Tile)])
    for piece in pieces:
        result = function(*[part(value, piece) for value in operands], **options)
        if piece == whole_box(shape):
            return from_modern(result)
        whole = fresh(shape, result.dtype) if whole is None else whole
        isa.tensor_copy(whole.restricted(piece).modern(), result)
    assert whole is not None
    whole.valid = None if box == whole_box(shape) else box
    return whole


def _pieces(box: Box, tiles: Sequence[Tile]) -> list[Box]:
    """`box` cut along its first free axes until an instruction can walk every tile (4 free dims, isa.md AP.R5)."""
    if len(box.start) < _MOST_FREE_DIMS + 2 or all(_walkable(part(tile, box)) for tile in tiles):
        return [box]
    axis = next(a for a in range(1, len(box.start)) if box.stop[a] - box.start[a] > 1)
    found = []
    for position in range(box.start[axis], box.stop[axis]):
        start = (*box.start[:axis], position, *box.start[axis + 1 :])
        stop = (*box.stop[:axis], position + 1, *box.stop[axis + 1 :])
        found += _pieces(Box(start, stop), tiles)
    return found


def _walkable(tensor: Any) -> bool:
    return len(tensor.free_pattern()) <= _MOST_FREE_DIMS


def emit(
    instruction: Callable[..., Any],
    shape: tuple[int, ...],
    dtype: Any,
    operands: dict[str, Any],
    mask: Any = None,
    buffer: MemoryRegion = MemoryRegion.sbuf,
    **options: Any,
) -> Tile:
    """A new tile of `shape` from a modern instruction with `dst`, operands and other arguments by name."""
    shape = two_dims(shape)
    box = box_for(mask, shape)
    result = fresh(shape, dtype, buffer)
    given = {name: part(value, box) for name, value in operands.items() if value is not None}
    instruction(dst=result.restricted(box).modern(), **given, **options)
    result.valid = None if box == whole_box(shape) else box
    return result


def assign(target: Tile, value: Any) -> None:
    """`target[…] = value`: copies a tile, its computed block if a mask left some out, or fills with a number."""
    if not target.on_chip:
        raise TileTypeError(f"assignment to {target!r}", hint="HBM tensors are written with nl.store")
    if isinstance(value, Reduced):
        accumulate(target, value.value, value.op)
        return
    if not isinstance(value, Tile):
        _fill(modern(target), value)
        return
    if value.pending is not None and value.shape == target.shape and target.buffer is MemoryRegion.psum:
        compute, value.pending = value.pending, None
        compute(modern(target), False)
        return
    if value.base.storage is target.base.storage and _place(value) == _place(target):
        return  # what `target[…] += x` has done already
    source, destination = lifted(value), lifted(target)
    if source.shape != destination.shape:
        if source.ndim == destination.ndim and all(a in (1, b) for a, b in zip(source.shape, destination.shape)):
            isa.tensor_copy(modern(destination), language.broadcast_to(modern(source), destination.shape))
            return
        if source.valid is not None or np.prod(source.shape) != np.prod(destination.shape):
            raise TileTypeError(f"{value!r} does not fit {target!r}")
        isa.tensor_copy(modern(destination), modern(source))
        return
    for box in _pieces(source.valid or whole_box(source.shape), (source, destination)):
        isa.tensor_copy(part(destination, box), part(source, box))


def _fill(target: NkiTensor, value: Any) -> None:
    """A number everywhere; rows where no engine may start are written by DMA."""
    start, count = target.start_partition, target.P
    legal = start % 32 == 0 and (count <= 32 or (start % 64 == 0 and (count <= 64 or start == 0)))
    if legal:
        isa.memset(target, value)
        return
    source = fresh(tuple(target.shape), target.dtype)
    isa.memset(modern(source), value)
    isa.dma_copy(target, modern(source))


def _place(tile: Tile) -> tuple[Any, ...]:
    view = tile.modern()
    return view.offset, view.shape, view.strides


def accumulate(target: Tile, value: Any, op: str) -> None:
    """`target = op(target, value)` in place; a matrix product accumulates in PSUM."""
    if isinstance(value, Tile) and value.pending is not None and op == "add" and target.buffer is MemoryRegion.psum:
        compute, value.pending = value.pending, None
        compute(modern(target), None)  # the first product in fresh PSUM overwrites
        return
    operator = getattr(language, op)
    if not isinstance(value, Tile):
        isa.tensor_scalar(modern(target), modern(target), operator, value)
        return
    source, destination = lifted(value), lifted(target)
    box = source.valid or whole_box(destination.shape)
    left, right = part(destination, box), part(source, box)
    if right.shape != left.shape:
        right = language.broadcast_to(right, left.shape)
    if left.buffer is MemoryRegion.psum and right.buffer is MemoryRegion.psum:
        right = language.copy(right)
    isa.tensor_tensor(left, left, right, operator)


def _as_index(rows: Tile) -> NkiTensor:
    tensor: NkiTensor = modern(rows)
    if tensor.dtype not in ("int32", "uint32"):
        tensor = language.copy(tensor, "int32")
    return tensor


hooks.assign = assign
hooks.accumulate = accumulate
hooks.as_index = _as_index
