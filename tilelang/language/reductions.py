"""Reductions along free dims, and what is built from them (language.md section 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod as product
from typing import Any

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.scalars import whole
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.arithmetic import tensor_scalar
from tilelang.isa.operators import register_token
from tilelang.isa.reductions import reduced_dims, tensor_reduce
from tilelang.language.common import Axis, fail, on_chip_tile, tile
from tilelang.language.elementwise import BINARY, UNARY

__all__ = ["REDUCTIONS", "mean", "rms_norm", "softmax", "var"]

Reduction = Callable[..., NkiTensor]
REDUCTIONS: dict[str, Reduction] = {}
_F32 = "float32"


def _axes(function: str, x: NkiTensor, axis: Any) -> tuple[int, ...]:
    """`axis` as a tuple of the trailing free dims of `x`."""
    given = [whole(a) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    axes = tuple(a for a in given if a is not None)
    if len(axes) < len(given):
        fail(TileTypeError(f"nl.{function}: axis={axis!r} is not an int or a tuple of ints", rule="LANG.R340"))
    count = reduced_dims(axes, x.ndim)
    if count is None:
        allowed = " or ".join(str(tuple(range(first, x.ndim))) for first in range(x.ndim - 1, 0, -1))
        fail(
            TileValueError(
                f"nl.{function}: axis={axis!r} of {x.describe()}: only the last dims, without dim 0",
                rule="LANG.R340",
                hint=f"allowed here: {allowed}; dim 0 is the partition dim: use nl.matmul with a column of ones",
            )
        )
    return tuple(range(x.ndim - count, x.ndim))


def _shape(x: NkiTensor, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    kept = x.shape[: x.ndim - len(axes)]
    if keepdims:
        return (*kept, *(1,) * len(axes))
    return kept if len(kept) > 1 else (*kept, 1)


def _reduce(op: str, x: NkiTensor, axes: tuple[int, ...], dtype: Any, keepdims: bool) -> NkiTensor:
    result = tile(_shape(x, axes, keepdims), x.dtype if dtype is None else dtype)
    tensor_reduce(result, BINARY[op], x, axes)
    return result


_DOC = """{what} of `x` over `axis`.

    x: a tile in SBUF or PSUM. axis: an int or a tuple of ints, the last free dims. dtype: of the result, None keeps
    that of x; float32 inside, in ascending order. keepdims: keep the reduced dims with size 1;
    without, the result keeps at least two dims: (P, 1). Returns a new tile in SBUF.{token}"""


def _reduction(name: str, op: str, what: str) -> Reduction:
    def function(x: Any, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        data = on_chip_tile(name, "x", x)
        return _reduce(op, data, _axes(name, data, axis), dtype, keepdims)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "tilelang.language"
    function.__doc__ = _DOC.format(what=what, token=f" As `op=` argument, names the operator {op}.")
    register_token(function, op)
    REDUCTIONS[name] = function
    return function


_reduction("sum", "add", "The sum")
_reduction("max", "maximum", "The largest element")
_reduction("min", "minimum", "The smallest element")
_reduction("prod", "multiply", "The product")


def _all(x: Any, axis: Axis, dtype: Any = None) -> NkiTensor:
    """1 where all elements of `x` along `axis` are not 0, else 0. Parameters as those of `nl.sum`."""
    data = on_chip_tile("all", "x", x)
    return _reduce("logical_and", data, _axes("all", data, axis), dtype, keepdims=False)


_all.__name__ = _all.__qualname__ = "all"
REDUCTIONS["all"] = _all


def _mean(x: NkiTensor, axes: tuple[int, ...], dtype: Any, keepdims: bool) -> NkiTensor:
    total = _reduce("add", x, axes, _F32, keepdims)
    result = tile(total.shape, x.dtype if dtype is None else dtype)
    tensor_scalar(result, total, BINARY["multiply"], 1.0 / product(x.shape[axes[0] :]))
    return result


def mean(x: NkiTensor, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The mean of `x` over `axis`: the float32 sum times 1 / count. Parameters as those of `nl.sum`."""
    data = on_chip_tile("mean", "x", x)
    return _mean(data, _axes("mean", data, axis), dtype, keepdims)


def var(x: NkiTensor, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The population variance of `x` over `axis`, in two passes: the mean, then the mean of the squared differences.

    Parameters as those of `nl.sum`, but the reduced dims are kept with size 1 whatever `keepdims` says.
    """
    data = on_chip_tile("var", "x", x)
    axes = _axes("var", data, axis)
    center = _mean(data, axes, _F32, keepdims=True)
    distance = BINARY["subtract"](data, center, dtype=_F32)
    return _mean(BINARY["multiply"](distance, distance), axes, data.dtype if dtype is None else dtype, keepdims=True)


def softmax(x: NkiTensor, axis: Axis = -1, dtype: Any = None) -> NkiTensor:
    """`exp(x - max) / sum(exp(x - max))` over the last free dims `axis`, float32 inside.

    x: a tile in SBUF or PSUM. dtype: of the result, None keeps that of x. Returns a new tile in SBUF.
    """
    data = on_chip_tile("softmax", "x", x)
    axes = _axes("softmax", data, axis)
    largest = _reduce("maximum", data, axes, _F32, keepdims=True)
    powers = UNARY["exp"](BINARY["subtract"](data, largest, dtype=_F32))
    scale = UNARY["reciprocal"](_reduce("add", powers, axes, _F32, keepdims=True))
    return BINARY["multiply"](powers, scale, dtype=data.dtype if dtype is None else dtype)


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: Axis,
    n: int,
    epsilon: float = 1e-06,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> NkiTensor:
    """`x * rsqrt(sum(x ** 2) / n + epsilon) * w`, the sum over the last free dims `axis`.

    x: a tile in SBUF or PSUM; w: a tile that broadcasts to its shape. n: the divisor. compute_dtype: of intermediate
    tiles, None is float32. dtype: of the result, None keeps that of x. Returns a new tile in SBUF.
    """
    data, weight = on_chip_tile("rms_norm", "x", x), on_chip_tile("rms_norm", "w", w)
    axes = _axes("rms_norm", data, axis)
    inner = _F32 if compute_dtype is None else compute_dtype
    total = _reduce("add", UNARY["square"](data, dtype=inner), axes, _F32, keepdims=True)
    shifted = tile(total.shape, _F32)
    tensor_scalar(shifted, total, BINARY["multiply"], 1.0 / n, False, BINARY["add"], epsilon)
    normalised = BINARY["multiply"](data, UNARY["rsqrt"](shifted), dtype=inner)
    return BINARY["multiply"](normalised, weight, dtype=data.dtype if dtype is None else dtype)
