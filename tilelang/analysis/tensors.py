"""Tensors inside returned structures, and the attributes of data objects."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from enum import Enum
from typing import Any

from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.tensor import NkiTensor

__all__ = ["fields_of", "leaves_in", "tensors_in"]


def tensors_in(value: Any) -> list[NkiTensor]:
    """Every NkiTensor in a returned structure (tuples, lists, dicts, objects), in order."""
    return [leaf for leaf in leaves_in(value) if isinstance(leaf, NkiTensor)]


def leaves_in(value: Any, path: tuple[int, ...] = ()) -> Iterator[Any]:
    """What a structure holds besides containers and data objects. `path` holds the objects around `value`."""
    if isinstance(value, (NkiTensor, VirtualRegister, NkiScalar)):
        yield value
        return
    if isinstance(value, (tuple, list)):
        items: Any = value
    elif isinstance(value, dict):
        items = value.values()
    else:
        fields = fields_of(value)
        if fields is None:
            yield value
            return
        items = fields.values()
    if id(value) not in path:
        for item in items:
            yield from leaves_in(item, (*path, id(value)))


def fields_of(value: Any) -> dict[str, Any] | None:
    """Attributes of a data object (dataclass, NKIObject, instance of a plain class); None for other kinds."""
    if isinstance(value, (str, int, float, type(None), Enum, type, types.ModuleType)):
        return None
    if callable(value) and not dataclasses.is_dataclass(value):
        return None
    names = [name for cls in type(value).__mro__ for name in _slots(cls)]
    if not names and not hasattr(value, "__dict__"):
        return None
    slots = {name: getattr(value, name) for name in reversed(names) if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))
