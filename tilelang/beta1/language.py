"""`neuronxcc.nki.language`: the names of the older dialect (language.md 8.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from tilelang import isa, language
from tilelang.beta1 import spmd
from tilelang.beta1.compute import Reduced, box_for, fresh, lifted, modern, part, two_dims, wrapped
from tilelang.beta1.indices import arange as arange
from tilelang.beta1.indices import mgrid as mgrid
from tilelang.beta1.indices import whole_box as _whole
from tilelang.beta1.spmd import nc as nc
from tilelang.beta1.spmd import num_programs as num_programs
from tilelang.beta1.spmd import program_id as program_id
from tilelang.beta1.spmd import program_ndim as program_ndim
from tilelang.beta1.spmd import spmd_dim as spmd_dim
from tilelang.beta1.tensors import ParDim, Tile, allocate, from_modern, hooks
from tilelang.dtypes import format_of
from tilelang.errors import TileTypeError, TileUnsupportedError, closest
from tilelang.ir.regions import MemoryRegion
from tilelang.isa.operators import operator_name, register_token

sbuf, psum = MemoryRegion.sbuf, MemoryRegion.psum
hbm = private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
tile_size = language.tile_size
ds = language.ds
par_dim = ParDim

float32, float16 = np.float32, np.float16
int8, int16, int32, uint8, uint16, uint32 = np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32
bool_ = np.bool_
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3, float8_e5m2 = np.dtype(ml_dtypes.float8_e4m3), np.dtype(ml_dtypes.float8_e5m2)
tfloat32 = "tfloat32"


class fp32:
    """Constants of float32."""

    min = -3.4028234663852886e38


class bfp16:
    """Constants of bfloat16: the bits 0xff80."""

    min = float("-inf")


def finfo(dtype: Any) -> Any:
    """Limits of a floating-point dtype."""
    return ml_dtypes.finfo(np.dtype(dtype))


# -- data movement


def load(src: Tile, *, mask: Any = None, dtype: Any = None) -> Tile:
    """A new SBUF tile with what the HBM tile expression `src` names, where `mask` holds."""
    source = lifted(_tile("load", "src", src))
    box = box_for(mask, source.shape)
    result = fresh(source.shape, source.base.dtype if dtype is None else dtype)
    isa.dma_copy(part(result, box), part(source, box))
    result.valid = None if box == _whole(source.shape) else box
    return result


def store(dst: Tile, value: Any, *, mask: Any = None) -> None:
    """Write a tile or a number to the HBM tile expression `dst`, where `mask` holds."""
    target = lifted(_tile("store", "dst", dst))
    box = box_for(mask, target.shape)
    if not isinstance(value, Tile):
        filled = fresh(target.shape, target.base.dtype)
        isa.memset(part(filled, box), value)
        value = filled
    source = lifted(value)
    if source.shape != target.shape:
        if mask is not None or np.prod(source.shape) != np.prod(target.shape):
            raise TileTypeError(f"nl.store: {value!r} does not fit {dst!r}")
        isa.dma_copy(modern(target), _in_sbuf(modern(source)))
        return
    isa.dma_copy(part(target, box), _in_sbuf(part(source, box)))


def _in_sbuf(tensor: Any) -> Any:
    return language.copy(tensor) if tensor.buffer is MemoryRegion.psum else tensor


def _tile(function: str, operand: str, value: Any) -> Tile:
    if not isinstance(value, Tile):
        raise TileTypeError(f"nl.{function}: {operand} must be a tensor, got {type(value).__name__}")
    return value


def load_transpose2d(src: Tile, *, mask: Any = None, dtype: Any = None) -> Tile:
    """A new SBUF tile: the transpose of a 2-D HBM tile expression."""
    source = _tile("load_transpose2d", "src", src)
    box = box_for(mask, source.shape)
    if box != _whole(source.shape):
        raise TileUnsupportedError("nl.load_transpose2d with a mask", hint="mask the index range instead")
    return from_modern(language.load_transpose2d(modern(source), dtype=dtype))


def atomic_rmw(dst: Tile, value: Tile, op: Any, *, mask: Any = None) -> None:
    """`dst = dst + value` in HBM, at rows that an index tile picks."""
    if operator_name(op) != "add":
        raise TileTypeError("nl.atomic_rmw: op must be np.add")
    target = lifted(dst)
    box = box_for(mask, target.shape)
    rows = part(target, box)
    isa.dma_compute(rows, [rows, part(lifted(value), box)], language.add)


def copy(src: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """A new SBUF tile."""
    return wrapped(partial(language.copy, dtype=dtype), src, mask=mask)


def broadcast_to(src: Tile, *, shape: Any) -> Tile:
    """A new tile with dims of size 1 repeated."""
    return src.broadcast_to(shape)


def transpose(x: Tile, *, dtype: Any = None, mask: Any = None) -> Tile:
    """The transpose of a 2-D tile, in PSUM."""
    _no_mask("transpose", mask)
    return from_modern(language.transpose(modern(x), dtype=dtype))


def matmul(x: Tile, y: Tile, *, transpose_x: bool = False, mask: Any = None, **_: Any) -> Tile:
    """`x @ y`, or `x.T @ y`: float32 in PSUM."""
    left, right = x, y
    if mask is not None:
        raise TileUnsupportedError("nl.matmul with a mask", hint="mask the loads and slice the operands")
    if transpose_x:
        from tilelang.beta1.isa import nc_matmul

        return nc_matmul(left, right)
    return from_modern(language.matmul(modern(left), modern(right)))


def expand_dims(data: Tile, axis: int) -> Tile:
    """A view with a new dim of size 1."""
    return data.expand_dims(axis)


def where(condition: Tile, x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """`x` where `condition` is not 0, else `y`."""
    return wrapped(partial(language.where, dtype=dtype), condition, x, y, mask=mask)


def gather_flattened(data: Tile, indices: Tile, *, dtype: Any = None, mask: Any = None) -> Tile:
    """For each partition, the elements that `indices` names."""
    _no_mask("gather_flattened", mask)
    return from_modern(language.gather_flattened(modern(data), modern(indices), dtype=dtype))


def static_cast(input_data: Any, dtype: Any) -> Any:
    """A tile or a number as another dtype."""
    return input_data.astype(dtype) if isinstance(input_data, Tile) else np.dtype(dtype).type(input_data)


def _no_mask(function: str, mask: Any) -> None:
    if mask is not None:
        raise TileUnsupportedError(f"nl.{function} with a mask", hint="slice the operands")


# -- creation


def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """A new tensor, contents undefined; `shape` may hold block dims before `nl.par_dim`."""
    region = getattr(buffer, "region", MemoryRegion.sbuf if buffer is None else buffer)
    return spmd.shared(lambda: allocate(shape, format_of(dtype).name, region, name), region)


def full(shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """A new tensor filled with a number."""
    found = ndarray(shape, dtype, buffer=buffer, name=name)
    if found.on_chip:
        isa.memset(found.base, fill_value)
    else:
        from tilelang.language.creation import fill

        fill(found.base, fill_value)
    return found


def zeros(shape: Any, dtype: Any, **options: Any) -> Tile:
    """A new tensor of zeros."""
    return full(shape, 0, dtype, **options)


def ones(shape: Any, dtype: Any, **options: Any) -> Tile:
    """A new tensor of ones."""
    return full(shape, 1, dtype, **options)


def empty_like(a: Tile, dtype: Any = None, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """A new tensor of the shape of `a`, contents undefined."""
    return ndarray(a.shape, a.base.dtype if dtype is None else dtype, buffer=buffer or a.buffer, name=name)


def zeros_like(a: Tile, dtype: Any = None, **options: Any) -> Tile:
    """A new tensor of zeros of the shape of `a`."""
    options.setdefault("buffer", a.buffer)
    return zeros(a.shape, a.base.dtype if dtype is None else dtype, **options)


def shared_constant(constant: Any, dtype: Any = None, **_: Any) -> Tile:
    """An HBM tensor that holds `constant`."""
    array = np.asarray(constant)
    return Tile.over(language.shared_constant(array if dtype is None else array.astype(np.dtype(dtype))))


def shared_identity_matrix(n: int, dtype: Any = np.uint8) -> Tile:
    """The `n` x `n` identity in HBM."""
    return shared_constant(np.eye(n, dtype=np.dtype(dtype)))


def rand(shape: Any, dtype: Any = np.float32) -> Tile:
    """Uniform numbers from [0, 1)."""
    return from_modern(language.rand(two_dims(tuple(shape)), format_of(dtype).name))


def random_seed(seed: Any, **_: Any) -> None:
    """Seed `rand` and `dropout`."""
    language.random_seed(modern(seed))


# -- loops and grids


def affine_range(*args: int, **_: Any) -> range:
    """Python's `range`; directives to the compiler have no effect."""
    return range(*args)


