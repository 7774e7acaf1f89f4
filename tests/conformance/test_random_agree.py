"""Random numbers: all modes draw the same ones, and the ones that a generator written from isa.md 15 draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.conformance.harness import FLOATS, INTEGERS, ndarray, result_of, rng_for, run_everywhere, sample, tile_of
from tilelang.dtypes import FORMATS

MASK = 0xFFFFFFFF
ENGINE = nisa.engine


class Xorwow:
    """One generator, in Python integers."""

    def __init__(self, words: Any) -> None:
        self.words = [int(word) for word in words]

    def next(self) -> int:
        x, y, z, w, v, d = self.words
        t = x ^ (x >> 2)
        new = (v ^ (v << 4)) ^ (t ^ (t << 1)) & MASK
        self.words = [y, z, w, v, new & MASK, (d + 362437) & MASK]
        return (self.words[4] + self.words[5]) & MASK

    def uniform(self) -> np.float32:
        return np.float32((self.next() >> 8) * 2.0**-24)


def split_mix(seed: int, index: int) -> int:
    """The word a seed gives: the upper half of output `index` of SplitMix64."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) >> 32


def generators(lane: int, engine: Any = ENGINE.vector, target: str = "trn2", seed: int = 0) -> list[Xorwow]:
    first, count = (24, 1) if engine is ENGINE.gpsimd else (0, 4 if target == "trn3" else 1)
    words = [split_mix(seed, 30 * lane + word) for word in range(30)]
    return [Xorwow(words[first + 6 * g : first + 6 * g + 6]) for g in range(count)]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    ("engine", "target"),
    [(ENGINE.vector, "trn1"), *((engine, t) for engine in (ENGINE.vector, ENGINE.gpsimd) for t in ("trn2", "trn3"))],
)
def test_rng(dtype: str, engine: Any, target: str) -> None:
    def kernel(x: Any) -> Any:
        first, second = ndarray((128, 7), dtype), ndarray((128, 3, 2), dtype)
        nisa.rng(dst=first, engine=engine)
        nisa.rng(dst=second, engine=engine)
        return result_of(first), result_of(second)

    first, second = run_everywhere(kernel, (np.zeros((1, 1), np.float32),), target)
    for lane in (0, 1, 31, 127):
        own = generators(lane, engine, target)
        for result in (first[lane], second[lane].ravel()):
            drawn = np.array([own[f % len(own)].next() for f in range(len(result))], np.uint32)
            np.testing.assert_array_equal(result, drawn.astype(result.dtype))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("tile", [False, True])
def test_rand2(dtype: str, tile: bool) -> None:
    low = rng_for(dtype).integers(-50, 0, (40, 1)).astype(np.float32)
    high = low + rng_for(dtype, 1).integers(1, 99, (40, 1)).astype(np.float32)

    def kernel(a: Any, b: Any) -> Any:
        out = ndarray((40, 70), dtype)
        if tile:
            nisa.rand2(dst=out, min=tile_of(a, "sbuf"), max=tile_of(b, "sbuf"))
        else:
            nisa.rand2(dst=out, min=-3.0, max=60.0)
        return result_of(out)

    (ours,) = run_everywhere(kernel, (low, high), "trn3")
    fmt = FORMATS[dtype]
    for lane in (0, 39):
        own = generators(lane, target="trn3")
        a, b = (low[lane, 0], high[lane, 0]) if tile else (np.float32(-3), np.float32(60))
        values = np.array([a + (b - a) * own[f % 4].uniform() for f in range(70)], np.float32)
        if fmt.is_integer:
            info = np.iinfo(fmt.host)
            np.testing.assert_array_equal(ours[lane], np.clip(np.rint(values), info.min, info.max).astype(fmt.host))
        elif dtype == "tfloat32":
            np.testing.assert_allclose(ours[lane], values, rtol=2.0**-11)
        else:
            np.testing.assert_array_equal(ours[lane], values.astype(fmt.host))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3", "int8", "int32", "uint16"])
@pytest.mark.parametrize("prob", [0.0, 0.25, 1.0, "tile"])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_dropout(dtype: str, prob: Any, target: str) -> None:
    x = sample(rng_for(dtype, prob), (128, 50), dtype, 0.3)
    rates = np.linspace(-0.1, 1.1, 128, dtype=np.float32)[:, None]
    rates[5] = np.nan

    def kernel(a: Any, r: Any) -> Any:
        data, out = tile_of(a, "sbuf"), ndarray((128, 50), dtype)
        rate = tile_of(r, "sbuf") if prob == "tile" else prob
        nisa.dropout(dst=out, data=data, prob=rate)
        nisa.dropout(dst=data, data=data, prob=rate)
        return result_of(out), result_of(data)

    results = run_everywhere(kernel, (x, rates), target)
    carrier = f"u{x.dtype.itemsize}"
    for lane in (0, 5, 64, 127):
        own = generators(lane, target=target)
        rate = rates[lane, 0] if prob == "tile" else np.float32(prob)
        for ours in results:
            kept = np.array([not own[f % len(own)].uniform() < rate for f in range(50)])
            np.testing.assert_array_equal(ours[lane].view(carrier), np.where(kept, x[lane].view(carrier), 0))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32"])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_set_rng_seed(dtype: str, target: str) -> None:
    seed = np.array([[0x12345678]], np.uint32)

    def kernel(s: Any) -> Any:
        host = ndarray((1, 1), "uint32")
        nisa.dma_copy(dst=host, src=s)
        outs = [ndarray((128, 9), "uint32") for _ in range(3)]
        nisa.set_rng_seed(src_seeds=host.view(dtype))
        nisa.rng(dst=outs[0])
        nisa.rng(dst=outs[1])
        nisa.set_rng_seed(src_seeds=host)
        nisa.rng(dst=outs[2])
        if target == "trn2":
            nisa.rng(dst=outs[1], engine=ENGINE.gpsimd)
        return tuple(map(result_of, outs))

    first, second, third = run_everywhere(kernel, (seed,), target)
    np.testing.assert_array_equal(first, third)
    own = generators(77, target=target, seed=0x12345678)
    np.testing.assert_array_equal(first[77], [own[f % len(own)].next() for f in range(9)])
    if target == "trn2":  # gpsimd keeps its own generators
        own = generators(77, ENGINE.gpsimd)
        np.testing.assert_array_equal(second[77], [own[0].next() for _ in range(9)])


