"""Fused multiply-add against exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.numerics.oracles import F32, bits, round_f32, sample, specials
from tilelang.numerics.fma import fma


def exact(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """`a * b + c` rounded once; the sign of an exact zero as IEEE 754 says."""
    if not (np.isfinite(a) and np.isfinite(b)):
        return a * b + c
    if not np.isfinite(c):
        return c
    value = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if value == 0:
        return a * b + c if float(a) * float(b) == 0 else np.float32(0)
    rounded = round_f32(value)
    return np.copysign(rounded, np.float32(-1 if value < 0 else 1))


def check(a: F32, b: F32, c: F32) -> None:
    with np.errstate(all="ignore"):
        found = fma(a, b, c)
        expected = np.array([exact(*triple) for triple in zip(a, b, c)], np.float32)
    nan = np.isnan(expected)
    assert (bits(found)[nan] == 0x7FC00000).all()
    wrong = np.flatnonzero((bits(found) != bits(expected)) & ~nan)
    assert wrong.size == 0, [(a[i], b[i], c[i], found[i], expected[i]) for i in wrong[:3]]


def test_specials() -> None:
    x = specials()[::2]
    a, b, c = (grid.ravel() for grid in np.meshgrid(x, x, x))
    check(a, b, c)


def test_random_bits_and_everyday_numbers() -> None:
    check(*(sample(4000, seed) for seed in (1, 2, 3)))


def test_nearly_cancelling_sums() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(0, 3, (2, 4000)).astype(np.float32)
    near = (-(a.astype(np.float64) * b)).astype(np.float32)
    steps = rng.integers(-2, 3, 4000)
    check(a, b, (bits(near).astype(np.int64) + steps).astype(np.uint32).view(np.float32))


def test_halfway_cases_that_two_roundings_get_wrong() -> None:
    rng = np.random.default_rng(5)
    # c is a float32; a * b is half a unit of c, plus or minus something far below float64's last place of the sum.
    c = rng.integers(2**23, 2**24, 2000).astype(np.float32)
    a = np.float32(0.5) * (1 + rng.choice([-1, 1], 2000) * 2.0**-23).astype(np.float32)
    b = (1 + rng.choice([-1, 0, 1], 2000) * 2.0**-23).astype(np.float32)
    check(a, b, c)
    tiny = np.float32(2.0**-60)
    check(a * tiny, b * tiny, c * (tiny * tiny))
    # Results of the size of the smallest subnormals.
    check(a * np.float32(2.0**-100), b * np.float32(2.0**-49), np.float32(2.0**-149) * (c % 8))


def test_overflow_is_decided_after_the_sum() -> None:
    top = np.float32(np.finfo(np.float32).max)
    two = np.float32(2)
    check(np.array([top, top, top]), np.array([two, two, two]), np.array([-top, np.float32(0), -top / two]))


word = st.integers(0, 2**32 - 1)


@given(st.lists(st.tuples(word, word, word), min_size=1, max_size=50))
def test_any_bits(triples: list[tuple[int, int, int]]) -> None:
    a, b, c = np.array(triples, np.uint32).view(np.float32).T
    check(a, b, c)