sequential_range = static_range = affine_range


def no_reorder() -> Any:
    """See `nki.language.no_reorder`."""
    return language.no_reorder()


def loop_reduce(x: Tile, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None) -> Any:
    """What an assignment adds up over loops: `b[…] = loop_reduce(a, op, [k])` acts as `b[…] = op(b[…], a)`."""
    _no_mask("loop_reduce", mask)
    return Reduced(x, operator_name(op))


def device_print(print_prefix: str, x: Tile, **_: Any) -> None:
    """Print a tile when the program gets here."""
    language.device_print(print_prefix, modern(x))


# -- arithmetic


def _element_wise(name: str, comparison: bool) -> Callable[..., Tile]:
    function = getattr(language, name)

    def compute(*operands: Any, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
        result = "bool" if comparison and dtype is None else dtype
        return wrapped(partial(function, dtype=result), *operands, mask=mask)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"`nki.language.{name}` with masks."
    register_token(compute, name)
    return compute


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_ELEMENT_WISE = """add subtract multiply divide maximum minimum power fmod mod bitwise_and bitwise_or bitwise_xor invert
left_shift right_shift logical_and logical_or logical_xor logical_not abs square exp log sqrt rsqrt reciprocal sin cos
tan arctan tanh ceil floor trunc negative sign sigmoid relu gelu gelu_dx gelu_apprx_tanh silu silu_dx softplus mish erf
erf_dx""".split()
for _name in (*_ELEMENT_WISE, *COMPARISONS):
    globals()[_name] = _element_wise(_name, _name in COMPARISONS)


def _axes(x: Tile, axis: Any) -> list[int]:
    axes = sorted(a + x.ndim if a < 0 else a for a in (axis if isinstance(axis, (list, tuple)) else [axis]))
    if not axes or axes[0] < 1 or axes[-1] >= x.ndim:
        raise TileTypeError(f"axis={axis} of {x!r}: free dims, 1 to {x.ndim - 1}")
    return axes


def _reduction(name: str) -> Callable[..., Tile]:
    function = getattr(language, name)

    def reduce(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any) -> Tile:
        tile = lifted(x)
        axes = _axes(tile, axis)
        kept = [a for a in range(tile.ndim) if a not in axes]
        box = box_for(mask, tile.shape)
        turned = tile.restricted(box).permuted((*kept, *axes))
        result = from_modern(function(turned.modern(), axis=tuple(range(len(kept), tile.ndim)), dtype=dtype))
        shape = tuple(tile.shape[a] for a in kept)
        if box != _whole(tile.shape):
            sizes = two_dims(tuple(box.shape[a] for a in kept))
            whole = fresh(shape, result.base.dtype)
            target = whole.restricted(type(box)((0,) * len(sizes), sizes))
            isa.tensor_copy(target.modern(), modern(result))
            whole.valid = type(box)((0,) * len(sizes), sizes)
            result = whole
        if keepdims:
            for a in axes:
                result = result.expand_dims(a) if result.ndim < tile.ndim else result
        return result

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"`nki.language.{name}` over any free dims, with masks."
    if name in ("max", "min", "sum"):
        register_token(reduce, {"max": "maximum", "min": "minimum", "sum": "add"}[name])
    return reduce


for _name in ("sum", "max", "min", "mean", "var", "prod", "all"):
    globals()[_name] = _reduction(_name)


def softmax(x: Tile, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None) -> Tile:
    """Softmax along free dims."""
    return wrapped(partial(language.softmax, axis=axis, dtype=dtype), x, mask=mask)


def rms_norm(
    x: Tile, w: Tile, axis: Any, n: Any, epsilon: float = 1e-6, *, dtype: Any = None, compute_dtype: Any = None,
    mask: Any = None,
) -> Tile:  # fmt: skip
    """Root-mean-square normalisation along free dims."""
    _no_mask("rms_norm", mask)
    return from_modern(language.rms_norm(modern(x), modern(w), axis, n, epsilon, dtype=dtype))


def dropout(x: Tile, rate: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """Zero elements with probability `rate`."""
    return wrapped(lambda tile: language.dropout(tile, modern(rate), dtype=dtype), x, mask=mask)


def all_reduce(x: Tile, op: Any, program_axes: Any, **_: Any) -> Tile:
    """Reduce over the programs of a grid: they run one after the other here."""
    raise TileUnsupportedError("nl.all_reduce over programs of a grid", hint="use nki.collectives with tilelang.launch")


def _operate(name: str, left: Any, right: Any) -> Tile:
    return globals()[name](left, right) if right is not None else globals()[name](left)


hooks.operate = _operate


def __getattr__(name: str) -> NoReturn:
    if hasattr(language, name):
        raise AttributeError(
            f"neuronxcc.nki.language has no attribute {name!r}; nki.language has: use `import nki.language as nl`"
        )
    raise AttributeError(f"neuronxcc.nki.language has no attribute {name!r}{closest(name, globals())}")
