"""Activation functions on float32 (isa.md section 4.2), and the simulate-only trigonometry of the language.

`exp` is computed in float32 because it dominates softmax; the others in float64 with one rounding at the end. The
error is at most 2 units in the last place over all of float32; near a root, 2^-24 of the scale of the function there.
A NaN gives the canonical NaN; at infinities the value is the limit (`silu(-inf)` is -0). Outside a function's valid
range on the device the value is the mathematical one, but for `sin`, which continues as a cubic like the hardware.
"""

from __future__ import annotations

import numpy as np

from tilelang.numerics import trigonometry
from tilelang.numerics.alu import UNARY, with_sign
from tilelang.numerics.casts import copy_f32, quiet
from tilelang.numerics.elementary import abs64, clamp64, exp64, expm1_64, log1p64, log64
from tilelang.numerics.prim import Formula, Value, as_f32, as_f64, as_u32, bits_f32, f32_bits, select, sqrt

__all__ = ["ACTIVATIONS", "FORMULAS", "SIMULATE_ONLY"]

_ZERO = np.float32(0)
_ONE = np.float32(1)
_INF = np.float32(np.inf)
_NAN = np.float32(np.nan)

# --- exp in float32 ---

_LOG2_E = np.float32(1.4426950408889634)
_LN_2_HIGH = np.float32(0.693359375)  # 9 bits: its product with a whole exponent is exact
_LN_2_LOW = np.float32(-0.00021219444005469057)
_MAGIC = np.float32(1.5 * 2**23)  # adding it leaves the nearest integer in the low bits of the sum
_EXPONENT_SHIFT = np.uint32(23)
_EXP_HIGH = np.float32(88.72283172607422)  # the largest float32 with a finite exponential
_EXP_LOW = np.float32(-104)  # below 2^-150, the exponential rounds to zero
_EXP_NORMAL = np.float32(-86)
_LIFT = np.uint32(64 << 23)
_ZERO_U = np.uint32(0)
_DROP = np.float32(2.0**-64)

# (e^r - 1 - r) / r^2 for |r| <= ln(2)/2; e^r to 2^-28.
_E0 = np.float32(0.49999993437226237)
_E1 = np.float32(0.16666520477644328)
_E2 = np.float32(0.04166838992355914)
_E3 = np.float32(0.008368735581410654)
_E4 = np.float32(0.001381455595143079)


def exp_f32(x: Value) -> Value:
    """`e^x` within 1 ulp, subnormal results included; exactly 1 at 0, 0 at -Inf."""
    not_low, not_high = x >= _EXP_LOW, x <= _EXP_HIGH
    safe = select(not_low & not_high, x, _ZERO)
    shifted = safe * _LOG2_E + _MAGIC
    whole = shifted - _MAGIC
    r = (safe - whole * _LN_2_HIGH) - whole * _LN_2_LOW
    q = _E0 + r * (_E1 + r * (_E2 + r * (_E3 + r * _E4)))
    fraction = _ONE + (r + (r * r) * q)
    # The shift drops all of the sum but its low bits, the integer. Subnormal results are made 2^64 times too large
    # first, then rounded once.
    small = safe < _EXP_NORMAL
    exponent = as_u32(as_u32(f32_bits(shifted) << _EXPONENT_SHIFT) + select(small, _LIFT, _ZERO_U))
    result = bits_f32(as_u32(f32_bits(fraction) + exponent)) * select(small, _DROP, _ONE)
    return select(not_low, select(not_high, result, _INF), select(not_high, _ZERO, _NAN))


# --- logistic family ---

_ONE64 = np.float64(1)
_TWO64 = np.float64(2)
_HALF64 = np.float64(0.5)
_ZERO64 = np.float64(0)
_FAR = np.float64(300)  # here all functions of this module have reached their limits
_FAR_F32 = np.float32(300)


def _near(x: Value) -> Value:
    """Float32 `x` as float64, at least -300: a limit, not the NaN of -Inf * 0, where the other factor vanishes."""
    return select(x < -_FAR_F32, -_FAR, as_f64(x))


def _logistic(x: Value) -> Value:
    return _ONE64 / (_ONE64 + exp64(clamp64(-x, -_FAR, _FAR)))


def _sigmoid(x: Value) -> Value:
    return quiet(as_f32(_logistic(as_f64(x))))


