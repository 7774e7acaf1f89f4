"""Movement and layout of data, matmul and selection (language.md section 3.5)."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import FORMATS, format_of
from tilelang.errors import TileRuleError, TileTypeError, TileValueError
from tilelang.ir.indexing import DynamicSlice as ds
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.scalars import whole
from tilelang.ir.tensor import NkiTensor
from tilelang.isa import copies
from tilelang.isa.arithmetic import tensor_scalar
from tilelang.isa.dma import dma_copy, dma_transpose
from tilelang.isa.gathers import nc_n_gather
from tilelang.isa.matmul import nc_matmul, nc_transpose
from tilelang.isa.operators import register_token
from tilelang.isa.select import tensor_copy_predicated
from tilelang.language.common import broadcast, fail, in_sbuf, number, on_chip_tile, tile
from tilelang.language.creation import fill
from tilelang.language.elementwise import BINARY
from tilelang.language.promotion import promote

__all__ = [
    "assign",
    "broadcast_to",
    "copy",
    "ds",
    "expand_dims",
    "gather_flattened",
    "load",
    "load_transpose2d",
    "matmul",
    "store",
    "transpose",
    "where",
]

_PSUM = MemoryRegion.psum


def _in_hbm(function: str, operand: str, value: Any) -> NkiTensor:
    if not isinstance(value, NkiTensor):
        fail(TileTypeError(f"nl.{function}: {operand} must be a tensor, got {type(value).__name__}", rule="LANG.R301"))
    if value.on_chip:
        hint = "use nl.copy(x), or nisa.tensor_copy(dst, src)"
        fail(
            TileRuleError(
                f"nl.{function}: {operand} is on chip: {value.describe()}; it must be in HBM",
                rule="LANG.R330",
                hint=hint,
            )
        )
    return value


def _converted(value: NkiTensor, dtype: Any) -> NkiTensor:
    """`value`, or its copy in the same memory when `dtype` is another one."""
    if dtype is None or format_of(dtype).name == value.dtype:
        return value
    result = tile(value.shape, dtype, value.buffer)
    copies.tensor_copy(result, value)
    return result


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the contents of `src`, an HBM tensor of at most 128 rows, converted to `dtype` if given."""
    source = _in_hbm("load", "src", src)
    result = tile(source.shape, source.dtype if dtype is None else dtype)
    dma_copy(result, source)
    return result


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Write the tile `value` into the HBM tensor `dst`: equal element counts; a PSUM tile passes through SBUF."""
    target = _in_hbm("store", "dst", dst)
    dma_copy(target, in_sbuf(on_chip_tile("store", "value", value)))


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile (C, R): the transpose of the HBM tensor `src` (R, C), C <= 128, of a 2- or 4-byte dtype."""
    source = _in_hbm("load_transpose2d", "src", src)
    if source.ndim != 2:
        fail(
            TileValueError(
                f"nl.load_transpose2d: src has {source.ndim} dims: {source.describe()}; it must have 2",
                rule="LANG.R331",
            )
        )
    result = tile((source.shape[1], source.shape[0]), source.dtype)
    dma_transpose(result, source)
    return _converted(result, dtype)


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the contents of the tile `x` (SBUF or PSUM): bit by bit, or converted to `dtype`.

    As `op=` argument of an instruction, names the identity.
    """
    source = on_chip_tile("copy", "x", x)
    result = tile(source.shape, source.dtype if dtype is None else dtype)
    copies.tensor_copy(result, source)
    return result


register_token(copy, "copy")


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new PSUM tile (F, P): the transpose of the tile `x` (P, F), both at most 128, converted to `dtype` if given."""
    source = in_sbuf(on_chip_tile("transpose", "x", x))
    result = tile((source.F, source.P), source.dtype, _PSUM)
    nc_transpose(result, source)
    return _converted(result, dtype)


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """`x @ y`, or `x.T @ y` with `transpose_x`: a new float32 tile in PSUM.

    x: (M, K), or (K, M) with `transpose_x`, sizes at most 128. y: (K, N), K <= 128, N <= 512. Without `transpose_x` the
    tensor engine transposes `x` first.
    """
    left, right = in_sbuf(on_chip_tile("matmul", "x", x)), in_sbuf(on_chip_tile("matmul", "y", y))
    if not isinstance(transpose_x, (bool, int)):
        fail(TileTypeError(f"nl.matmul: transpose_x={transpose_x!r:.80}; it is True or False", rule="LANG.R301"))
    if not transpose_x:
        left = in_sbuf(transpose(left))
    result = tile((left.F, right.F), "float32", _PSUM)
    nc_matmul(result, left, right)
    return result


