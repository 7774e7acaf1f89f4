"""Values of iota and affine_select (isa.md 14 to 14.2)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.errors import TileTypeError

Run = Callable[..., Any]
F32 = np.float32
LOWEST = float(np.finfo(F32).min)


def _affine(pattern: list[list[int]], offset: int, multiplier: int, partitions: int) -> list[list[int]]:
    """The index expression on Python ints, wrapped to int32."""
    rows = []
    for p in range(partitions):
        walk = product(*(range(count) for _, count in pattern))
        values = [offset + p * multiplier + sum(step * i for (step, _), i in zip(pattern, index)) for index in walk]
        rows.append([(v + 2**31) % 2**32 - 2**31 for v in values])
    return rows


def test_iota_conformance(run: Run) -> None:
    dst = np.zeros((3, 6), np.int32)
    run("iota", dst=dst, pattern=[[10, 2], [1, 3]], offset=5, channel_multiplier=100)
    assert dst[2].tolist() == [205, 206, 207, 215, 216, 217]


def test_iota_examples(run: Run) -> None:
    columns, rows = np.zeros((128, 512), np.int32), np.zeros((128, 512), np.int32)
    run("iota", dst=columns, pattern=[[1, 512]])
    run("iota", dst=rows, pattern=[[0, 512]], channel_multiplier=1)
    assert (columns == np.arange(512)).all()
    assert (rows == np.arange(128)[:, None]).all()


PATTERNS = [
    [[1, 12]],
    [[-3, 12]],
    [[0, 2], [5, 6]],
    [[7, 2], [0, 3], [-1, 2]],
    [[32767, 1], [-32768, 2], [9, 3], [1, 2]],
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("offset", "multiplier"), [(0, 0), (-7, 3), (2**31 - 1, 1), (-(2**31), -(2**31))])
def test_iota_values(run: Run, pattern: list[list[int]], offset: int, multiplier: int) -> None:
    """32-bit integers that wrap; uint32 keeps the bits, narrower integers saturate, floats round from the value."""
    expected = np.array(_affine(pattern, offset, multiplier, 3))
    for dtype in (np.int32, np.uint32, np.int16, np.uint8, F32):
        dst = np.zeros((3, 2, 6), dtype)
        run("iota", dst=dst, pattern=pattern, offset=offset, channel_multiplier=multiplier)
        if dtype is np.uint32:
            wanted = expected % 2**32
        elif dtype is F32:
            wanted = expected.astype(F32)
        else:
            limits = np.iinfo(dtype)
            wanted = np.clip(expected, limits.min, limits.max)
        assert (dst.reshape(3, 12) == wanted).all()


def test_iota_counts_from_the_first_partition_of_dst(run: Run) -> None:
    dst = np.zeros((2, 1), np.int32)
    run("iota", start=64, dst=dst, pattern=[[1, 1]], channel_multiplier=1)
    assert dst.tolist() == [[0], [1]]


def test_affine_select_conformance(run: Run) -> None:
    """A causal mask keeps f <= p."""
    data, dst = np.ones((4, 4), F32), np.zeros((4, 4), F32)
    run("affine_select", dst=dst, pattern=[[-1, 4]], channel_multiplier=1, on_true_tile=data, on_false_value=LOWEST,
        cmp_op=np.greater_equal)  # fmt: skip
    assert (dst == np.where(np.tri(4), 1, LOWEST)).all()


COMPARE: dict[Any, Callable[[int], bool]] = {
    np.equal: lambda i: i == 0,
    np.not_equal: lambda i: i != 0,
    np.less: lambda i: i < 0,
    np.less_equal: lambda i: i <= 0,
    np.greater: lambda i: i > 0,
    np.greater_equal: lambda i: i >= 0,
}


@pytest.mark.parametrize("op", COMPARE)
def test_affine_select_comparisons(run: Run, op: Any) -> None:
    data, dst = np.arange(36, dtype=F32).reshape(3, 12), np.zeros((3, 2, 6), F32)
    for pattern, offset in product(PATTERNS, (0, -6)):
        run(
            "affine_select",
            dst=dst,
            pattern=pattern,
            channel_multiplier=2,
            on_true_tile=data,
            on_false_value=-1.5,
            cmp_op=op,
            offset=offset,
        )
        index = _affine(pattern, offset, 2, 3)
        expected = [[data[p, f] if COMPARE[op](i) else -1.5 for f, i in enumerate(row)] for p, row in enumerate(index)]
        assert dst.reshape(3, 12).tolist() == expected


def test_affine_select_compares_with_equal_by_default(run: Run) -> None:
    dst = np.ones((3, 3), F32)
    run("affine_select", dst=dst, pattern=[[-1, 3]], channel_multiplier=1, on_true_tile=dst, on_false_value=0)
    assert (dst == np.eye(3)).all()


def test_affine_select_conversions(run: Run) -> None:
    """Equal dtypes copy bits; others convert; the value for false is float32 first."""
    nan = np.array([[0x7FC12345, 0x3F800000]], np.uint32).view(F32)
    dst = np.zeros((1, 2), F32)
    keep_first = dict(pattern=[[1, 2]], channel_multiplier=0)
    run("affine_select", dst=dst, on_true_tile=nan, on_false_value=0.1, **keep_first)
    assert dst.view(np.uint32).tolist() == [[0x7FC12345, int(F32(0.1).view(np.uint32))]]
    narrow = np.zeros((1, 2), ml_dtypes.bfloat16)
    run(
        "affine_select", dst=narrow, on_true_tile=np.array([[1 + 2.0**-8, 0]], F32), on_false_value=LOWEST, **keep_first
    )
    assert narrow.astype(F32).tolist() == [[1, -np.inf]]
    wide = np.array([[2**24 + 1, 0]], np.int32)
    run("affine_select", dst=wide, on_true_tile=wide, on_false_value=2**24 + 1, **keep_first)
    assert wide.tolist() == [[2**24 + 1, 2**24]]


def test_affine_select_takes_no_tile_for_false(call: Run) -> None:
    """affine_select.R4: the kind of the parameter refuses it."""
    tile = "sbuf float32[4,8]"
    with pytest.raises(TileTypeError, match="on_false_value: expected a number"):
        call(
            "affine_select",
            dst=tile,
            pattern=[[1, 8]],
            channel_multiplier=0,
            on_true_tile=tile,
            on_false_value="sbuf float32[4,1]",
        )


def test_costs(call: Run) -> None:
    tile = "sbuf float32[4,512]"
    for name, arguments in (
        ("iota", dict(dst="sbuf int32[4,512]", pattern=[[1, 512]])),
        (
            "affine_select",
            dict(dst=tile, pattern=[[1, 512]], channel_multiplier=0, on_true_tile=tile, on_false_value=0),
        ),
    ):
        bound = call(name, **arguments)
        assert (bound.engine, bound.spec.cost(bound)) == ("gpsimd", 662)