def _silu(x: Value) -> Value:
    wide = _near(x)
    return quiet(as_f32(wide * _logistic(wide)))


def _silu_dx(x: Value) -> Value:
    wide = clamp64(as_f64(x), -_FAR, _FAR)
    s = _logistic(wide)
    return quiet(as_f32(s + wide * s * (_ONE64 - s)))


_GELU_SIGMOID = np.float64(1.702)


def _gelu_apprx_sigmoid(x: Value) -> Value:
    wide = _near(x)
    return quiet(as_f32(wide * _logistic(wide * _GELU_SIGMOID)))


def _gelu_apprx_sigmoid_dx(x: Value) -> Value:
    wide = clamp64(as_f64(x), -_FAR, _FAR) * _GELU_SIGMOID
    s = _logistic(wide)
    return quiet(as_f32(s + wide * s * (_ONE64 - s)))


_GELU_TANH = np.float64(1.5957691216057308)  # 2 sqrt(2/pi)
_GELU_CUBE = np.float64(0.044715)


def _gelu_apprx_tanh(x: Value) -> Value:
    # (1 + tanh u) / 2 is the logistic function of 2u.
    wide = _near(x)
    return quiet(as_f32(wide * _logistic(_GELU_TANH * (wide + _GELU_CUBE * (wide * wide * wide)))))


def _tanh(x: Value) -> Value:
    wide = as_f64(x)
    size = abs64(wide)
    # e^-2x - 1 keeps its accuracy around zero.
    e = expm1_64(-_TWO64 * clamp64(size, _ZERO64, _FAR))
    return quiet(with_sign(as_f32(-e / (_TWO64 + e)), x))


def _softplus(x: Value) -> Value:
    wide = as_f64(x)
    above = select(wide > _ZERO64, wide, _ZERO64)
    size = abs64(wide)
    return quiet(as_f32(above + log1p64(exp64(-clamp64(size, _ZERO64, _FAR)))))


def _mish(x: Value) -> Value:
    # With w = e^x, tanh(ln(1 + w)) = (w^2 + 2w) / (w^2 + 2w + 2).
    wide = _near(x)
    w = exp64(clamp64(wide, -_FAR, _MISH_HIGH))
    n = w * (w + _TWO64)
    return quiet(as_f32(wide * (n / (n + _TWO64))))


_MISH_HIGH = np.float64(40)  # e^40 squared dwarfs 2 in float64

# --- error function family ---

# (z + 4) e^(z^2) erfc(z) as a polynomial of (z - 4) / (z + 4), for 0 <= z <= 10.55, to 2^-29.8 of the value.
_C0 = np.float64(1.0959956610817343389)
_C1 = np.float64(-0.97654874934135220219)
_C2 = np.float64(0.77320870079142966627)
_C3 = np.float64(-0.54085279394321583718)
_C4 = np.float64(0.33085203523362658382)
_C5 = np.float64(-0.17402545045156537032)
_C6 = np.float64(0.076367281867656196518)
_C7 = np.float64(-0.026296009274379204794)
_C8 = np.float64(0.0062315037948272300959)
_C9 = np.float64(-0.00037213288376978323433)
_C10 = np.float64(-0.00075031449068807322983)
_FOUR64 = np.float64(4)
_ERFC_HIGH = np.float64(10.45)  # from here on 300 erfc(z) rounds to zero in float32

# erf(z) / z as a polynomial of z^2 for |z| <= 1, to 2^-34.
_F0 = np.float64(1.1283791670580250742)
_F1 = np.float64(-0.37612638434667105189)
_F2 = np.float64(0.11283781974212958115)
_F3 = np.float64(-0.026865400044897441154)
_F4 = np.float64(0.0052209454353442591676)
_F5 = np.float64(-0.00084828288326080792952)
_F6 = np.float64(0.00011256947545332026147)
_F7 = np.float64(-9.6415144046339079708e-6)

_SQRT_HALF = np.float64(0.7071067811865476)
_INV_SQRT_2PI = np.float64(0.3989422804014327)
_TWO_INV_SQRT_PI = np.float64(1.1283791670955126)


def _erfcx(z: Value) -> Value:
    """`e^(z^2) erfc(z)` for 0 <= z <= 10.55."""
    inverse = _ONE64 / (z + _FOUR64)
    t = (z - _FOUR64) * inverse
    p = _C5 + t * (_C6 + t * (_C7 + t * (_C8 + t * (_C9 + t * _C10))))
    return inverse * (_C0 + t * (_C1 + t * (_C2 + t * (_C3 + t * (_C4 + t * p)))))