def broadcast_to(x: NkiTensor, shape: Any, dtype: Any = None) -> NkiTensor:
    """A tile of `shape`, which has the rank of the tile `x`, with the size-1 dims of `x` repeated, partitions included.

    `x` itself when neither shape nor dtype change, else a new SBUF tile.
    """
    source = on_chip_tile("broadcast_to", "x", x)
    if not isinstance(shape, (tuple, list)):
        fail(TileTypeError(f"nl.broadcast_to: shape={shape!r:.80} is not a tuple of ints", rule="LANG.R303"))
    shape = tuple(whole(size) for size in shape)
    if len(shape) != source.ndim or any(have not in (1, want) for have, want in zip(source.shape, shape, strict=True)):
        fail(
            TileValueError(
                f"nl.broadcast_to: {source.describe()} does not broadcast to {shape}",
                rule="LANG.R303",
                hint="equal ranks; only dims of size 1 repeat",
            )
        )
    if shape == source.shape and (dtype is None or format_of(dtype).name == source.dtype):
        return source
    return copy(broadcast("broadcast_to", source, shape, asked=True), dtype)


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view of `x` with a new dim of size 1 at `axis` >= 1; negative axes count in the result."""
    if not isinstance(x, NkiTensor):
        fail(TileTypeError(f"nl.expand_dims: x must be a tensor, got {type(x).__name__}", rule="LANG.R301"))
    position = whole(axis)
    if position is None:
        fail(TileTypeError(f"nl.expand_dims: axis={axis!r:.80} is not an int", rule="LANG.R332"))
    position += x.ndim + 1 if position < 0 else 0
    if not (1 if x.on_chip else 0) <= position <= x.ndim:
        fail(
            TileValueError(f"nl.expand_dims: axis {axis} of {x.describe()}; it must be 1 to {x.ndim}", rule="LANG.R332")
        )
    return x.expand_dim(position)


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """For each partition, the elements of `data`, free dims flattened, that `indices` names: a tile of its shape.

    data: a tile (P, …); indices: a uint32 tile (P, …), positions from 0; one out of range gives an undefined value.
    axis: 0, the partition dim that stays. Source: language.md 3.5, isa.md 10.10.
    """
    source = in_sbuf(on_chip_tile("gather_flattened", "data", data))
    picked = in_sbuf(on_chip_tile("gather_flattened", "indices", indices))
    if whole(axis) != 0:
        fail(TileValueError(f"nl.gather_flattened: axis={axis!r:.80}; only 0 exists", rule="LANG.R333"))
    result = tile(picked.shape, source.dtype)
    nc_n_gather(result, source, picked)
    return _converted(result, dtype)


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """`x` where the tile `condition` is not 0, else `y`: tiles that broadcast to its shape, or numbers.

    dtype: of the result; None takes the wider of the tiles x and y, float32 when both are numbers. Returns a new SBUF
    tile.
    """
    mask = on_chip_tile("where", "condition", condition)
    on_true, on_false = _branch("x", x), _branch("y", y)
    dtypes = [value.dtype for value in (on_true, on_false) if isinstance(value, NkiTensor)]
    if dtype is None:
        dtype = promote(dtypes[0], dtypes[-1]) if dtypes else "float32"
    result = tile(mask.shape, dtype)
    assign(result, on_false)
    if isinstance(on_true, NkiTensor):
        on_true = in_sbuf(_converted(broadcast("where", on_true, mask.shape), result.dtype))
    tensor_copy_predicated(result, on_true, _predicate(mask))
    return result


def _branch(operand: str, value: Any) -> Any:
    return value if number(value) is not None else on_chip_tile("where", operand, value, " or a number")


def _predicate(mask: NkiTensor) -> NkiTensor:
    """`mask` as unsigned integers that are 0 exactly where it is."""
    fmt = FORMATS[mask.dtype]
    if fmt.kind == "uint":
        return mask
    if fmt.kind in ("int", "bool"):
        return mask.view(f"uint{8 * fmt.itemsize}")
    flags = tile(mask.shape, "uint8")
    tensor_scalar(flags, mask, BINARY["not_equal"], 0)
    return flags


def assign(dst: NkiTensor, value: Any) -> None:
    """What `t[key] = value` means: a tensor is converted and copied, repeated along dims of size 1; a number fills."""
    if number(value) is not None:
        fill(dst, value)
        return
    if not isinstance(value, NkiTensor):
        hint = "nl.shared_constant(array) brings host arrays into a kernel"
        fail(TileTypeError(f"cannot assign {type(value).__name__} to {dst.describe()}", rule="LANG.R312", hint=hint))
    if value.size != dst.size:
        value = _fit(dst, value)
    if dst.on_chip and value.on_chip:
        copies.tensor_copy(dst, value)
    elif dst.buffer is _PSUM:
        landed = tile(dst.shape, value.dtype)
        dma_copy(landed, value)
        copies.tensor_copy(dst, landed)
    else:
        dma_copy(dst, in_sbuf(value))


def _fit(dst: NkiTensor, value: NkiTensor) -> NkiTensor:
    """`value` repeated along its size-1 dims to the shape of `dst`."""
    fits = value.ndim == dst.ndim and all(a in (1, b) for a, b in zip(value.shape, dst.shape, strict=True))
    if not fits:
        fail(
            TileRuleError(
                f"cannot assign {value.describe()} to {dst.describe()}",
                rule="LANG.R303",
                hint="equal element counts, or dims of size 1 that repeat",
            )
        )
    if value.on_chip:
        return broadcast("assignment", value, dst.shape)
    for dim, size in enumerate(dst.shape):
        if value.shape[dim] != size:
            value = value.broadcast(dim, size)
    return value
