"""Whole-row micro-ops against the text of isa.md sections 12.13 to 12.17."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.execute.vector_engine import F32, assert_same_bits, read, run, tile, words, write
from tilelang.execute import layout


def whole_row(array: np.ndarray, name: str, uops: list[layout.Uop], threads: int = 2) -> None:
    run([*read(0, array, name), *uops], array.shape[0], array.shape[1], block=layout.WHOLE_ROW, threads=threads)


def running_sum(x: np.ndarray) -> np.float32:
    total = F32(0)
    for value in x:
        total = F32(total + value)
    return total


@pytest.mark.parametrize("columns", [1, 2, 3, 64, 511, 512])
def test_bn_stats(columns: int) -> None:
    x = (3 + np.random.default_rng(1).standard_normal((37, columns))).astype(F32)
    out = tile(37, (6,), "float32")
    whole_row(x, "float32", [layout.uop("bn_stats", 1, 0), layout.resize(6), *write(1, out, "float32")])
    for row, got in zip(x, out):
        expected = []
        for part in (row[0::2], row[1::2]):
            if len(part) == 0:
                expected += [0, 0, 0]
                continue
            mean = F32(running_sum(part) / F32(len(part)))
            difference = part - mean
            expected += [len(part), mean, running_sum(difference * difference)]
        assert_same_bits(got, np.array(expected, F32))


@pytest.mark.parametrize("triples", [1, 2, 40])
def test_bn_aggr(triples: int) -> None:
    rng = np.random.default_rng(2)
    x = np.abs(rng.standard_normal((20, triples, 3))).astype(F32)
    x[..., 0] = rng.integers(1, 300, (20, triples))
    out = np.zeros((20, 2), F32)
    whole_row(x.reshape(20, -1), "float32", [layout.uop("bn_aggr", 1, 0), layout.resize(2), *write(1, out, "float32")])
    for row, got in zip(x, out):
        n, m, v = row.T
        count = running_sum(n)
        mean = F32(running_sum(n * m) / count)
        difference = m - mean
        variance = F32((running_sum(v) + running_sum(n * (difference * difference))) / count)
        assert_same_bits(got, np.array([mean, variance], F32))


def test_bn_aggr_of_nothing_is_nan() -> None:
    out = np.zeros((1, 2), F32)
    uops = [layout.uop("bn_aggr", 1, 0), layout.resize(2), *write(1, out, "float32")]
    whole_row(np.zeros((1, 6), F32), "float32", uops)
    assert np.isnan(out).all()


def test_bn_statistics_of_parts_are_those_of_the_whole() -> None:
    x = np.random.default_rng(3).standard_normal((8, 1024)).astype(F32)
    stats, out = np.zeros((8, 2, 6), F32), np.zeros((8, 2), F32)
    for part in range(2):
        piece = x[:, 512 * part : 512 * part + 512]
        uops = [layout.uop("bn_stats", 1, 0), layout.resize(6), *write(1, stats[:, part], "float32")]
        whole_row(piece, "float32", uops)
    whole_row(
        stats.reshape(8, 12), "float32", [layout.uop("bn_aggr", 1, 0), layout.resize(2), *write(1, out, "float32")]
    )
    np.testing.assert_allclose(out, np.stack([x.mean(1), x.var(1)], 1), rtol=2e-5, atol=1e-6)


@given(
    rows=st.integers(1, 128), columns=st.integers(8, 300), levels=st.integers(2, 400), seed=st.integers(0, 2**32 - 1)
)
@settings(max_examples=15)
def test_max8(rows: int, columns: int, levels: int, seed: int) -> None:
    x = (np.random.default_rng(seed).integers(-levels, levels, (rows, columns)) / 4).astype(F32)
    x[x == x[0, 0]] = -np.inf
    out = np.zeros((rows, 8), F32)
    whole_row(x, "float32", [layout.uop("max8", 1, 0), layout.resize(8), *write(1, out, "float32")])
    assert np.array_equal(out, -np.sort(-x, 1)[:, :8])


def test_max8_keeps_the_order_of_zeros_and_puts_nan_first() -> None:
    x = np.array([[0.0, -0.0, -np.inf, np.nan, np.inf, -1, -2, -0.0, 0.0]], F32)
    out = np.zeros((1, 8), F32)
    whole_row(x, "float32", [layout.uop("max8", 1, 0), layout.resize(8), *write(1, out, "float32")])
    assert_same_bits(out, np.array([[np.nan, np.inf, 0.0, -0.0, -0.0, 0.0, -1, -2]], F32))


def test_max8_of_a_long_row() -> None:
    x = np.random.default_rng(4).standard_normal((3, 16384)).astype(F32)
    out = np.zeros((3, 8), F32)
    whole_row(x, "float32", [layout.uop("max8", 1, 0), layout.resize(8), *write(1, out, "float32")])
    assert np.array_equal(out, -np.sort(-x, 1)[:, :8])


def find(data: np.ndarray, values: np.ndarray, highest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The streaming form: each element takes its lowest (or highest) free slot. Returns (positions, elements taken)."""
    positions, taken = np.full(8, -1, np.int64), np.zeros(len(data), bool)
    slots = range(7, -1, -1) if highest else range(8)
    for f, value in enumerate(data):
        for slot in slots:
            if positions[slot] < 0 and values[slot] == value:
                positions[slot], taken[f] = f, True
                break
    return positions, taken


