"""Tensors inside returned structures."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilelang.ir.tensor import NkiTensor

__all__ = ["tensors_in"]


def tensors_in(value: Any) -> list[NkiTensor]:
    """Every NkiTensor in a returned structure (tuples, lists, dicts, objects), in order."""
    if isinstance(value, NkiTensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [tensor for f in dataclasses.fields(value) for tensor in tensors_in(getattr(value, f.name))]
    if hasattr(value, "__dict__") and not callable(value):
        return [tensor for item in vars(value).values() for tensor in tensors_in(item)]
    return []
