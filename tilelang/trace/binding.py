"""Arguments and results: which parts of a call are arrays, how they enter a kernel, and how results go back to the
caller.

NumPy arrays, torch tensors (CPU), jax arrays and anything with DLPack or the buffer protocol are arrays; tuples,
lists, dicts and
objects may contain them. Everything else is a static value of the specialisation.
"""

from __future__ import annotations

import copy
import types
from array import array as StandardArray
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilelang.analysis.tensors import fields_of, tensors_in
from tilelang.dtypes import NARROWED, format_of
from tilelang.errors import TileTypeError, TileWarning, warn_user
from tilelang.ir.tensor import NkiTensor
from tilelang.trace.surroundings import Same, Surroundings, is_opaque

__all__ = ["HostArray", "describe", "flatten", "from_host", "map_arrays", "map_tensors", "to_family"]

_FUNCTIONS = (types.FunctionType, types.MethodType, partial)
_PLAIN = (tuple, list, dict, set, frozenset)
_LEAVES = (int, float, str, bool, type(None), Enum, types.FunctionType, np.dtype, type)


class HostArray:
    """One array argument: `array` in tile layout (NumPy, C order, host dtype), `original` as the caller gave it.

    `source` is the caller's memory as a NumPy array; `copied` is True when `array` is other memory, so that writes must
    be copied back. `family` is "numpy", "torch" or "jax".
    """

    __slots__ = ("array", "copied", "family", "original", "source")

    def __init__(
        self, original: Any, source: NDArray[Any], array: NDArray[Any], family: str, copied: bool = False
    ) -> None:
        self.original = original
        self.source = source
        self.array = array
        self.family = family
        self.copied = copied

    @property
    def writable(self) -> bool:
        """False when the caller's array is read-only. A jax array counts as writable: its new value is only
        returned.
        """
        return self.family == "jax" or bool(self.source.flags.writeable)

    def write_back(self, content: NDArray[Any]) -> None:
        """Copy what the kernel wrote into the caller's array; jax arrays are immutable and keep their content."""
        self.array = content
        if self.family != "jax":
            with np.errstate(all="ignore"):
                self.source[...] = content.reshape(self.source.shape).astype(self.source.dtype, copy=False)


def _torch_array(tensor: Any) -> NDArray[Any]:
    """The tensor's memory. What has no memory of its own for each element (negated and expanded views) is read-only.

    Raises TileTypeError for tensors that are not plain strided ones in host memory.
    """
    import torch

    plain = tensor.detach()
    if plain.device.type != "cpu":
        raise TileTypeError(f"a torch tensor on {plain.device} cannot be read here", hint="call .cpu() first")
    if plain.layout is not torch.strided or plain.is_nested or plain.is_quantized or plain.is_complex():
        kind = "nested" if plain.is_nested else str(plain.layout).removeprefix("torch.")
        raise TileTypeError(
            f"a {kind} torch tensor of {plain.dtype} is no argument of a kernel",
            hint="pass a dense tensor of a tile dtype: .to_dense(), .dequantize(), torch.view_as_real(…)",
        )
    negated = plain.is_neg()
    if negated:
        plain = plain.resolve_neg()
    carriers = {torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16)}
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
        if hasattr(torch, name):
            carriers[getattr(torch, name)] = (torch.uint8, getattr(ml_dtypes, name))
    if plain.dtype in carriers:
        carrier, host = carriers[plain.dtype]
        array: NDArray[Any] = plain.view(carrier).numpy().view(host)
    else:
        array = plain.numpy()
    if negated or any(n > 1 and step == 0 for n, step in zip(array.shape, array.strides, strict=True)):
        array.flags.writeable = False
    return array


def family_of(value: Any) -> str | None:
    """ "numpy", "torch", "jax" or "buffer" for arrays, None for anything else."""
    if isinstance(value, np.ndarray):
        return "numpy"
    if isinstance(value, (*_LEAVES, tuple, list, dict, np.generic)):
        return None
    module = type(value).__module__.split(".")[0]
    if module == "tilelang":
        return None
    if module == "torch" and hasattr(value, "detach"):
        return "torch"
    if module in ("jax", "jaxlib") and hasattr(value, "__array__") and hasattr(value, "dtype"):
        return "jax"
    if isinstance(value, (memoryview, bytearray, StandardArray)) or hasattr(type(value), "__dlpack__"):
        return "buffer"
    return None