def _normal_cdf(x: Value) -> tuple[Value, Value]:
    """`(Phi(x), e^(-x^2/2))` of float64 x, |x| <= 300."""
    z = clamp64(abs64(x) * _SQRT_HALF, _ZERO64, _ERFC_HIGH)
    gauss = exp64(-(z * z))
    tail = _HALF64 * gauss * _erfcx(z)
    return select(x < _ZERO64, tail, _ONE64 - tail), gauss


def _gelu(x: Value) -> Value:
    wide = _near(x)
    cdf, _ = _normal_cdf(wide)
    return quiet(as_f32(wide * cdf))


def _gelu_dx(x: Value) -> Value:
    wide = clamp64(as_f64(x), -_FAR, _FAR)
    cdf, gauss = _normal_cdf(wide)
    return quiet(as_f32(cdf + wide * (gauss * _INV_SQRT_2PI)))


def _erf(x: Value) -> Value:
    wide = as_f64(x)
    size = clamp64(abs64(wide), _ZERO64, _ERFC_HIGH)
    u = size * size
    p = _F0 + u * (_F1 + u * (_F2 + u * (_F3 + u * (_F4 + u * (_F5 + u * (_F6 + u * _F7))))))
    far = _ONE64 - exp64(-u) * _erfcx(size)
    return quiet(with_sign(as_f32(select(size < _ONE64, size * p, far)), x))


def _erf_dx(x: Value) -> Value:
    wide = clamp64(as_f64(x), -_ERF_DX_HIGH, _ERF_DX_HIGH)
    return quiet(as_f32(_TWO_INV_SQRT_PI * exp64(-(wide * wide))))


_ERF_DX_HIGH = np.float64(11)  # its square makes e^-121, zero in float32

# --- others ---


def _log(x: Value) -> Value:
    inside = (x > _ZERO) & (x < _INF)
    result = as_f32(log64(as_f64(select(inside, x, _ONE))))
    return select(inside, result, select(x == _ZERO, -_INF, select(x > _ZERO, _INF, _NAN)))


def _sqrt(x: Value) -> Value:
    return quiet(sqrt(x))


def _sign(x: Value) -> Value:
    return quiet(select(x > _ZERO, _ONE, select(x < _ZERO, -_ONE, x)))


def _prelu(x: Value, slope: Value) -> Value:
    return quiet(select(x < _ZERO, x * slope, x))


ACTIVATIONS: dict[str, Formula] = {
    "copy": copy_f32,
    "square": UNARY["square"],
    "sigmoid": _sigmoid,
    "relu": UNARY["relu"],
    "prelu": _prelu,
    "gelu": _gelu,
    "gelu_dx": _gelu_dx,
    "gelu_apprx_tanh": _gelu_apprx_tanh,
    "gelu_apprx_sigmoid": _gelu_apprx_sigmoid,
    "gelu_apprx_sigmoid_dx": _gelu_apprx_sigmoid_dx,
    "silu": _silu,
    "silu_dx": _silu_dx,
    "tanh": _tanh,
    "softplus": _softplus,
    "mish": _mish,
    "erf": _erf,
    "erf_dx": _erf_dx,
    "exp": exp_f32,
    "log": _log,
    "sin": trigonometry.sin_device,
    "arctan": trigonometry.arctan,
    "sqrt": _sqrt,
    "rsqrt": UNARY["rsqrt"],
    "reciprocal": UNARY["reciprocal"],
    "sign": _sign,
    "abs": UNARY["abs"],
    "sin_full": trigonometry.sin_full,
    "cos": trigonometry.cos_full,
    "tan": trigonometry.tan_full,
}
"""Every function takes `x`; `prelu` takes `(x, slope)`: x below zero is multiplied by the slope."""

# No device has these as functions: they run in simulation and `check` refuses them.
SIMULATE_ONLY = frozenset({"sin_full", "cos", "tan"})

FORMULAS: tuple[Formula, ...] = (
    *trigonometry.FORMULAS,
    _near,
    _logistic,
    _erfcx,
    _normal_cdf,
    *(formula for formula in ACTIVATIONS.values() if formula.__module__ == __name__),
)
