"""Arithmetic formulas: conversions, operators and functions, each one plain function for NumPy arrays and Numba
scalars.

`FORMULAS` holds all of them, callees before callers. They assume that floating-point warnings of NumPy are off
(`np.errstate(all="ignore")`): overflow and invalid operations have defined results.
"""

from __future__ import annotations

from tilelang.numerics import alu, casts, elementary, fma, functions, integers, mx, random
from tilelang.numerics.prim import PRIMITIVES, Formula

__all__ = ["FORMULAS", "PRIMITIVES"]

FORMULAS: tuple[Formula, ...] = (
    *casts.FORMULAS,
    *elementary.FORMULAS,
    *alu.FORMULAS,
    *integers.FORMULAS,
    *functions.FORMULAS,
    *fma.FORMULAS,
    *random.FORMULAS,
    *mx.FORMULAS,
)
