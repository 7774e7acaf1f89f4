"""Storage formats: one row per `nl` dtype, and recognition of host dtypes (NumPy, ml_dtypes, torch, jax).

Values are described, not computed: conversions live in `tilelang.numerics.casts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from tilelang.errors import TileTypeError

__all__ = ["FORMATS", "Format", "by_code", "format_of", "host_dtype"]


@dataclass(frozen=True, slots=True)
class Format:
    """One storage format.

    `itemsize` is in bytes; `carrier` is the NumPy integer type that holds its bits (integer formats carry themselves,
    float32 carries uint32); `host` is the NumPy dtype of results. `exponent`/`mantissa` are field widths in bits,
    `max_finite` the largest
    finite value. `lanes` is 4 for the packed MX formats, whose elements count as one.
    """

    name: str
    code: int
    itemsize: int
    kind: str  # "float", "int", "uint", "bool", "packed", "scale"
    carrier: np.dtype[Any]
    host: np.dtype[Any]
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    max_finite: float = 0.0
    has_inf: bool = False
    lanes: int = 1

    @property
    def is_float(self) -> bool:
        """True for formats with a fraction (not packed, not scales)."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for int, uint and bool formats."""
        return self.kind in ("int", "uint", "bool")

    @property
    def is_low_precision(self) -> bool:
        """True for float formats narrower than 32 bits: what `precision="high"` stores as float32."""
        return self.kind == "float" and self.itemsize < 4


def _float(name: str, code: int, host: Any, exponent: int, mantissa: int, bias: int, top: float, inf: bool) -> Format:
    dtype = np.dtype(host)
    carrier = np.dtype(f"uint{8 * dtype.itemsize}")
    return Format(name, code, dtype.itemsize, "float", carrier, dtype, exponent, mantissa, bias, top, inf)


def _integer(name: str, code: int, host: Any, kind: str) -> Format:
    dtype = np.dtype(host)
    top = 1.0 if kind == "bool" else float(np.iinfo(dtype).max)
    carrier = np.dtype(np.uint8) if kind == "bool" else dtype
    return Format(name, code, dtype.itemsize, kind, carrier, dtype, max_finite=top)


def _packed(name: str, code: int, carrier: str, exponent: int, mantissa: int, bias: int, top: float) -> Format:
    dtype = np.dtype(carrier)
    return Format(name, code, dtype.itemsize, "packed", dtype, dtype, exponent, mantissa, bias, top, lanes=4)


# Sources: isa.md section 3.1. Codes index the port tables of the native engines and never change.
_ROWS = (
    _float("float32", 0, np.float32, 8, 23, 127, 3.4028234663852886e38, True),
    _float("tfloat32", 1, np.float32, 8, 10, 127, (2 - 2.0**-10) * 2.0**127, True),
    _float("bfloat16", 2, ml_dtypes.bfloat16, 8, 7, 127, 3.3895313892515355e38, True),
    _float("float16", 3, np.float16, 5, 10, 15, 65504.0, True),
    _float("float8_e4m3", 4, ml_dtypes.float8_e4m3, 4, 3, 7, 240.0, True),
    _float("float8_e4m3fn", 5, ml_dtypes.float8_e4m3fn, 4, 3, 7, 448.0, False),
    _float("float8_e5m2", 6, ml_dtypes.float8_e5m2, 5, 2, 15, 57344.0, True),
    _integer("int8", 7, np.int8, "int"),
    _integer("int16", 8, np.int16, "int"),
    _integer("int32", 9, np.int32, "int"),
    _integer("uint8", 10, np.uint8, "uint"),
    _integer("uint16", 11, np.uint16, "uint"),
    _integer("uint32", 12, np.uint32, "uint"),
    _integer("bool", 13, np.bool_, "bool"),
    _integer("int64", 14, np.int64, "int"),
    Format(
        "float8_e8m0fnu", 15, 1, "scale", np.dtype(np.uint8), np.dtype(ml_dtypes.float8_e8m0fnu), 8, 0, 127, 2.0**127
    ),
    _packed("float8_e5m2_x4", 16, "uint32", 5, 2, 15, 57344.0),
    _packed("float8_e4m3fn_x4", 17, "uint32", 4, 3, 7, 448.0),
    _packed("float4_e2m1fn_x4", 18, "uint16", 2, 1, 1, 6.0),
)

FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
_BY_CODE: dict[int, Format] = {row.code: row for row in _ROWS}
_ALIASES = {"bool_": "bool", "float8e4": "float8_e4m3", "float8e5": "float8_e5m2", "torch.half": "float16"}
# 64-bit host types have no tile form; they narrow (language.md section 3.2).
NARROWED = {"float64": "float32", "uint64": "uint32"}


def by_code(code: int) -> Format:
    """The format with engine code `code`."""
    return _BY_CODE[code]


@lru_cache(maxsize=512)
def _from_name(name: str) -> Format | None:
    name = _ALIASES.get(name, name)
    return FORMATS.get(name)


def format_of(dtype: Any) -> Format:
    """The `Format` that `dtype` means.

    Accepts an `nl` name, a NumPy or ml_dtypes dtype or scalar type, a torch or jax dtype, or a `Format`.
    Raises TileTypeError for anything else, naming what was given and the formats that exist.
    """
    if type(dtype) is str:
        found = _from_name(dtype)
        if found is not None:
            return found
    if isinstance(dtype, Format):
        return dtype
    text = str(dtype)
    if text.startswith("torch."):
        found = _from_name(text.removeprefix("torch."))
    else:
        try:
            found = _from_name(np.dtype(dtype).name)
        except TypeError:
            found = None
    if found is None:
        raise TileTypeError(f"{dtype!r} is not a tile dtype; supported: {', '.join(FORMATS)}")
    return found


def host_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype in which tensors of format `name` are returned to the caller."""
    return FORMATS[name].host