# Native host dtypes seen so far → the dtype they narrow to, or None.
_NARROW: dict[Any, str | None] = {}


def _narrowing(dtype: Any) -> str | None:
    """The 32-bit dtype that a 64-bit host dtype narrows to; None for tile dtypes. Raises TypeError for other dtypes."""
    narrow = NARROWED.get(dtype.name, "int32" if dtype.name == "int64" else None)
    if narrow is None:
        format_of(dtype)
    if dtype.isnative:
        _NARROW[dtype] = narrow
    return narrow


def _as_numpy(value: Any, family: str) -> NDArray[Any]:
    """An array of any family as a NumPy array on the same memory."""
    if family == "torch":
        return _torch_array(value)
    if family == "buffer" and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def from_host(value: Any, family: str) -> HostArray:
    """`value` as a HostArray: zero-copy when C-contiguous, aligned, writable and of a tile dtype.

    Raises TileTypeError for dtypes that no tile has.
    """
    if family == "numpy" and value.flags.carray and value.ndim and _NARROW.get(value.dtype, "") is None:
        return HostArray(value, value, value, family)
    source = _as_numpy(value, family)
    narrow = _narrowing(source.dtype)
    array = source
    if narrow is not None:
        warn_user(f"{source.dtype} argument narrowed to {narrow}: tiles have no 64-bit compute types", TileWarning)
        array = source.astype(narrow)
    if not array.flags.c_contiguous or not array.flags.aligned or not array.flags.writeable:
        array = np.array(array, order="C")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    copied = array is not source
    if array.ndim == 0:
        array = array.reshape(1)
    return HostArray(value, source, array, "numpy" if family == "buffer" else family, copied)


def flatten(value: Any, arrays: list[Any] | None, key: list[Any], around: dict[int, int] | None = None) -> None:
    """Append the arrays inside `value`, as (array, family), to `arrays` and a hashable description of all to `key`.

    Of other arrays than plain NumPy ones, `key` holds nothing: their shape is known once they are converted. With
    `arrays` None, arrays are static values and `key` holds their content. `around` numbers the objects around `value`.
    Raises TileTypeError for containers that contain themselves.
    """
    kind = value.__class__
    if kind is np.ndarray and arrays is not None:
        arrays.append((value, "numpy"))
        key.append(value.dtype)
        key.append(value.shape)
        return
    if value is None or kind in (int, str, bool, float):
        key.append(kind)
        key.append(repr(value) if kind is float else value)
        return
    family = family_of(value)
    if family is not None and arrays is None:
        content = _as_numpy(value, family)
        key += [content.dtype, content.shape, sha256(content.tobytes()).digest()]
    elif family is not None:
        arrays.append((value, family))  # type: ignore[union-attr]
        key.append(family)
    elif isinstance(value, (Enum, type, np.dtype)):
        key.append(value)
    elif isinstance(value, np.generic):
        key.append((kind, value.tobytes()))
    else:
        around = {} if around is None else around
        if id(value) in around:
            if arrays is not None and isinstance(value, (tuple, list, dict)):
                raise TileTypeError(f"a {kind.__name__} argument contains itself")
            key.append(("again", around[id(value)]))
            return
        around[id(value)] = len(around)
        key.append(kind)
        _flatten_parts(value, arrays, key, around)
        if arrays is not None:  # met again elsewhere, its arrays are arguments again
            del around[id(value)]


def _flatten_parts(value: Any, arrays: list[Any] | None, key: list[Any], around: dict[int, int]) -> None:
    """What a container, function or data object holds."""
    fields = None if value.__class__ in _PLAIN else fields_of(value)
    if isinstance(value, (tuple, list)):
        key.append(len(value))
        for item in value:
            flatten(item, arrays, key, around)
    elif isinstance(value, dict):
        for name in value if arrays is not None else ():
            if not isinstance(name, str):
                raise TileTypeError(f"dict argument with key {name!r}: keys must be strings")
        key.append(tuple(value))
        for item in (*value.values(), getattr(value, "default_factory", None)):
            flatten(item, arrays, key, around)
    elif isinstance(value, (set, frozenset)):
        key.append(frozenset((item.__class__, item) for item in value))
    elif isinstance(value, (int, float, str)):
        base: Any = next(base for base in (int, float, str) if isinstance(value, base))
        key.append(base.__repr__(value))
        fields = getattr(value, "__dict__", None)
    elif fields is None:
        _flatten_opaque(value, key, arrays is None)
        return
    if fields:
        for name, item in fields.items():
            key.append(name)
            flatten(item, arrays, key, around)
    if arrays is not None and value.__class__ not in _PLAIN and not is_opaque(value.__class__.__module__):
        key.append(surroundings_of(value.__class__).state())


