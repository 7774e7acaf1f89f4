"""`neuronxcc.nki.isa`: instructions that return their result tile (language.md 8.6)."""

from __future__ import annotations

from math import prod
from typing import Any, NoReturn

import numpy as np

from tilelang import isa, language
from tilelang.beta1.compute import box_for, emit, fresh, lifted, modern, part, two_dims
from tilelang.beta1.indices import affine, whole_box
from tilelang.beta1.tensors import Tile
from tilelang.errors import TileTypeError, TileUnsupportedError, closest
from tilelang.ir.regions import MemoryRegion
from tilelang.isa import (
    dge_mode,
    engine,
    gpsimd_engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from tilelang.language.promotion import promote

__all__ = [
    "activation", "activation_reduce", "affine_select", "bn_aggr", "bn_stats", "dge_mode", "dma_copy",
    "dma_transpose", "dropout", "engine", "get_nc_version", "gpsimd_engine", "iota", "local_gather",
    "matmul_perf_mode", "max8", "memset", "nc_find_index8", "nc_match_replace8", "nc_matmul", "nc_stream_shuffle",
    "nc_transpose", "nc_version", "oob_mode", "range_select", "reciprocal", "reduce_cmd", "scalar_engine",
    "scalar_tensor_tensor", "select_reduce", "sequence_bounds", "tensor_copy", "tensor_copy_predicated",
    "tensor_engine", "tensor_partition_reduce", "tensor_reduce", "tensor_scalar", "tensor_scalar_cumulative",
    "tensor_scalar_reduce", "tensor_tensor", "tensor_tensor_scan", "unknown_engine", "vector_engine",
]  # fmt: skip

PSUM = MemoryRegion.psum


def get_nc_version() -> nc_version:
    """NeuronCore generation of the target."""
    return isa.get_nc_version()


def _flags(predicate: Tile) -> Tile:
    """A predicate as the bytes that instructions take."""
    return predicate.view("uint8") if predicate.base.dtype == "bool" else predicate


def _shape(*values: Any) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*(lifted(v).shape for v in values if isinstance(v, Tile))))


def _dtype(dtype: Any, *values: Any) -> Any:
    """`dtype`, or the widest of the operands."""
    if dtype is not None:
        return dtype
    names = [value.base.dtype for value in values if isinstance(value, Tile)]
    found = names[0]
    for name in names[1:]:
        found = promote(found, name)
    return found