@pytest.mark.parametrize("name", ["uint16", "uint32"])
@given(columns=st.integers(8, 200), levels=st.integers(1, 30), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_find_index8(name: str, columns: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, vals = rng.integers(0, levels, (19, columns)).astype(F32), rng.integers(0, levels + 1, (19, 8)).astype(F32)
    x[:, 0], vals[0, 0] = np.nan, np.nan
    vals[1, :2] = 0.0, -0.0
    out = np.zeros((19, 8), name)
    uops = [
        *read(1, vals, "float32", columns=8),
        layout.uop("find_index8", 2, 0, 1),
        layout.resize(8),
        *layout.write_integer(2, name, out.itemsize, words(out, name)),
    ]
    whole_row(x, "float32", uops)
    for row in range(19):
        assert np.array_equal(out[row], find(x[row], vals[row], highest=False)[0].astype(name))


@given(columns=st.integers(8, 200), levels=st.integers(1, 30), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_match_replace8(columns: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, vals = rng.integers(0, levels, (19, columns)).astype(F32), rng.integers(0, levels + 1, (19, 8)).astype(F32)
    out, index = np.zeros_like(x), np.zeros((19, 8), np.uint32)
    uops = [
        *read(1, vals, "float32", columns=8),
        layout.uop("match_replace8", 2, 3, 0, 1, layout.float_bits(-np.inf)),
        *write(2, out, "float32"),
        layout.resize(8),
        *layout.write_integer(3, "uint32", 4, words(index, "uint32")),
    ]
    whole_row(x, "float32", uops)
    for row in range(19):
        positions, taken = find(x[row], vals[row], highest=True)
        assert np.array_equal(index[row], positions.astype(np.uint32))
        assert np.array_equal(out[row], np.where(taken, -np.inf, x[row]).astype(F32))


def test_match_replace8_example_of_the_manual() -> None:
    x = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], F32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], F32)
    index = np.zeros((1, 8), np.uint32)
    uops = [
        *read(1, vals, "float32", columns=8),
        layout.uop("match_replace8", 2, 3, 0, 1, 0),
        layout.resize(8),
        *layout.write_integer(3, "uint32", 4, words(index, "uint32")),
    ]
    whole_row(x, "float32", uops)
    assert index[0].tolist() == [2, 10, 9, 8, 7, 6, 5, 4]