@pytest.mark.parametrize(("engine", "words", "target"), [(ENGINE.gpsimd, 6, "trn2"), (ENGINE.vector, 24, "trn3")])
@pytest.mark.parametrize("start", [0, 32])
def test_state_can_be_set_and_read(engine: Any, words: int, target: str, start: int) -> None:
    states = rng_for(words).integers(1, 2**32, (20, words), dtype=np.uint32)

    def kernel(s: Any) -> Any:
        given = ndarray((20 + start, words), "uint32")[start:]
        nisa.dma_copy(dst=given, src=s)
        found, after = (ndarray((128, words), "uint32") for _ in range(2))
        draws = [ndarray((128, 11), "uint32") for _ in range(2)]
        for drawn, held in zip(draws, (found, after), strict=True):
            nisa.rand_set_state(src_seeds=given, engine=engine)
            if held is found:
                nisa.rand_get_state(dst=found, engine=engine)
            nisa.rng(dst=drawn, engine=engine)
        nisa.rand_get_state(dst=after, engine=engine)
        return result_of(found), result_of(after), *map(result_of, draws)

    found, after, first, second = run_everywhere(kernel, (states,), target)
    np.testing.assert_array_equal(found[start : start + 20], states)
    np.testing.assert_array_equal(first[start : start + 20], second[start : start + 20])
    own = [Xorwow(states[3, 6 * g : 6 * g + 6]) for g in range(words // 6)]
    np.testing.assert_array_equal(first[start + 3], [own[f % len(own)].next() for f in range(11)])
    np.testing.assert_array_equal(after[start + 3], [word for g in own for word in g.words])
    lane = 127  # untouched lanes go on
    own = generators(lane, engine, target)
    for drawn in (first, second):
        np.testing.assert_array_equal(drawn[lane], [own[f % len(own)].next() for f in range(11)])


def test_launches_repeat_and_cores_draw_alike() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((2, 128, 8), dtype=nl.uint32, buffer=nl.shared_hbm, name="out")
        tile = ndarray((128, 8), "uint32")
        nisa.rng(dst=tile)
        nisa.dma_copy(dst=out[nl.program_id(0)], src=tile)
        return out

    x = np.zeros((1, 1), np.float32)
    for mode in ("native", "reference", "debug"):
        run = tilelang.simulate(kernel, mode=mode)[2]
        first, second = run(x), run(x)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first[0], first[1])


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_wrappers(target: str, dtype: str) -> None:
    def kernel(seed: Any) -> Any:
        held = nl.load(seed)
        results = []
        for _ in range(2):
            nl.random_seed(held)
            drawn = nl.rand((128, 64), dtype)
            results += [drawn, nl.dropout(drawn, 0.5), nl.dropout(drawn, 0.25, dtype=nl.float32)]
        large = nl.rand((300, 2, 4), dtype, buffer=nl.shared_hbm)
        return *map(result_of, results), large

    seed = np.array([[7]], np.int32)
    *results, large = run_everywhere(kernel, (seed,), target)
    for first, second in zip(results[:3], results[3:], strict=True):
        np.testing.assert_array_equal(first, second)
    drawn, half, quarter = (r.astype(np.float32) for r in results[:3])
    assert drawn.min() >= 0 and drawn.max() <= 1 and abs(drawn.mean() - 0.5) < 0.01
    assert abs((half == 0).mean() - 0.5) < 0.02 and abs((quarter == 0).mean() - 0.25) < 0.02
    assert set(np.unique(half - drawn * (half != 0))) == {0}
    assert large.shape == (300, 2, 4) and len(np.unique(large)) > 200


def test_wrappers_refuse() -> None:
    cases = [
        (lambda: nl.rand((4, 4), nl.int32), TypeError, "no numbers between 0 and 1"),
        (lambda: nl.random_seed(2**40), TypeError, "neither a tile nor an int of 32 bits"),
        (lambda: nl.dropout(1.0, 0.5), TypeError, "x must be a tile"),
    ]
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            tilelang.simulate(lambda x, call=call: call() and None)(np.zeros((1, 1), np.float32))


def test_an_int_as_seed_is_taken_with_a_warning() -> None:
    def kernel(x: Any) -> Any:
        nl.random_seed(9)
        return result_of(nl.rand((4, 4), nl.float32))

    with pytest.warns(tilelang.errors.TileWarning, match="LANG.R316"):
        tilelang.simulate(kernel)(np.zeros((1, 1), np.float32))
