"""The pseudo-random numbers of the engines: XORWOW, and how a seed spreads over the lanes (isa.md 15).

A generator has six uint32 words `x, y, z, w, v, d`. A lane (physical partition) has `WORDS` words: four generators of
the vector engine, then one of gpsimd.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilelang.numerics.prim import Formula, Value, as_f32, as_u32, as_u64

__all__ = [
    "FORMULAS", "GENERATOR", "GPSIMD", "STEP", "UNSEEDED", "VECTOR", "WORDS",
    "advance", "draw", "mixed", "seeded", "uniform",
]  # fmt: skip

GENERATOR = 6  # words of one generator
VECTOR = slice(0, 4 * GENERATOR)
GPSIMD = slice(4 * GENERATOR, 5 * GENERATOR)
WORDS = 5 * GENERATOR
STEP = np.uint32(362437)

_ONE, _TWO, _FOUR, _EIGHT = (np.uint32(n) for n in (1, 2, 4, 8))
_UNIT = np.float32(2.0**-24)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_U1, _U27, _U30, _U31, _U32 = (np.uint64(n) for n in (1, 27, 30, 31, 32))


def advance(x: Value, v: Value) -> Value:
    """The next `v` of a generator; the words before it move up by one place, and `d` grows by `STEP`."""
    t = as_u32(x ^ (x >> _TWO))
    return as_u32(as_u32(v ^ (v << _FOUR)) ^ as_u32(t ^ (t << _ONE)))


def uniform(bits: Value) -> Value:
    """uint32 `bits` as float32 in [0, 1), multiples of 2^-24."""
    return as_f32(as_u32(bits >> _EIGHT)) * _UNIT


def mixed(seed: Value, index: Value) -> Value:
    """Word `index` (uint64) of what a seed (uint64) spreads over: the upper half of a SplitMix64 output."""
    z = as_u64(seed + as_u64((index + _U1) * _GOLDEN))
    z = as_u64((z ^ (z >> _U30)) * _FIRST)
    z = as_u64((z ^ (z >> _U27)) * _SECOND)
    return as_u32((z ^ (z >> _U31)) >> _U32)


def seeded(seed: int) -> NDArray[np.uint32]:
    """The state of all lanes, (128, WORDS), after seeding with the 32 bits `seed`."""
    index = np.arange(128 * WORDS, dtype=np.uint64)
    words: NDArray[np.uint32] = mixed(np.full(1, seed, np.uint64), index)
    return words.reshape(128, WORDS)


# What a launch starts from.
UNSEEDED = seeded(0)


def draw(states: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """The next `count` numbers of each row of `states` (rows, 6 n), which advance; number `f` comes from generator
    `f % n`.
    """
    generators = states.reshape(len(states), -1, GENERATOR)
    result = np.empty((len(states), count), np.uint32)
    for f in range(count):
        state = generators[:, f % generators.shape[1]]
        v = advance(state[:, 0], state[:, 4])
        state[:, :4] = state[:, 1:5]
        state[:, 4] = v
        state[:, 5] += STEP
        result[:, f] = v + state[:, 5]
    states[:] = generators.reshape(states.shape)
    return result


FORMULAS: tuple[Formula, ...] = (advance, uniform, mixed)
