"""The coefficients in the sources are the minimax ones, and as accurate as their comments say."""

from __future__ import annotations

import importlib

import mpmath as mp
import numpy as np
import pytest

from tests.numerics.minimax import POLYNOMIALS, remez


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_coefficients_are_the_minimax_ones(name: str) -> None:
    polynomial = POLYNOMIALS[name]
    module = importlib.import_module(f"tilelang.numerics.{polynomial.module}")
    expected, level = remez(polynomial.fit)
    found = [getattr(module, f"{polynomial.prefix}{k}") for k in range(len(expected))]
    assert not hasattr(module, f"{polynomial.prefix}{len(expected)}")
    assert [type(c)(mp.nstr(e, 20)) for c, e in zip(found, expected)] == found
    assert all(isinstance(c, np.float32 if "float32" in name else np.float64) for c in found)
    assert mp.log(level, 2) < polynomial.bound
