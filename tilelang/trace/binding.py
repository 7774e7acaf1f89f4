"""Arguments and results: which parts of a call are arrays, how they enter a kernel, and how results go back to the caller.

NumPy arrays, torch tensors (CPU), jax arrays and anything with DLPack or the buffer protocol are arrays; tuples, lists, dicts and
objects may contain them. Everything else is a static value of the specialisation.
"""

from __future__ import annotations

import dataclasses
import types
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import NARROWED, format_of
from tilelang.errors import TileTypeError, TileWarning
from tilelang.ir.tensor import NkiTensor

__all__ = ["HostArray", "flatten", "from_host", "map_arrays", "to_family"]

_LEAVES = (int, float, str, bool, type(None), Enum, types.FunctionType, np.dtype, type)


class HostArray:
    """One array argument: `array` in tile layout (NumPy, C order, host dtype), `original` as the caller gave it.

    `copied` is True when `array` is not the caller's own memory, so that writes must be copied back. `family` is "numpy", "torch" or "jax".
    """

    __slots__ = ("array", "copied", "family", "original", "source")

    def __init__(self, original: Any, source: NDArray[Any], array: NDArray[Any], family: str) -> None:
        self.original = original
        self.source = source
        self.array = array
        self.family = family
        self.copied = array is not source

    def write_back(self) -> None:
        """Copy the kernel's writes into the caller's array (jax arrays are immutable: nothing happens)."""
        if self.copied and self.family != "jax":
            with np.errstate(all="ignore"):
                self.source[...] = self.array.reshape(self.source.shape).astype(self.source.dtype, copy=False)


def _torch_array(tensor: Any) -> NDArray[Any]:
    import torch

    plain = tensor.detach()
    if plain.device.type != "cpu":
        raise TileTypeError(f"a torch tensor on {plain.device} cannot be read here", hint="call .cpu() first")
    carriers = {torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16)}
    for name in ("float8_e4m3fn", "float8_e5m2"):
        if hasattr(torch, name):
            carriers[getattr(torch, name)] = (torch.uint8, getattr(ml_dtypes, name))
    if plain.dtype in carriers:
        carrier, host = carriers[plain.dtype]
        return plain.view(carrier).numpy().view(host)  # type: ignore[no-any-return]
    return plain.numpy()  # type: ignore[no-any-return]


def family_of(value: Any) -> str | None:
    """"numpy", "torch", "jax" or "buffer" for arrays, None for anything else."""
    if isinstance(value, np.ndarray):
        return "numpy"
    if isinstance(value, _LEAVES) or isinstance(value, (tuple, list, dict, np.generic)):
        return None
    module = type(value).__module__.split(".")[0]
    if module == "torch" and hasattr(value, "detach"):
        return "torch"
    if module in ("jax", "jaxlib") and hasattr(value, "__array__") and hasattr(value, "dtype"):
        return "jax"
    if isinstance(value, (memoryview, bytearray)) or hasattr(value, "__dlpack__"):
        return "buffer"
    return None


# Host dtypes seen so far → the dtype they narrow to, or None.
_NARROW: dict[Any, str | None] = {}


def _narrowing(dtype: Any) -> str | None:
    """The 32-bit dtype that a 64-bit host dtype narrows to; None for tile dtypes. Raises TypeError for other dtypes."""
    narrow = NARROWED.get(dtype.name, "int32" if dtype.name == "int64" else None)
    if narrow is None:
        format_of(dtype)
    _NARROW[dtype] = narrow
    return narrow


def from_host(value: Any, family: str) -> HostArray:
    """`value` as a HostArray: zero-copy when C-contiguous, aligned, writable and of a tile dtype."""
    if family == "numpy":
        source = value
        if source.flags.carray and source.ndim and _NARROW.get(source.dtype, "") is None:
            return HostArray(value, source, source, family)
    elif family == "torch":
        source = _torch_array(value)
    elif family == "buffer" and hasattr(value, "__dlpack__"):
        source = np.from_dlpack(value)
    else:
        source = np.asarray(value)
    narrow = _narrowing(source.dtype)
    array = source
    if narrow is not None:
        warnings.warn(f"{source.dtype} argument narrowed to {narrow}: tiles have no 64-bit compute types", TileWarning, stacklevel=5)
        array = source.astype(narrow)
    if not array.flags.c_contiguous or not array.flags.aligned or not array.flags.writeable:
        array = np.array(array, order="C")
    if array.ndim == 0:
        array = array.reshape(1)
        if narrow is None and array.base is source:
            result = HostArray(value, source, array, family)
            result.copied = False
            return result
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    return HostArray(value, source, array, "numpy" if family == "buffer" else family)


