"""Creation of tensors (language.md section 2.4)."""

from __future__ import annotations

from hashlib import sha256
from os import PathLike, fspath
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS, format_of
from tilelang.errors import Diagnostic, TileRuleError, TileTypeError, TileValueError, TileWarning
from tilelang.ir.context import current_builder
from tilelang.ir.regions import MemoryRegion, region_of
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.copies import memset
from tilelang.isa.dma import dma_copy
from tilelang.isa.generators import affine_select
from tilelang.language.common import fail, number, tile, warn_once

__all__ = [
    "empty_like",
    "fill",
    "full",
    "ndarray",
    "ones",
    "shared_constant",
    "shared_identity_matrix",
    "zeros",
    "zeros_like",
]

_SBUF = MemoryRegion.sbuf
_FILL_COLUMNS = 2048  # widest source of an HBM fill: long enough for efficient descriptors
_CONSTANT_DTYPES = (
    "float32 float16 bfloat16 int8 int16 int32 uint8 uint16 uint32 float8_e4m3fn float8_e5m2 float8_e8m0fnu"
).split()


class _Labels:
    """What the tensors of one kernel must not share: names in use, and constants by content."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.constants: dict[bytes, NkiTensor] = {}


_labels: WeakKeyDictionary[Any, _Labels] = WeakKeyDictionary()


def _labels_of(builder: Any) -> _Labels:
    found = _labels.get(builder)
    if found is None:
        found = _labels[builder] = _Labels()
    return found


def _allocate(shape: Any, dtype: Any, buffer: Any, name: str | None, address: Any = None) -> NkiTensor:
    builder = current_builder()
    if name is None:
        name = ""
    elif not isinstance(name, str):
        fail(TileTypeError(f"name={name!r:.80} must be a str", rule="LANG.R310"))
    if name and builder.executor is None:  # executed loop bodies allocate again and again
        names = _labels_of(builder).names
        if name in names:
            warn_once(
                Diagnostic(
                    f"the name {name!r} is used by two tensors; device compilers want unique names",
                    rule="LANG.R310",
                    hint="add a prefix or a counter",
                ),
                TileWarning,
            )
        names.add(name)
    try:
        region = region_of(buffer)
    except TileTypeError as error:
        fail(error)
    result: NkiTensor = builder.allocate(shape, dtype, region, name, address)
    if builder.strict and result.on_chip and result.P > 128:
        fail(TileRuleError(f"{result.describe()}: partition dimension {result.P} exceeds maximum 128", rule="GEN.R3"))
    return result


class _NdarrayMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, NkiTensor)


class ndarray(metaclass=_NdarrayMeta):
    """`nl.ndarray(shape, dtype, buffer=nl.sbuf, name="", address=None)`: a new tensor with undefined contents.

    shape: positive ints, the partition count first for on-chip tensors. dtype: an `nl` name or a host dtype. address:
    (first partition, byte within the partition) of an on-chip tensor; None leaves the place open. The result is an
    `NkiTensor`; as a class, `ndarray` is an annotation, and `isinstance(t, nl.ndarray)` holds for every `NkiTensor`.
    """

    def __new__(  # type: ignore[misc]
        cls, shape: Any, dtype: Any, buffer: Any = _SBUF, name: str = "", address: tuple[int, int] | None = None
    ) -> NkiTensor:
        return _allocate(shape, dtype, buffer, name, address)


def full(shape: Any, fill_value: Any, dtype: Any, buffer: Any = _SBUF, name: str = "") -> NkiTensor:
    """A new tensor filled with the number `fill_value`, rounded into `dtype`. Packed dtypes take 0 only."""
    result = _allocate(shape, dtype, buffer, name)
    fill(result, fill_value)
    return result


def zeros(shape: Any, dtype: Any, buffer: Any = _SBUF, name: str = "") -> NkiTensor:
    """A new tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, buffer: Any = _SBUF, name: str = "") -> NkiTensor:
    """A new tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """A tensor of zeros with the shape of `x`; dtype and buffer default to those of `x`."""
    _require_tensor("zeros_like", x)
    return zeros(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def empty_like(
    x: NkiTensor,
    dtype: Any = None,
    buffer: Any = None,
    name: str = "",
    *,
    transpose_axes: tuple[int, ...] | None = None,
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """A new tensor with the shape of `x` and undefined contents; dtype and buffer default to those of `x`.

    transpose_axes: (1, 0), (2, 1, 0) or (3, 1, 2, 0) for 2, 3 or 4 dims: the shape is permuted, ready to be the SBUF
    destination of `nisa.dma_transpose(dst, x)`; its first size is then at most 128. `x` may be a grid: the result then
    is one of its kind, for what it selects.
    """
    from tilelang.language.grids import NkiGrid, empty_like_grid

    if isinstance(x, NkiGrid):
        if transpose_axes is not None:
            fail(TileValueError("nl.empty_like: transpose_axes of a grid", rule="LANG.R311", hint="pass grid.data"))
        grid: Any = empty_like_grid(x, dtype, buffer, name, address)
        return grid
    _require_tensor("empty_like", x)
    shape = x.shape
    if transpose_axes is not None:
        axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}.get(x.ndim)
        if axes is None or not isinstance(transpose_axes, (tuple, list)) or tuple(transpose_axes) != axes:
            fail(
                TileValueError(
                    f"nl.empty_like: transpose_axes={transpose_axes} for {x.ndim} dims",
                    rule="LANG.R311",
                    hint=f"use {axes}",
                )
            )
        shape = tuple(shape[axis] for axis in axes)
        if shape[0] > 128:
            fail(
                TileRuleError(f"nl.empty_like: {shape[0]} partitions after the transpose exceed 128", rule="LANG.R311")
            )
    return _allocate(shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name, address)


def _require_tensor(function: str, x: Any) -> None:
    if not isinstance(x, NkiTensor):
        fail(TileTypeError(f"nl.{function}: x must be a tensor, got {type(x).__name__}", rule="LANG.R301"))


def fill(dst: NkiTensor, value: Any) -> None:
    """Write the number `value` to every element of `dst`: a memset on chip, a memset and a DMA into HBM."""
    constant = number(value)
    if constant is None:
        fail(TileTypeError(f"expected a number to fill {dst.describe()}, got {type(value).__name__}", rule="LANG.R312"))
    if isinstance(constant, float) and constant.is_integer() and not FORMATS[dst.dtype].is_float:
        constant = int(constant)
    if dst.on_chip:
        memset(dst if dst.ndim <= 5 else dst.flatten_dims(1, dst.ndim - 1), constant)
        return
    rows = _largest_divisor(dst.size, 128)
    columns = _largest_divisor(dst.size // rows, _FILL_COLUMNS)
    source = tile((rows, columns), dst.dtype)
    memset(source, constant)
    repeats = dst.size // rows // columns
    dma_copy(dst, source if repeats == 1 else source.expand_dim(1).broadcast(1, repeats))


def _largest_divisor(value: int, limit: int) -> int:
    return next(n for n in range(min(value, limit), 0, -1) if value % n == 0)


def shared_constant(constant: Any) -> NkiTensor:
    """A tensor in shared HBM that holds `constant`: a NumPy array, or the path of a `.npy` file. It cannot be written.

    dtypes: float32, float16, bfloat16, int and uint of 8 to 32 bits, float8_e4m3fn, float8_e5m2, float8_e8m0fnu. Equal
    contents give the same tensor.
    """
    array = _constant_array(constant)
    builder = current_builder()
    digest = sha256(f"{array.dtype.name}{array.shape}".encode() + array.tobytes()).digest()
    constants = _labels_of(builder).constants
    found = constants.get(digest)
    if found is None:
        found = builder.allocate(array.shape, array.dtype, MemoryRegion.shared_hbm, kind="constant")
        found.storage.data = array
        if builder.executor is not None:
            builder.executor.bind(found.storage, array)
        constants[digest] = found
    return found


def _constant_array(constant: Any) -> NDArray[Any]:
    if isinstance(constant, (str, PathLike)):
        array = _load_constant(fspath(constant))
    elif isinstance(constant, np.ndarray):
        array = constant
    else:
        fail(
            TileTypeError(
                f"nl.shared_constant: expected a NumPy array or a path, got {type(constant).__name__}", rule="LANG.R313"
            )
        )
    try:
        name = format_of(array.dtype).name
    except TileTypeError:
        name = array.dtype.name
    if name not in _CONSTANT_DTYPES:
        fail(
            TileTypeError(
                f"nl.shared_constant: {name} is not supported",
                rule="LANG.R313",
                hint=f"convert the array to one of {', '.join(_CONSTANT_DTYPES)}",
            )
        )
    # A private copy: the caller's array may change before the kernel runs again.
    return np.array(array.reshape(1) if array.ndim == 0 else array, order="C")


def _load_constant(path: str) -> Any:
    try:
        array = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        fail(TileValueError(f"nl.shared_constant: cannot read {path!r}: {error}", rule="LANG.R313"))
    if not isinstance(array, np.ndarray):
        fail(TileTypeError(f"nl.shared_constant: {path!r} is no .npy file with one array", rule="LANG.R313"))
    return array


def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: NkiTensor | None = None) -> NkiTensor:
    """The `n` x `n` identity in SBUF, n <= 128: a new tile of `dtype`, or `dst` (n, n), filled and returned."""
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 128:
        fail(TileValueError(f"nl.shared_identity_matrix: n={n!r}; it must be 1 to 128", rule="LANG.R314"))
    if dst is None:
        dst = tile((n, n), dtype)
    _require_tensor("shared_identity_matrix", dst)
    if (n, n) != (dst.P, dst.F) or dst.buffer is not _SBUF:
        fail(
            TileRuleError(
                f"nl.shared_identity_matrix: dst is {dst.describe()}; it must be ({n}, {n}) in SBUF", "LANG.R314"
            )
        )
    fill(dst, 1)
    affine_select(dst, [[-1, n]], 1, dst, 0)
    return dst
