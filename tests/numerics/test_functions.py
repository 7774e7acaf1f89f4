"""Activation functions: errors on every value of the 16-bit formats, on a sweep and at random samples; exact values."""

from __future__ import annotations

import ml_dtypes
import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.numerics.oracles import F32, FUNCTIONS, MP_FUNCTIONS, SCALES, bits, every, specials, sweep
from tilelang.numerics.functions import ACTIVATIONS, SIMULATE_ONLY

INF = np.inf
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# Units in the last place. Those computed in float64 are nearly correctly rounded.
BOUNDS = {"exp": 1.0, "rsqrt": 1.5}
UNARY = [name for name in ACTIVATIONS if name != "prelu"]


def ulp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The unit in the last place of float32 at the size of `x`."""
    return 2.0 ** np.maximum(np.floor(np.log2(np.abs(x))) - 23, -149)


def check(name: str, x: F32) -> None:
    """`name` at `x` against float64, which is about a thousand million times more accurate."""
    found = ACTIVATIONS[name](x)
    wide = x.astype(np.float64)
    expected = FUNCTIONS[name](wide)
    assert found.dtype == np.float32
    nan = np.isnan(expected)
    assert (bits(found)[nan] & 0x7FFFFFFF == 0x7FC00000).all()
    # Half a unit above the largest float32, results become infinite.
    infinite = np.abs(expected) >= 2.0**128 * (1 - 2.0**-25)
    assert (found == np.copysign(INF, expected))[infinite].all()
    rest = ~(nan | infinite)
    x, found, expected = x[rest], found[rest], expected[rest]
    allowed = BOUNDS.get(name, 0.52) * ulp(expected)
    if name in SCALES:
        allowed = np.maximum(allowed, 2.0**-24 * SCALES[name](wide[rest]))
    wrong = np.flatnonzero(~(np.abs(found - expected) <= allowed))
    assert wrong.size == 0, (x[wrong[:5]], found[wrong[:5]], expected[wrong[:5]])


def test_every_activation_has_an_oracle() -> None:
    assert set(UNARY) == set(FUNCTIONS)
    assert set(UNARY) >= SIMULATE_ONLY


@pytest.mark.parametrize("name", UNARY)
def test_every_16_bit_value(name: str) -> None:
    check(name, every(np.float16))
    check(name, every(ml_dtypes.bfloat16))


@pytest.mark.parametrize("name", UNARY)
def test_all_magnitudes(name: str) -> None:
    check(name, sweep(65_521))
    check(name, np.linspace(-16, 16, 40_001).astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_sweep(name: str) -> None:
    for start in range(-128, 128, 16):
        check(name, np.linspace(start, start + 16, 200_003).astype(np.float32))
    check(name, sweep(1021))


@pytest.mark.slow
def test_exp_on_every_float32_that_matters() -> None:
    for low, high in ((2.0**-25, 104.0), (-104.0, -(2.0**-25))):
        first, last = sorted(int(bits(np.array([v], np.float32))[0]) for v in (low, high))
        for start in range(first, last + 1, 2**22):
            check("exp", np.arange(start, min(start + 2**22, last + 1), dtype=np.uint32).view(np.float32))


@pytest.mark.parametrize("name", MP_FUNCTIONS)
def test_against_mpmath(name: str) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    x = np.concatenate([rng.normal(0, 1, 20), rng.normal(0, 6, 20), 2.0 ** rng.uniform(-30, 3, 10), [-0.7518, -1.2785]])
    if name in ("log", "sqrt", "rsqrt"):
        x = np.abs(x)
    x = x.astype(np.float32)
    found = ACTIVATIONS[name](x)
    with mp.workdps(40):
        for value, result in zip(x.tolist(), found.tolist()):
            expected = MP_FUNCTIONS[name](mp.mpf(value))
            allowed = BOUNDS.get(name, 0.52) * ulp(np.array(float(expected)))
            if name in SCALES:
                allowed = max(allowed, 2.0**-24 * SCALES[name](np.array(value)))
            assert abs(mp.mpf(result) - expected) <= allowed, value


@pytest.mark.parametrize("name", ["sin_full", "cos", "tan"])
def test_huge_angles_are_reduced_exactly(name: str) -> None:
    # The last two are among the float32 nearest to multiples of pi/2.
    x = np.array([1e10, 3.4e38, 2.0**127, 2.0**64, 16367173 * 2.0**72, 6381956970095103 * 2.0**-25], np.float32)
    found = ACTIVATIONS[name](np.concatenate([x, -x]))
    with mp.workdps(120):
        expected = [float(MP_FUNCTIONS[name](mp.mpf(float(v)))) for v in [*x, *-x]]
    assert (np.abs(found - expected) <= 0.52 * ulp(np.array(expected))).all()


EXACT = {
    "exp": [
        (0, 1),
        (-0.0, 1),
        (-INF, 0),
        (INF, INF),
        (88.72283, 3.4027985e38),
        (88.72284, INF),
        (-103.98, 0),
        (-103.97, 1e-45),
    ],
    "sigmoid": [(0, 0.5), (-INF, 0), (INF, 1)],
    "silu": [(0, 0), (-0.0, -0.0), (-INF, -0.0), (INF, INF)],
    "silu_dx": [(0, 0.5), (-INF, -0.0), (INF, 1)],
    "gelu": [(0, 0), (-0.0, -0.0), (-INF, -0.0), (INF, INF)],
    "gelu_dx": [(0, 0.5), (-INF, -0.0), (INF, 1)],
    "gelu_apprx_tanh": [(0, 0), (-0.0, -0.0), (-INF, -0.0), (INF, INF)],
    "gelu_apprx_sigmoid": [(0, 0), (-0.0, -0.0), (-INF, -0.0), (INF, INF)],
    "gelu_apprx_sigmoid_dx": [(0, 0.5), (-INF, -0.0), (INF, 1)],
    "mish": [(0, 0), (-0.0, -0.0), (-INF, -0.0), (INF, INF)],
    "tanh": [(0, 0), (-0.0, -0.0), (1e-45, 1e-45), (-1e-45, -1e-45), (-INF, -1), (INF, 1)],
    "softplus": [(-INF, 0), (INF, INF), (0, np.log(2))],
    "erf": [(0, 0), (-0.0, -0.0), (-INF, -1), (INF, 1)],
    "erf_dx": [(-INF, 0), (INF, 0)],
    "log": [(1, 0), (0, -INF), (-0.0, -INF), (INF, INF), (-1, np.nan), (-INF, np.nan), (1e-45, np.log(2.0**-149))],
    "sin": [(0, 0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (np.float32(np.pi), -8.7422777e-8)],
    "sin_full": [(0, 0), (-0.0, -0.0), (INF, np.nan), (-INF, np.nan), (1e-45, 1e-45)],
    "cos": [(0, 1), (INF, np.nan), (-INF, np.nan)],
    "tan": [(0, 0), (-0.0, -0.0), (INF, np.nan)],
    "arctan": [(0, 0), (-0.0, -0.0), (INF, np.pi / 2), (-INF, -np.pi / 2), (1, np.pi / 4)],
    "sqrt": [(4, 2), (-0.0, -0.0), (-1, np.nan), (INF, INF)],
    "rsqrt": [(4, 0.5), (0, INF), (-0.0, -INF), (INF, 0), (-1, np.nan)],
    "reciprocal": [(0, INF), (-0.0, -INF), (INF, 0), (-INF, -0.0)],
    "sign": [(-3, -1), (0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1)],
    "relu": [(-1, 0), (-0.0, 0), (2, 2), (-INF, 0)],
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_values(name: str) -> None:
    x, expected = (np.array(column, np.float32) for column in zip(*EXACT[name]))
    found = ACTIVATIONS[name](x)
    canonical = np.where(np.isnan(expected), np.uint32(0x7FC00000), bits(expected))
    assert bits(found).tolist() == canonical.tolist(), found


def test_sin_beyond_pi_is_the_cubic_of_the_device() -> None:
    assert ACTIVATIONS["sin"](np.array([9.0], np.float32))[0] == pytest.approx(27.6526, abs=1e-3)
    assert ACTIVATIONS["sin"](np.array([-9.0], np.float32))[0] == pytest.approx(-27.6526, abs=1e-3)


def test_nan_gives_the_canonical_nan() -> None:
    nan = specials()[np.isnan(specials())]
    for name in UNARY:
        found = bits(ACTIVATIONS[name](nan))
        expected = (bits(nan) & 0x80000000) | 0x7FC00000 if name == "copy" else 0x7FC00000
        assert (found == expected).all(), name


def test_prelu_scales_what_is_below_zero() -> None:
    x = np.array([-2, -0.0, 0, 3, -INF, np.nan], np.float32)
    slope = np.full_like(x, 0.25)
    expected = np.array([-0.5, -0.0, 0, 3, -INF, np.nan], np.float32)
    assert bits(ACTIVATIONS["prelu"](x, slope)).tolist() == bits(expected).tolist()