def flatten(value: Any, arrays: list[Any], key: list[Any], pinned: list[Any]) -> None:
    """Append the arrays inside `value` to `arrays` and a hashable description of everything to `key`.

    Objects that `key` identifies by address are appended to `pinned`, so that they live as long as the cache entry.
    """
    kind = value.__class__
    if kind is np.ndarray:
        arrays.append((value, "numpy"))
        key.append(value.dtype)
        key.append(value.shape)
        return
    if value is None or kind in (int, str, bool, float):
        key.append(kind)
        key.append(repr(value) if kind is float else value)
        return
    if kind in (tuple, list):
        key.append(kind)
        key.append(len(value))
        for item in value:
            flatten(item, arrays, key, pinned)
        return
    if kind is dict:
        for name in value:
            if not isinstance(name, str):
                raise TileTypeError(f"dict argument with key {name!r}: keys must be strings")
        key.append(kind)
        key.append(tuple(value))
        for item in value.values():
            flatten(item, arrays, key, pinned)
        return
    family = family_of(value)
    if family is not None:
        arrays.append((value, family))
        key.append((family, str(value.dtype) if hasattr(value, "dtype") else "uint8", tuple(getattr(value, "shape", ()))))
    elif isinstance(value, Enum) or isinstance(value, (type, np.dtype)):
        key.append(value)
    elif isinstance(value, types.FunctionType):
        key.append(value)
        pinned.append(value)
    elif isinstance(value, np.generic):
        key.append((kind, repr(value)))
    else:
        _flatten_object(value, arrays, key, pinned)


def _flatten_object(value: Any, arrays: list[Any], key: list[Any], pinned: list[Any]) -> None:
    fields = _fields(value)
    if fields is None:
        try:
            hash(value)
        except TypeError:
            key.append(id(value))
        else:
            key.append(value)
        pinned.append(value)
        return
    key.append(value.__class__)
    for name, item in fields.items():
        key.append(name)
        flatten(item, arrays, key, pinned)


def _fields(value: Any) -> dict[str, Any] | None:
    """Attributes of a data object (dataclass, NKIObject, plain class instance); None for other kinds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if hasattr(value, "__dict__") and not callable(value) and not isinstance(value, types.ModuleType):
        return dict(vars(value))
    return None


def map_arrays(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with every array inside replaced by `function(array)`, containers and objects copied around them."""
    kind = value.__class__
    if kind is np.ndarray:
        return function(value)
    if value is None or kind in (int, str, bool, float):
        return value
    if isinstance(value, (tuple, list)):
        items = [map_arrays(item, function) for item in value]
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    if isinstance(value, dict):
        return {name: map_arrays(item, function) for name, item in value.items()}
    if family_of(value) is not None:
        return function(value)
    fields = None if isinstance(value, (*_LEAVES, np.generic)) else _fields(value)
    if fields is None or not any(_holds_array(item) for item in fields.values()):
        return value
    import copy

    clone = copy.copy(value)
    for name, item in fields.items():
        object.__setattr__(clone, name, map_arrays(item, function))
    return clone


def _holds_array(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_holds_array(item) for item in value)
    if isinstance(value, dict):
        return any(_holds_array(item) for item in value.values())
    return family_of(value) is not None or bool((_fields(value) if not isinstance(value, (*_LEAVES, np.generic)) else None) or {})


def map_tensors(value: Any, function: Callable[[NkiTensor], Any]) -> Any:
    """The returned structure `value` with every NkiTensor replaced by `function(tensor)`."""
    if isinstance(value, NkiTensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        items = [map_tensors(item, function) for item in value]
        return value.__class__(*items) if hasattr(value, "_fields") else value.__class__(items)
    if isinstance(value, dict):
        return {name: map_tensors(item, function) for name, item in value.items()}
    fields = None if isinstance(value, (*_LEAVES, np.generic)) else _fields(value)
    if not fields:
        return value
    import copy

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