def activation(
    op: Any, data: Tile, *, bias: Any = None, scale: Any = 1.0, reduce_op: Any = None, reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle, mask: Any = None, dtype: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """`op(data * scale + bias)`."""
    extra: dict[str, Any] = {"reduce_op": reduce_op, "reduce_cmd": reduce_cmd} if reduce_op is not None else {}
    if reduce_res is not None:
        extra["reduce_res"] = modern(reduce_res)
    operands = {"data": data, "bias": bias, "scale": scale}
    return emit(isa.activation, _shape(data), _dtype(dtype, data), operands, mask, op=op, **extra)


def activation_reduce(
    op: Any, data: Tile, *, reduce_op: Any, reduce_res: Tile, bias: Any = None, scale: Any = 1.0, mask: Any = None,
    dtype: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """`activation`, and the sum of each row into `reduce_res`."""
    operands = {"data": data, "bias": bias, "scale": scale, "reduce_res": reduce_res}
    add = language.add
    return emit(isa.activation_reduce, _shape(data), _dtype(dtype, data), operands, mask, op=op, reduce_op=add)


def affine_select(
    pred: Any, on_true_tile: Tile, on_false_value: Any, *, mask: Any = None, dtype: Any = None, **_: Any
) -> Tile:
    """`on_true_tile` where the comparison of index expressions `pred` holds, else `on_false_value`."""
    tile = lifted(on_true_tile)
    chosen = np.broadcast_to(np.asarray(pred), tile.shape).reshape(tile.shape[0], -1)
    box = box_for(mask, tile.shape)
    result = fresh(tile.shape, _dtype(dtype, tile))
    flags = fresh((tile.shape[0], chosen.shape[1]), "uint8")
    isa.dma_copy(modern(flags), language.shared_constant(np.ascontiguousarray(chosen, np.uint8)))
    picked = flags.reshape(tile.shape) if tile.ndim > 2 else flags
    isa.memset(part(result, box), on_false_value)
    source = part(tile, box)
    if source.dtype != result.base.dtype:
        source = language.copy(source, result.base.dtype)
    isa.tensor_copy_predicated(dst=part(result, box), src=source, predicate=part(picked, box))
    result.valid = None if box == whole_box(tile.shape) else box
    return result


def iota(expr: Any, dtype: Any, **_: Any) -> Tile:
    """The index expression `expr` as a tile."""
    array = np.asarray(expr)
    shape = two_dims(array.shape)
    found = affine(array.reshape(shape), shape)
    pattern = [[step, count] for step, count in zip(found.steps[1:], shape[1:], strict=True)]
    result = fresh(shape, dtype)
    isa.iota(modern(result), pattern, offset=found.start, channel_multiplier=found.steps[0])
    return result


def memset(shape: Any, value: Any, dtype: Any, **_: Any) -> Tile:
    """A tile filled with a number."""
    result = fresh(tuple(int(n) for n in shape), dtype)
    isa.memset(modern(result), value)
    return result


def tensor_copy(src: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """A copy in SBUF."""
    return emit(isa.tensor_copy, _shape(src), _dtype(dtype, src), {"src": src}, mask)


def tensor_copy_predicated(
    *, src: Any, dst: Tile, predicate: Tile, reverse_pred: bool = False, mask: Any = None, **_: Any
) -> None:
    """`dst = src` where `predicate` is not 0."""
    box = box_for(mask, lifted(dst).shape)
    isa.tensor_copy_predicated(
        dst=part(dst, box), src=part(src, box), predicate=part(_flags(predicate), box), reverse_pred=reverse_pred
    )


def tensor_tensor(data1: Tile, data2: Tile, op: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
    """`op(data1, data2)`."""
    shape = _shape(data1, data2)
    left, right = (v if lifted(v).shape == shape else v.broadcast_to(shape) for v in (data1, data2))
    return emit(isa.tensor_tensor, shape, _dtype(dtype, data1, data2), {"data1": left, "data2": right}, mask, op=op)


def tensor_scalar(
    data: Tile, op0: Any, operand0: Any, reverse0: bool = False, op1: Any = None, operand1: Any = None,
    reverse1: bool = False, *, dtype: Any = None, mask: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """`op1(op0(data, operand0), operand1)`."""
    operands = {"data": data, "operand0": operand0, "operand1": operand1}
    extra = {"op0": op0, "reverse0": reverse0, "op1": op1, "reverse1": reverse1}
    return emit(isa.tensor_scalar, _shape(data), _dtype(dtype, data), operands, mask, **extra)


def tensor_scalar_reduce(
    *, data: Tile, op0: Any, operand0: Any, reduce_op: Any, reduce_res: Tile, reverse0: bool = False,
    dtype: Any = None, mask: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """`op0(data, operand0)`, reduced into `reduce_res`."""
    operands = {"data": data, "operand0": operand0, "reduce_res": reduce_res}
    extra = {"op0": op0, "reduce_op": reduce_op, "reverse0": reverse0}
    return emit(isa.tensor_scalar_reduce, _shape(data), _dtype(dtype, data), operands, mask, **extra)


def scalar_tensor_tensor(
    *, data: Tile, op0: Any, operand0: Any, op1: Any, operand1: Any, reverse0: bool = False, reverse1: bool = False,
    dtype: Any = None, mask: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """`op1(op0(data, operand0), operand1)`."""
    operands = {"data": data, "operand0": operand0, "operand1": operand1}
    extra = {"op0": op0, "op1": op1, "reverse0": reverse0, "reverse1": reverse1}
    return emit(isa.scalar_tensor_tensor, _shape(data), _dtype(dtype, data, operand1), operands, mask, **extra)


def tensor_tensor_scan(
    data0: Tile, data1: Tile, initial: Any, op0: Any, op1: Any, reverse0: bool = False, reverse1: bool = False, *,
    dtype: Any = None, mask: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """`s = op1(op0(data0[f], s), data1[f])` along the free dim."""
    operands = {"data0": data0, "data1": data1, "initial": initial}
    extra = {"op0": op0, "op1": op1, "reverse0": reverse0, "reverse1": reverse1}
    return emit(isa.tensor_tensor_scan, _shape(data0), _dtype(dtype, data0, data1), operands, mask, **extra)


def tensor_reduce(
    op: Any, data: Tile, axis: Any, *, negate: bool = False, keepdims: bool = False, dtype: Any = None,
    mask: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """`data` reduced over free dims, which may be any."""
    tile = lifted(data)
    axes = sorted(a + tile.ndim if a < 0 else a for a in (axis if isinstance(axis, (list, tuple)) else [axis]))
    kept = [a for a in range(tile.ndim) if a not in axes]
    box = box_for(mask, tile.shape)
    source = tile.restricted(box).permuted((*kept, *axes))
    shape = two_dims(tuple(tile.shape[a] for a in kept))
    result = fresh(shape, _dtype(dtype, tile))
    sizes = two_dims(tuple(box.shape[a] for a in kept))
    done = whole_box(sizes)
    isa.tensor_reduce(
        result.restricted(done).modern(), op, source.modern(), tuple(range(len(kept), tile.ndim)), negate=negate
    )
    result.valid = None if sizes == shape else done
    if keepdims:
        for a in axes:
            result = result.expand_dims(a) if result.ndim < tile.ndim else result
    return result


def tensor_scalar_cumulative(
    *, src: Tile, dst: Tile, op0: Any, op1: Any, imm0: Any, imm1: Any = None, **options: Any
) -> None:
    """Running `op1` over `op0(src, imm0)`."""
    given = {name: value for name, value in options.items() if name == "reduce_cmd"}
    isa.tensor_scalar_cumulative(modern(dst), modern(src), op0, op1, modern(imm0), modern(imm1), **given)


def reciprocal(data: Tile, *, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
    """`1 / data`."""
    return emit(isa.reciprocal, _shape(data), _dtype(dtype, data), {"data": data}, mask)


def bn_stats(data: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """Six statistics of each row."""
    tile = lifted(data)
    box = box_for(mask, tile.shape)
    result = fresh((tile.shape[0], 6), _dtype(dtype, tile))
    rows = type(box)((box.start[0], 0), (box.stop[0], 6))
    isa.bn_stats(part(result, rows), part(tile, box))
    return result


def bn_aggr(data: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """Mean and variance from the statistics of `bn_stats`."""
    tile = lifted(data)
    box = box_for(mask, tile.shape)
    result = fresh((tile.shape[0], 2), _dtype(dtype, tile))
    isa.bn_aggr(part(result, type(box)((box.start[0], 0), (box.stop[0], 2))), part(tile, box))
    return result


def max8(*, src: Tile, dtype: Any = None, **_: Any) -> Tile:
    """The 8 largest values of each row."""
    return emit(isa.max8, (lifted(src).shape[0], 8), _dtype(dtype, src), {}, src=modern(src))


def nc_find_index8(*, data: Tile, vals: Tile, dtype: Any = None, **_: Any) -> Tile:
    """Positions of 8 values in each row."""
    rows = (lifted(data).shape[0], 8)
    return emit(isa.nc_find_index8, rows, dtype or "uint32", {}, data=modern(data), vals=modern(vals))


def nc_match_replace8(*, data: Tile, vals: Tile, imm: Any, dst_idx: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """`data` with the first match of each of 8 values replaced."""
    extra = {} if dst_idx is None else {"dst_idx": modern(dst_idx)}
    return emit(
        isa.nc_match_replace8, _shape(data), _dtype(dtype, data), {"data": data}, vals=modern(vals), imm=imm, **extra
    )


def local_gather(
    src_buffer: Tile, index: Tile, num_elem_per_idx: int = 1, num_valid_indices: Any = None, **_: Any
) -> Tile:
    """Gather by indices shared by groups of 16 partitions."""
    count = num_valid_indices or 16 * prod(lifted(index).shape[1:])
    result = fresh((lifted(src_buffer).shape[0], count * num_elem_per_idx), src_buffer.base.dtype)
    extra = {"num_elem_per_idx": num_elem_per_idx, "num_valid_indices": num_valid_indices}
    isa.local_gather(modern(result), modern(src_buffer), modern(index), **extra)
    return result


def nc_stream_shuffle(src: Tile, dst: Tile, shuffle_mask: Any, **_: Any) -> None:
    """Rows of `src` into `dst` as `shuffle_mask` says."""
    isa.nc_stream_shuffle(modern(dst), modern(src), list(shuffle_mask))


def nc_transpose(data: Tile, *, engine: Any = unknown_engine, dtype: Any = None, **_: Any) -> Tile:
    """The 2-D transpose: in PSUM, or in SBUF on the vector engine."""
    rows, columns = lifted(data).shape[0], prod(lifted(data).shape[1:])
    buffer = MemoryRegion.sbuf if engine is vector_engine else PSUM
    result = fresh((columns, rows), data.base.dtype, buffer)
    source = modern(data)
    if buffer is PSUM and source.buffer is PSUM:
        source = language.copy(source)
    isa.nc_transpose(modern(result), source)
    return result


def nc_matmul(
    stationary: Tile, moving: Tile, *, is_stationary_onezero: bool = False, is_moving_onezero: bool = False,
    is_transpose: bool = False, tile_position: Any = (), tile_size: Any = (), perf_mode: Any = None,
    mask: Any = None, dtype: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """`stationary.T @ moving`, float32 in PSUM: computed where it is assigned or added, else in a tile of its own."""
    if mask is not None:
        raise TileUnsupportedError("nc_matmul with a mask", hint="mask the loads and slice the operands")
    double = perf_mode is not None and "double" in str(perf_mode)
    left, right = modern(stationary), modern(moving)
    if left.P > right.P or right.P > left.P:
        raise TileTypeError(f"nc_matmul contracts {left.P} and {right.P} partitions")
    m, n = left.F // (2 if double else 1), right.F // (2 if double else 1)
    # Where operands lie is left to tilelang, so tile_position and tile_size, which change no value, are not passed on.
    result = fresh((m, n), left.dtype if is_transpose else "float32", PSUM)
    mode = matmul_perf_mode.double_row if double else matmul_perf_mode.none

    def compute(dst: Any, accumulate: bool | None) -> None:
        isa.nc_matmul(
            dst, left, right, is_stationary_onezero, is_moving_onezero, is_transpose, accumulate, perf_mode=mode
        )  # fmt: skip

    result.pending = compute
    return result


def tensor_partition_reduce(op: Any, data: Tile, *, dtype: Any = None, **_: Any) -> Tile:
    """`data` reduced over its partitions."""
    return emit(
        isa.tensor_partition_reduce, (1, *lifted(data).shape[1:]), _dtype(dtype, data), {}, op=op, data=modern(data)
    )


def range_select(
    *, on_true_tile: Tile, comp_op0: Any, comp_op1: Any, bound0: Any, bound1: Any, reduce_cmd: Any = reduce_cmd.idle,
    reduce_res: Any = None, reduce_op: Any = np.amax, range_start: int = 0, on_false_value: Any = None,
    dtype: Any = None, **_: Any,
) -> Tile:  # fmt: skip
    """Elements whose position is in a range."""
    extra: dict[str, Any] = {} if reduce_res is None else {"reduce_res": modern(reduce_res)}
    operands = {"on_true_tile": on_true_tile, "bound0": bound0, "bound1": bound1}
    return emit(
        isa.range_select, _shape(on_true_tile), _dtype(dtype, on_true_tile), operands, comp_op0=comp_op0,
        comp_op1=comp_op1, reduce_cmd=reduce_cmd, reduce_op=reduce_op, range_start=range_start, **extra,
    )  # fmt: skip


def select_reduce(*, dst: Tile, predicate: Tile, on_true: Tile, on_false: Any, **options: Any) -> None:
    """`on_true` where `predicate`, else `on_false`, with an optional maximum."""
    given = {name: modern(value) for name, value in options.items() if name not in ("mask", "dtype")}
    given |= {"on_true": modern(on_true), "on_false": modern(on_false)}
    isa.select_reduce(dst=modern(dst), predicate=modern(_flags(predicate)), **given)


def sequence_bounds(*, segment_ids: Tile, **_: Any) -> Tile:
    """Start and end of the segment of each element."""
    tile = lifted(segment_ids)
    return emit(isa.sequence_bounds, (1, 2, tile.shape[1]), tile.base.dtype, {}, segment_ids=modern(tile))


def dropout(data: Tile, prob: Any, *, dtype: Any = None, **_: Any) -> Tile:
    """Zero elements with probability `prob`."""
    return emit(isa.dropout, _shape(data), _dtype(None, data), {"data": data, "prob": prob})


def dma_copy(*, dst: Tile, src: Tile, mask: Any = None, dst_rmw_op: Any = None, **options: Any) -> None:
    """Copy between HBM and SBUF; with `dst_rmw_op` add to what is there."""
    target, source = lifted(dst), lifted(src)
    box = box_for(mask, target.shape)
    to, origin = part(target, box), part(source, box)
    if dst_rmw_op is not None:
        isa.dma_compute(to, [to, origin], language.add)
        return
    given = {name: value for name, value in options.items() if name in ("oob_mode", "dge_mode")}
    isa.dma_copy(to, origin, **given)


def dma_transpose(src: Tile, *, axes: Any = None, **_: Any) -> Tile:
    """The transpose of an HBM or SBUF tile, in SBUF."""
    tile = lifted(src)
    order = tuple(axes) if axes is not None else {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[tile.ndim]
    result = fresh(tuple(tile.shape[a] for a in order), tile.base.dtype)
    isa.dma_transpose(modern(result), modern(tile), order)
    return result


def builtin_custom_op(*_: Any, **__: Any) -> None:
    """Not available: libraries of the device do not run here."""
    raise TileUnsupportedError(
        "builtin_custom_op runs a library of the device", hint="write it with nki.isa instructions"
    )


def _moving(name: str) -> Any:
    def function(*_: Any, **__: Any) -> None:
        raise TileUnsupportedError(f"{name} was removed", hint="use nisa.dma_copy or .ap(…, scalar_offset=register)")

    return function


tensor_copy_dynamic_src = _moving("tensor_copy_dynamic_src")
tensor_copy_dynamic_dst = _moving("tensor_copy_dynamic_dst")


def __getattr__(name: str) -> NoReturn:
    if hasattr(isa, name):
        raise AttributeError(f"neuronxcc.nki.isa has no attribute {name!r}; nki.isa has: use `import nki.isa as nisa`")
    raise AttributeError(f"neuronxcc.nki.isa has no attribute {name!r}{closest(name, __all__)}")
