"""Host dtypes and casts that the tests of aws-neuron/nki-library import, over ml_dtypes and tilelang's formats.

A packed MX dtype (`…_x4`) is the unsigned integer that holds four elements, least significant first, tagged by dtype
metadata; views and slices keep the tag.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilelang.dtypes import Format, format_of

_TAG = "format"
_ELEMENTS = {
    "float8_e5m2_x4": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e4m3fn_x4": np.dtype(ml_dtypes.float8_e4m3fn),
    "float4_e2m1fn_x4": np.dtype(ml_dtypes.float4_e2m1fn),
}


def _packed(name: str) -> np.dtype[Any]:
    return np.dtype(format_of(name).host, metadata={_TAG: name})


bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e5m2_x4 = _packed("float8_e5m2_x4")
float8_e4m3fn_x4 = _packed("float8_e4m3fn_x4")
float4_e2m1fn_x4 = _packed("float4_e2m1fn_x4")


def _format(dtype: Any) -> Format:
    tag = (getattr(dtype, "metadata", None) or {}).get(_TAG)
    return format_of(tag or dtype)


def _unpack(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    element = _ELEMENTS[name]
    if name.startswith("float8"):
        return np.ascontiguousarray(array).view(element)
    nibbles = array[..., None] >> np.arange(0, 16, 4, dtype=array.dtype) & 15
    return nibbles.astype(np.uint8).view(element).reshape(*array.shape[:-1], -1)


def _pack(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    if array.shape[-1] % 4:
        raise ValueError(f"static_cast to {name}: the last dimension is {array.shape[-1]}, no multiple of 4")
    codes = np.ascontiguousarray(array.astype(_ELEMENTS[name])).view(np.uint8)
    target = _packed(name)
    if name.startswith("float8"):
        return codes.view(target)
    groups = codes.reshape(*codes.shape[:-1], -1, 4).astype(target)
    packed = np.bitwise_or.reduce(groups << np.arange(0, 16, 4, dtype=target), axis=-1)
    return packed.astype(target).view(target)


def static_cast(array: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """`array` in `dtype`, by value: a NumPy dtype, an `nl` name or a packed dtype.

    The last dimension shrinks by four into a packed dtype and grows by four out of one. Raises ValueError when it is no
    multiple of 4, TypeError for an unknown dtype.
    """
    values = np.asarray(array)
    tag = (values.dtype.metadata or {}).get(_TAG)
    if not isinstance(dtype, str) and not getattr(dtype, "metadata", None):
        try:
            plain: np.dtype[Any] | None = np.dtype(dtype)
        except TypeError:
            plain = None
        if plain is not None and tag is None:
            return values.astype(plain)
    target = _format(dtype)
    if target.name == tag:
        return values
    if tag is not None:
        values = _unpack(values, tag)
    return _pack(values, target.name) if target.kind == "packed" else values.astype(target.host)


def sizeinbytes(dtype: Any) -> int:
    """Bytes of one element of `dtype`; of one pack for packed dtypes."""
    return _format(dtype).itemsize


def finfo(dtype: Any) -> Any:
    """The limits of a float dtype, as `ml_dtypes.finfo` gives them."""
    return ml_dtypes.finfo(_format(dtype).host)


def is_float_type(dtype: Any) -> bool:
    """Whether `dtype` holds one floating-point value an element."""
    plain = np.dtype(dtype) if not isinstance(dtype, str) else format_of(dtype).host
    return plain.kind == "f" or (plain.kind == "V" and format_of(plain).is_float)
