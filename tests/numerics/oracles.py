"""Independent answers: formats by ml_dtypes or exact rationals, functions by SciPy in float64 and by mpmath."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import mpmath as mp
import numpy as np
import scipy.special as special
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

SPECIAL_BITS = np.array(
    [
        *(0, 1, 2, 0x7FFFFF, 0x800000, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC00000, 0x40000000),
        *(0x4B000000, 0x4B800000, 0x4F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF),
    ],
    np.uint32,
)


def specials() -> F32:
    """Zeros, subnormals, infinities, NaNs quiet and signalling, powers of two and their neighbours, with both signs."""
    return np.concatenate([SPECIAL_BITS, SPECIAL_BITS | np.uint32(0x80000000)]).view(np.float32)


def sample(count: int, seed: int) -> F32:
    """The special values, random bit patterns, and numbers of everyday size."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    return np.concatenate([specials(), patterns, rng.normal(0, 8, count).astype(np.float32)])


def sweep(step: int) -> F32:
    """Every `step`-th float32 bit pattern, and the special values."""
    return np.concatenate([specials(), np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)])


def every(dtype: Any) -> F32:
    """All values of a 16-bit float type, widened."""
    return np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float32)


def bits(x: Any) -> NDArray[np.uint32]:
    """The bits of a float32 array."""
    return np.asarray(x, np.float32).view(np.uint32)


def round_exact(value: Fraction, mantissa: int = 23, bias: int = 127) -> Fraction:
    """`value` to nearest even with `mantissa` fraction bits and unlimited range above."""
    if value == 0:
        return value
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, 1 - bias) - mantissa)
    return round(value / quantum) * quantum  # Python rounds rationals to nearest even


def round_f32(value: Fraction) -> np.float32:
    """`value` as float32, to nearest even; the sign of a zero is lost."""
    rounded = round_exact(value)
    if abs(rounded) >= Fraction(2) ** 128:
        return np.float32(np.inf) if rounded > 0 else np.float32(-np.inf)
    return np.float32(float(rounded))


def encoded(x: F32, name: str) -> NDArray[Any]:
    """Bits of `x` in a narrow float format according to ml_dtypes and NumPy, NaNs made canonical."""
    dtype = np.dtype(np.float16) if name == "float16" else np.dtype(getattr(ml_dtypes, name))
    with np.errstate(all="ignore"):
        code = x.astype(dtype)
    carrier = np.uint8 if dtype.itemsize == 1 else np.uint16
    nan = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float8_e4m3": 0x7C, "float8_e4m3fn": 0x7F, "float8_e5m2": 0x7E}[name]
    sign = np.where(np.signbit(x), 1 << (8 * dtype.itemsize - 1), 0)
    return np.where(np.isnan(code), nan | sign, code.view(carrier)).astype(carrier)


# --- functions ---


def _limit(f: Callable[[F64], F64]) -> Callable[[F64], F64]:
    return lambda x: np.where(np.isneginf(x), -0.0, f(x))


def _slope(scale: float) -> Callable[[F64], F64]:
    def derivative(x: F64) -> F64:
        near = np.clip(x, -1000, 1000)
        s, rest = special.expit(scale * near), special.expit(-scale * near)
        return np.where(np.isnan(x), x, s + scale * near * s * rest)

    return derivative


def _gelu_dx(x: F64) -> F64:
    near = np.clip(x, -100, 100)
    return 0.5 * special.erfc(-near / np.sqrt(2)) + near * np.exp(-near * near / 2) / np.sqrt(2 * np.pi)


def _mish(x: F64) -> F64:
    w = np.exp(np.minimum(x, 50))
    return x * (w * (w + 2) / (w * (w + 2) + 2))


def _sin_device(x: F64) -> F64:
    d = np.abs(x) - np.pi
    return np.where(np.abs(x) <= np.pi, np.sin(x), np.sign(x) * d * (d * d / 6 - 1))


FUNCTIONS: dict[str, Callable[[F64], F64]] = {
    "copy": lambda x: x,
    "square": np.square,
    "sigmoid": special.expit,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _limit(lambda x: x * 0.5 * special.erfc(-x / np.sqrt(2))),
    "gelu_dx": _gelu_dx,
    "gelu_apprx_tanh": _limit(lambda x: x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": _limit(lambda x: x * special.expit(1.702 * x)),
    "gelu_apprx_sigmoid_dx": _slope(1.702),
    "silu": _limit(lambda x: x * special.expit(x)),
    "silu_dx": _slope(1.0),
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0, x),
    "mish": _limit(_mish),
    "erf": special.erf,
    "erf_dx": lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),
    "exp": np.exp,
    "log": np.log,
    "sin": _sin_device,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": np.sign,
    "abs": np.abs,
    "sin_full": np.sin,
    "cos": np.cos,
    "tan": np.tan,
}

# Functions that are a difference have a root in between: the size of what is subtracted is their local scale.
SCALES: dict[str, Callable[[F64], F64]] = {
    "gelu_dx": lambda x: 0.5 * special.erfc(-x / np.sqrt(2)),
    "silu_dx": special.expit,
    "gelu_apprx_sigmoid_dx": lambda x: special.expit(1.702 * x),
}


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


MP_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sigmoid": _sigmoid,
    "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    "gelu_dx": lambda x: mp.erfc(-x / mp.sqrt(2)) / 2 + x * mp.npdf(x),
    "gelu_apprx_tanh": lambda x: x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))),
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(mp.mpf("1.702") * x),
    "gelu_apprx_sigmoid_dx": lambda x: mp.diff(lambda t: t * _sigmoid(mp.mpf("1.702") * t), x),
    "silu": lambda x: x * _sigmoid(x),
    "silu_dx": lambda x: mp.diff(lambda t: t * _sigmoid(t), x),
    "tanh": mp.tanh,
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "mish": lambda x: x * mp.tanh(mp.log1p(mp.exp(x))),
    "erf": mp.erf,
    "erf_dx": lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x),
    "exp": mp.exp,
    "log": mp.log,
    "arctan": mp.atan,
    "sqrt": mp.sqrt,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sin_full": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
}
