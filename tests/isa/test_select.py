"""Values of tensor_copy_predicated, range_select and select_reduce (isa.md 10.6, 12.11, 12.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.isa.enums import reduce_cmd

Run = Callable[..., Any]
F32 = np.float32
bf16 = ml_dtypes.bfloat16
LOWEST = float(np.finfo(F32).min)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_predicated_copy(run: Run, dtype: Any, reverse: bool) -> None:
    """Any non-zero predicate selects; ranks may differ; the rest of dst stays."""
    predicate = np.array([[0, 1, np.iinfo(dtype).max, 0, 2, 0]], dtype)
    dst, src = np.arange(6, dtype=bf16).reshape(1, 2, 3), -np.arange(10, 16).astype(bf16).reshape(1, 6)
    run("tensor_copy_predicated", dst=dst, src=src, predicate=predicate, reverse_pred=reverse)
    chosen = [(x != 0) != reverse for x in predicate[0]]
    assert dst.ravel().astype(float).tolist() == [-(10.0 + f) if c else float(f) for f, c in enumerate(chosen)]


def test_predicated_copy_keeps_bits(run: Run) -> None:
    src = np.array([[0x7FC12345, 0xFF800001]], np.uint32).view(F32)
    dst = np.zeros((1, 2), F32)
    run("tensor_copy_predicated", dst=dst, src=src, predicate=np.ones((1, 2), np.uint8))
    assert (dst.view(np.uint32) == src.view(np.uint32)).all()


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        (bf16, 1 + 2.0**-8, 1),
        (np.uint8, 2.5, 2),
        (np.uint8, 300, 255),
        (np.int32, 2**24 + 1, 2**24 + 1),
        (np.int32, 2**40, 2**31 - 1),
    ],
)
def test_predicated_copy_of_a_number(run: Run, dtype: Any, number: float, expected: float) -> None:
    dst = np.zeros((1, 2), dtype)
    run("tensor_copy_predicated", dst=dst, src=number, predicate=np.array([[1, 0]], np.uint8))
    assert dst.astype(np.float64).tolist() == [[expected, 0]]


def test_predicated_copy_reads_dst(call: Run) -> None:
    tile = "sbuf float32[4,8]"
    bound = call("tensor_copy_predicated", dst=tile, src=0, predicate="sbuf uint8[4,8]")
    assert bound.reads("dst") and bound.writes("dst")


def test_range_select_conformance(run: Run) -> None:
    dst, largest = np.zeros((1, 4), F32), np.zeros((1, 1), F32)
    bounds = dict(bound0=np.full((1, 1), 5, F32), bound1=np.full((1, 1), 7, F32))
    data = np.array([[7, 8, 9, 10]], F32)
    run(
        "range_select",
        dst=dst,
        on_true_tile=data,
        comp_op0=np.greater_equal,
        comp_op1=np.less,
        range_start=4,
        reduce_res=largest,
        **bounds,
    )
    assert dst.tolist() == [[LOWEST, 8, 9, LOWEST]]
    assert largest[0, 0] == 9


COMPARE = {
    np.equal: lambda a, b: a == b,
    np.less: lambda a, b: a < b,
    np.less_equal: lambda a, b: a <= b,
    np.greater: lambda a, b: a > b,
    np.greater_equal: lambda a, b: a >= b,
}


@pytest.mark.parametrize("op0", COMPARE)
@pytest.mark.parametrize("op1", COMPARE)
def test_range_select_comparisons(run: Run, op0: Any, op1: Any) -> None:
    """Both comparisons, index first, bounds per partition, index over the flattened free dims."""
    data = np.arange(24, dtype=F32).reshape(3, 2, 4)
    low, high = np.array([[1], [2], [2.5]], F32), np.array([[6], [2], [4]], F32)
    dst = np.zeros((3, 2, 4), F32)
    run("range_select", dst=dst, on_true_tile=data, comp_op0=op0, comp_op1=op1, bound0=low, bound1=high)
    for p in range(3):
        kept = [COMPARE[op0](f, low[p, 0]) and COMPARE[op1](f, high[p, 0]) for f in range(8)]
        assert dst[p].ravel().tolist() == [data[p].ravel()[f] if k else LOWEST for f, k in enumerate(kept)]


def test_range_select_reduction(run: Run) -> None:
    """reset_reduce starts from -Inf, reduce continues, idle leaves the registers; all before the cast to dst."""
    half, largest = np.zeros((1, 2), bf16), np.zeros((1, 1), F32)
    bounds = dict(bound0=np.zeros((1, 1), F32), bound1=np.full((1, 1), 9, F32))
    ops = dict(comp_op0=np.greater_equal, comp_op1=np.less, dst=half, reduce_res=largest, **bounds)
    value = F32(1 + 2.0**-20)
    machine = run("range_select", on_true_tile=np.array([[value, -5]], F32), **ops)
    assert largest[0, 0] == value and half[0, 0] == 1
    run("range_select", machine=machine, on_true_tile=np.array([[-7, -5]], F32), reduce_cmd=reduce_cmd.reduce, **ops)
    assert largest[0, 0] == value
    run("range_select", machine=machine, on_true_tile=np.array([[100, 100]], F32), reduce_cmd=reduce_cmd.idle, **ops)
    assert largest[0, 0] == value
    run("range_select", machine=machine, on_true_tile=np.array([[-7, -np.inf]], F32), **ops)
    assert largest[0, 0] == -7


def test_lowest_value_becomes_minus_infinity_in_narrow_types(run: Run) -> None:
    dst = np.zeros((1, 1), bf16)
    beyond = np.full((1, 1), 5, F32)
    run(
        "range_select",
        dst=dst,
        on_true_tile=np.ones((1, 1), F32),
        comp_op0=np.greater,
        comp_op1=np.greater,
        bound0=beyond,
        bound1=beyond,
    )
    assert dst[0, 0] == -np.inf


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_select_reduce_values(run: Run, dtype: Any, reverse: bool) -> None:
    predicate = np.array([[0, 1, 7, 0], [1, 0, 0, 5]], dtype)
    on_true, column = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], F32), np.array([[10], [-20]], F32)
    dst, largest = np.zeros((2, 4), F32), np.zeros((2, 1), F32)
    machine = run(
        "select_reduce", dst=dst, predicate=predicate, on_true=on_true, on_false=column, reverse_pred=reverse,
        reduce_cmd=reduce_cmd.reset_reduce, reduce_res=largest,
    )  # fmt: skip
    for p in range(2):
        expected = [on_true[p, f] if (predicate[p, f] != 0) != reverse else column[p, 0] for f in range(4)]
        assert dst[p].tolist() == expected
        assert largest[p, 0] == max(expected) == machine.dve[p]


def test_select_reduce_idle_is_the_default(run: Run) -> None:
    dst = np.zeros((1, 2), np.int8)
    arguments = dict(
        dst=dst, predicate=np.array([[1, 0]], np.uint8), on_true=np.array([[-128, 3]], np.int8), on_false=-1.0
    )
    machine = run("select_reduce", **arguments)
    assert dst.tolist() == [[-128, -1]]
    assert not machine.dve.any()
    largest = np.zeros((1, 1), F32)
    run("select_reduce", machine=machine, reduce_cmd=reduce_cmd.reduce, reduce_res=largest, **arguments)
    assert largest[0, 0] == 0


def test_costs(call: Run) -> None:
    f32, psum, mask = "sbuf float32[4,1024]", "psum float32[4,1024]", "sbuf uint8[4,1024]"
    column = "sbuf float32[4,1]"
    bounds = dict(comp_op0=np.less, comp_op1=np.less, bound0=column, bound1=column)
    cases: list[tuple[str, dict[str, Any], float]] = [
        ("tensor_copy_predicated", dict(dst=f32, src=f32, predicate=mask), 2048),
        ("tensor_copy_predicated", dict(dst=f32, src=psum, predicate=mask), 1024),
        ("tensor_copy_predicated", dict(dst=f32, src=0.0, predicate=mask), 1024),
        ("select_reduce", dict(dst=f32, predicate=mask, on_true=f32, on_false=0), 2048),
        ("select_reduce", dict(dst=f32, predicate=mask, on_true=psum, on_false=0), 1024),
        ("range_select", dict(dst=f32, on_true_tile=f32, **bounds), 1024),
    ]
    for name, arguments, cycles in cases:
        bound = call(name, **arguments)
        assert (bound.engine, bound.spec.cost(bound)) == ("vector", cycles)
