"""Remez exchange with mpmath: how the polynomials of `tilelang/numerics` were derived, and what proves they still are
those.

`POLYNOMIALS` describes each: the function approximated, its interval, the weight of the error, the degree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Fit:
    """A minimax problem: minimise max |weight(x) * (p(x) - f(x))| over [lo, hi] for polynomials p of `degree`."""

    f: Function
    weight: Function
    lo: str
    hi: str
    degree: int


def remez(fit: Fit, rounds: int = 8, grid: int = 600) -> tuple[list[Any], Any]:
    """The coefficients (constant first) and the levelled weighted error."""
    with mp.workdps(50):
        lo, hi, count = mp.mpf(fit.lo), mp.mpf(fit.hi), fit.degree + 2

        def chebyshev(number: int, index: int) -> Any:
            return (lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * index / (number - 1))

        def regular(x: Any) -> Any:
            # The functions have removable singularities at zero.
            return x if abs(x) > mp.mpf(10) ** -12 else mp.mpf(10) ** -12

        points = [regular(chebyshev(grid, i)) for i in range(grid)]
        nodes = [regular(chebyshev(count, i)) for i in range(count)]
        samples = [(x, fit.f(x), fit.weight(x)) for x in points]
        coefficients: list[Any] = []
        level = mp.mpf(0)
        for _ in range(rounds):
            rows = [[x**k for k in range(count - 1)] + [(-1) ** i / fit.weight(x)] for i, x in enumerate(nodes)]
            solution = mp.lu_solve(mp.matrix(rows), mp.matrix([fit.f(x) for x in nodes]))
            coefficients, level = [solution[k] for k in range(count - 1)], abs(solution[count - 1])
            errors = [(x, w * (_horner(coefficients, x) - y)) for x, y, w in samples]
            nodes = _extrema(errors, count)
        return coefficients, level


def _horner(coefficients: list[Any], x: Any) -> Any:
    value = mp.mpf(0)
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def _extrema(errors: list[tuple[Any, Any]], count: int) -> list[Any]:
    """The points of largest error of each run of equal sign; the `count` consecutive ones with the largest minimum."""
    peaks: list[tuple[Any, Any]] = []
    for x, e in errors:
        if peaks and (e > 0) == (peaks[-1][1] > 0):
            if abs(e) > abs(peaks[-1][1]):
                peaks[-1] = (x, e)
        else:
            peaks.append((x, e))
    while len(peaks) > count:
        peaks.pop(0 if abs(peaks[0][1]) < abs(peaks[-1][1]) else -1)
    if len(peaks) < count:
        raise ArithmeticError(f"{len(peaks)} alternations, {count} needed")
    return [x for x, _ in peaks]


@dataclass(frozen=True)
class Polynomial:
    """Coefficients `prefix` + number in `tilelang.numerics.module`, what they fit, and log2 of the error claimed."""

    module: str
    prefix: str
    fit: Fit
    bound: float


def _odd_remainder(f: Function, slope: int) -> Function:
    """Of an odd function with that slope at zero: (f(s) / s - slope) / s^2, as a function of s^2."""
    return lambda u: (f(mp.sqrt(u)) / mp.sqrt(u) - slope) / u


def _exponential(r: Any) -> Any:
    return (mp.expm1(r) - r) / r**2


def _twice_atanh(s: Any) -> Any:
    return 2 * mp.atanh(s)


def _scaled_erfcx(t: Any) -> Any:
    z = 4 * (1 + t) / (1 - t)
    return (z + 4) * mp.exp(z * z) * mp.erfc(z)


def _erf_ratio(u: Any) -> Any:
    return mp.erf(mp.sqrt(u)) / mp.sqrt(u)


def _sine_weight(u: Any) -> Any:
    return u * mp.sqrt(u) / mp.sin(mp.sqrt(u))


_R = "0.3467"  # ln(2) / 2 and a little more
_LOG_U = "0.029467022169381"  # tan(pi/8)^4 and a little more: the square of (sqrt(2) - 1) / (sqrt(2) + 1)
_TAN_U = "0.17174443253"  # tan(pi/8)^2 and a little more
_THIRD_U = "0.111111111111111111111111111111"
_ERFCX_T = "0.450171821305841924398625429553"  # (z - 4) / (z + 4) at 10.55

POLYNOMIALS = {
    "exp, float32": Polynomial("functions", "_E", Fit(_exponential, lambda r: r * r / mp.exp(r), f"-{_R}", _R, 4), -28),
    "exp": Polynomial("elementary", "_E", Fit(_exponential, lambda r: mp.mpf("0.35"), f"-{_R}", _R, 5), -30.9),
    "log": Polynomial("elementary", "_L", Fit(_odd_remainder(_twice_atanh, 2), lambda u: u / 2, "0", _LOG_U, 4), -44),
    "log1p": Polynomial(
        "elementary", "_P", Fit(_odd_remainder(_twice_atanh, 2), lambda u: u / 2, "0", _THIRD_U, 4), -33
    ),
    "sine": Polynomial("trigonometry", "_S", Fit(_odd_remainder(mp.sin, 1), _sine_weight, "0", "2.468", 4), -35),
    "arctan": Polynomial("trigonometry", "_A", Fit(_odd_remainder(mp.atan, 1), lambda u: u, "0", _TAN_U, 5), -35),
    "erfcx": Polynomial(
        "functions", "_C", Fit(_scaled_erfcx, lambda t: 1 / _scaled_erfcx(t), "-1", _ERFCX_T, 10), -29.8
    ),
    "erf": Polynomial("functions", "_F", Fit(_erf_ratio, lambda u: 1 / _erf_ratio(u), "0", "1", 7), -34),
}