def _flatten_opaque(value: Any, key: list[Any], static: bool) -> None:
    """A function with what it refers to, anything else by identity, or by value where it defines that."""
    try:
        hash(value)
    except TypeError:
        key.append(Same(value))
    else:
        key.append(value)
    if not static and (isinstance(value, _FUNCTIONS) or hasattr(value, "__wrapped__")):
        key.append(surroundings_of(value).state())


def describe(value: Any) -> tuple[Any, ...]:
    """A hashable description of a static value, arrays included."""
    key: list[Any] = []
    flatten(value, None, key)
    return tuple(key)


@lru_cache(maxsize=1024)
def surroundings_of(root: Any) -> Surroundings:
    """What a function or class refers to."""
    return Surroundings(root, describe)


def map_arrays(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with every array inside replaced by `function(array)`, in the order of `flatten`.

    Containers are copied, objects only when they hold an array.
    """
    kind = value.__class__
    if kind is np.ndarray:
        return function(value)
    if value is None or kind in (int, str, bool, float):
        return value
    if isinstance(value, (tuple, list)):
        return _rebuilt(value, [map_arrays(item, function) for item in value])
    if isinstance(value, dict):
        return _rebuilt(value, {name: map_arrays(item, function) for name, item in value.items()})
    if family_of(value) is not None:
        return function(value)
    if not _holds_array(value, ()):
        return value
    clone = copy.copy(value)
    for name, item in (fields_of(value) or {}).items():
        object.__setattr__(clone, name, map_arrays(item, function))
    return clone


def _rebuilt(value: Any, items: Any) -> Any:
    """A container of the kind of `value`, with its attributes, that holds `items`."""
    kind = value.__class__
    if kind in _PLAIN:
        return items if kind is not tuple else tuple(items)
    if isinstance(value, tuple):
        clone = kind(*items) if hasattr(value, "_fields") else kind(items)
        getattr(clone, "__dict__", {}).update(getattr(value, "__dict__", {}))
        return clone
    clone = copy.copy(value)
    if isinstance(value, dict):
        clone.update(items)
    else:
        clone[:] = items
    return clone


def _holds_array(value: Any, path: tuple[int, ...]) -> bool:
    if isinstance(value, (*_LEAVES, np.generic)) or id(value) in path:
        return False
    if family_of(value) is not None:
        return True
    if isinstance(value, (tuple, list)):
        return any(_holds_array(item, path) for item in value)
    if isinstance(value, dict):
        return any(_holds_array(item, path) for item in value.values())
    return any(_holds_array(item, (*path, id(value))) for item in (fields_of(value) or {}).values())


def map_tensors(value: Any, function: Callable[[NkiTensor], Any]) -> Any:
    """The returned structure `value` with every NkiTensor replaced by `function(tensor)`."""
    if isinstance(value, NkiTensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        return _rebuilt(value, [map_tensors(item, function) for item in value])
    if isinstance(value, dict):
        return _rebuilt(value, {name: map_tensors(item, function) for name, item in value.items()})
    fields = fields_of(value)
    if not fields or not tensors_in(value):
        return value
    clone = copy.copy(value)
    for name, item in fields.items():
        object.__setattr__(clone, name, map_tensors(item, function))
    return clone


def to_family(array: NDArray[Any], family: str) -> Any:
    """A result array in the caller's framework."""
    if family == "torch":
        import torch

        name = array.dtype.name
        if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            carrier = array.view(np.uint16 if name == "bfloat16" else np.uint8)
            return torch.from_numpy(carrier).view(getattr(torch, name))
        return torch.from_numpy(array)
    if family == "jax":
        import jax.numpy as jnp

        return jnp.asarray(array)
    return array
