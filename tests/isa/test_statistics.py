"""Values of bn_stats, bn_aggr, max8 and nc_find_index8 (isa.md 12.13 to 12.16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

Run = Callable[..., Any]
F32 = np.float32


def _moments(values: np.ndarray) -> list[Any]:
    """[count, mean, sum of squared differences] in float32: two passes, left to right."""
    if not len(values):
        return [0, 0, 0]
    total = F32(0)
    for x in values:
        total = total + x
    mean = total / F32(len(values))
    squares = F32(0)
    for x in values:
        squares = squares + (x - mean) * (x - mean)
    return [len(values), mean, squares]


def test_bn_conformance(run: Run) -> None:
    stats, result = np.zeros((1, 6), F32), np.zeros((1, 2), F32)
    run("bn_stats", dst=stats, data=np.array([[1, 2, 3, 4, 6]], F32))
    np.testing.assert_allclose(stats, [[3, 10 / 3, 38 / 3, 2, 3, 2]], rtol=1e-6)
    run("bn_aggr", dst=result, data=stats)
    np.testing.assert_allclose(result, [[3.2, 2.96]], rtol=1e-6)


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 511, 512])
def test_bn_stats_order(run: Run, columns: int) -> None:
    """Even and odd elements apart, each in two ascending passes; nothing odd gives zeros."""
    data = np.random.default_rng(columns).standard_normal((2, columns)).astype(F32) + F32(100)
    stats = np.zeros((2, 6), F32)
    run("bn_stats", dst=stats, data=data)
    for p in range(2):
        assert stats[p].tolist() == [float(x) for x in _moments(data[p, 0::2]) + _moments(data[p, 1::2])]


def test_bn_stats_counts_the_flattened_index(run: Run) -> None:
    data = np.arange(6, dtype=F32).reshape(1, 2, 3)
    stats = np.zeros((1, 6), F32)
    run("bn_stats", dst=stats, data=data)
    assert stats.tolist() == [[3, 2, 8, 3, 3, 8]]


def test_bn_aggr_order(run: Run) -> None:
    """The formula of isa.md 12.14 in float32, sums left to right."""
    rng = np.random.default_rng(4)
    triples = rng.random((2, 5, 3)).astype(F32) + F32(0.5)
    result = np.zeros((2, 2), F32)
    run("bn_aggr", dst=result, data=triples)
    for p in range(2):
        count = weighted = within = between = F32(0)
        for n, m, v in triples[p]:
            count, weighted, within = count + n, weighted + n * m, within + v
        mean = weighted / count
        for n, m, _ in triples[p]:
            between = between + n * ((m - mean) * (m - mean))
        assert result[p].tolist() == [mean, (within + between) / count]


def test_bn_aggr_of_nothing_is_nan(run: Run) -> None:
    result = np.zeros((1, 2), F32)
    run("bn_aggr", dst=result, data=np.zeros((1, 6), F32))
    assert np.isnan(result).all()


def test_layer_norm_statistics(run: Run) -> None:
    """Pieces of at most 512 joined: mean and population variance of the whole row."""
    data = np.random.default_rng(9).standard_normal((4, 1300)).astype(F32) * 3 + 1
    stats, result = np.zeros((4, 3, 6), F32), np.zeros((4, 2), F32)
    for i, start in enumerate(range(0, 1300, 512)):
        run("bn_stats", dst=stats[:, i], data=data[:, start : start + 512])
    run("bn_aggr", dst=result, data=stats)
    exact = data.astype(np.float64)
    np.testing.assert_allclose(result, np.stack([exact.mean(1), exact.var(1)], 1), rtol=2e-6)


def test_max8_values(run: Run) -> None:
    data = np.random.default_rng(8).integers(-9, 9, (3, 4, 10)).astype(F32)
    dst = np.zeros((3, 8), F32)
    run("max8", dst=dst, src=data)
    assert dst.tolist() == [sorted(row.ravel().tolist(), reverse=True)[:8] for row in data]


def test_max8_special_values(run: Run) -> None:
    """NaN counts as largest, -Inf takes part, duplicates stay, zeros keep their order."""
    inf, nan = np.inf, np.nan
    data = np.array([[-inf, 1, nan, 1, -inf, -0.0, 0.0, inf], [-inf] * 8], F32)
    dst = np.zeros((2, 8), F32)
    run("max8", dst=dst, src=data)
    assert np.isnan(dst[0, 0])
    assert dst[0, 1:].tolist() == [inf, 1, 1, 0, 0, -inf, -inf]
    assert np.signbit(dst[0, 4:6]).tolist() == [True, False]
    assert dst[1].tolist() == [-inf] * 8


def test_max8_rounds_into_dst(run: Run) -> None:
    dst = np.zeros((1, 8), ml_dtypes.bfloat16)
    run("max8", dst=dst, src=np.array([[1.01, *range(2, 9)]], F32))
    assert dst.astype(F32)[0].tolist() == [8, 7, 6, 5, 4, 3, 2, 1.0078125]


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_find_index8_conformance(run: Run, dtype: Any) -> None:
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], F32)
    dst = np.zeros((1, 8), dtype)
    run("nc_find_index8", dst=dst, data=data, vals=np.array([[3, 8, 8, 8, 8, 8, 8, 8]], F32))
    assert dst.tolist() == [[2, 4, 5, 6, 7, 8, 9, 10]]
    run("nc_find_index8", dst=dst, data=data, vals=np.array([[5, 8, 9, 8, 1, 1, np.nan, -8]], F32))
    none = int(np.iinfo(dtype).max)
    assert dst.tolist() == [[none, 4, none, 5, 0, none, none, none]]


def test_find_index8_values(run: Run) -> None:
    """Against a plain walk over the row, with ties in both operands."""
    rng = np.random.default_rng(6)
    data, values = rng.integers(0, 6, (20, 3, 5)).astype(F32), rng.integers(0, 7, (20, 8)).astype(F32)
    dst = np.zeros((20, 8), np.uint32)
    run("nc_find_index8", dst=dst, data=data, vals=values)
    for p in range(20):
        expected = [0xFFFFFFFF] * 8
        for f, x in enumerate(data[p].ravel()):
            slot = next((i for i in range(8) if values[p, i] == x and expected[i] == 0xFFFFFFFF), None)
            if slot is not None:
                expected[slot] = f
        assert dst[p].tolist() == expected


def test_find_index8_compares_as_float32(run: Run) -> None:
    dst = np.zeros((1, 8), np.uint32)
    data = np.array([[2**24 + 1, *range(7)]], np.int32)
    run("nc_find_index8", dst=dst, data=data, vals=np.array([[2**24, *[-1] * 7]], np.int32))
    assert dst[0, 0] == 0


def test_max8_then_find_index8(run: Run) -> None:
    """The top-8 idiom: distinct positions, in descending order of value."""
    data = np.random.default_rng(12).integers(0, 5, (4, 40)).astype(F32)
    values, places = np.zeros((4, 8), F32), np.zeros((4, 8), np.uint32)
    run("max8", dst=values, src=data)
    run("nc_find_index8", dst=places, data=data, vals=values)
    assert (np.take_along_axis(data, places.astype(np.int64), 1) == values).all()
    assert all(len(set(row)) == 8 for row in places.tolist())


def test_costs(call: Run) -> None:
    row, eight = "sbuf float32[4,512]", "sbuf float32[4,8]"
    cases: list[tuple[str, dict[str, Any], float]] = [
        ("bn_stats", dict(dst="sbuf float32[4,6]", data=row), 512),
        ("bn_aggr", dict(dst="sbuf float32[4,2]", data="sbuf float32[4,30]"), 130),
        ("bn_aggr", dict(dst="sbuf float32[4,2]", data="sbuf float32[4,6]"), 64),
        ("max8", dict(dst=eight, src=row), 512),
        ("nc_find_index8", dict(dst="sbuf uint32[4,8]", data=row, vals=eight), 512),
    ]
    for name, arguments, cycles in cases:
        bound = call(name, **arguments)
        assert (bound.engine, bound.spec.cost(bound)) == ("vector", cycles)
