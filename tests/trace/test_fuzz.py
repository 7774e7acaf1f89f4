"""Random kernels: native runs on 1, 2 and 4 threads, the NumPy bodies and debug mode give the same bits or fail
alike.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilelang
from tests.conformance.harness import bits
from tests.trace.fuzzing import RandomKernel, inputs
from tilelang.errors import TileBoundsError, TileUnsupportedError

MODES = (("native", 2), ("native", 4), ("native", 1), ("reference", None), ("debug", None))


def run(kernel: RandomKernel, seed: int, mode: str, threads: int | None) -> tuple[Any, ...] | str:
    """Results and the arguments afterwards; the name of the error where an index leaves its range."""
    arguments = inputs(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = tilelang.simulate(kernel, mode=mode, threads=threads, target="trn2")(*arguments)
        except TileBoundsError:
            return "out of range"
    return (*results, *arguments)


def check(seed: int, length: int, wild: bool) -> None:
    kernel = RandomKernel(seed, length, wild=wild)
    try:
        first = run(kernel, seed, *MODES[0])
    except TileUnsupportedError as error:
        assert "share" in str(error) and 'mode="reference"' in str(error)
        return
    for mode, threads in MODES[1:]:
        other = run(kernel, seed, mode, threads)
        if isinstance(first, str) or isinstance(other, str):
            assert first == other, f"{mode} (threads={threads})"
            continue
        for number, (one, two) in enumerate(zip(first, other, strict=True)):
            different = np.flatnonzero(bits(one).ravel() != bits(two).ravel())
            assert not different.size, (
                f"{mode} (threads={threads}): {different.size} of {one.size} elements of result {number} differ, "
                f"first at {np.unravel_index(different[0], one.shape)}"
            )


@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 14))
@settings(max_examples=150, deadline=None)
def test_modes_agree(seed: int, length: int) -> None:
    check(seed, length, wild=False)


@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 10))
@settings(max_examples=60, deadline=None)
def test_indices_out_of_range_fail_alike(seed: int, length: int) -> None:
    check(seed, length, wild=True)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 40), wild=st.booleans())
@settings(max_examples=1500, deadline=None)
def test_modes_agree_at_length(seed: int, length: int, wild: bool) -> None:
    check(seed, length, wild)
