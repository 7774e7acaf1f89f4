"""Values of tensor_reduce, tensor_scalar_reduce and tensor_tensor_scan (isa.md 12.4, 12.6, 12.8, 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.isa.enums import reduce_cmd

Run = Callable[..., Any]
F32 = np.float32
bf16 = ml_dtypes.bfloat16

FOLDS: dict[Any, tuple[Any, Callable[[Any, Any], Any]]] = {
    np.add: (F32(0), lambda a, b: a + b),
    np.multiply: (F32(1), lambda a, b: a * b),
    np.maximum: (F32(-np.inf), lambda a, b: a if a > b else b),
    np.minimum: (F32(np.inf), lambda a, b: a if a < b else b),
    np.logical_and: (F32(1), lambda a, b: F32(a != 0 and b != 0)),
    np.logical_or: (F32(0), lambda a, b: F32(a != 0 or b != 0)),
    np.logical_xor: (F32(0), lambda a, b: F32((a != 0) != (b != 0))),
}


def _fold(op: Any, values: Iterable[Any]) -> Any:
    """Left to right with one float32 rounding a step."""
    start, combine = FOLDS[op]
    return reduce(combine, values, start)


@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("negate", [False, True])
def test_tensor_reduce_operators(run: Run, op: Any, negate: bool) -> None:
    rng = np.random.default_rng(5)
    data = (rng.standard_normal((3, 4, 9)) * (rng.random((3, 4, 9)) < 0.8)).astype(F32)
    dst = np.zeros((3, 4), F32)
    run("tensor_reduce", dst=dst, op=op, data=data, axis=2, negate=negate)
    for p in range(3):
        for i in range(4):
            expected = _fold(op, data[p, i])
            assert dst[p, i] == (-expected if negate else expected)


@pytest.mark.parametrize(
    ("axis", "shape"), [(2, (2, 4)), ((1, 2), (2, 1)), ([2, 1], (2, 1)), (-1, (2, 4, 1)), ((-2, -1), (2, 1))]
)
def test_tensor_reduce_axes_are_real_dims(run: Run, axis: Any, shape: tuple[int, ...]) -> None:
    data = np.arange(64, dtype=F32).reshape(2, 4, 8)
    dst = np.zeros(shape, F32)
    run("tensor_reduce", dst=dst, op=np.add, data=data, axis=axis, keepdims=len(shape) == 3)
    sums = data.sum(axis=2) if dst.size == 8 else data.sum(axis=(1, 2))
    assert (dst.ravel() == sums.ravel()).all()


def test_tensor_reduce_order_is_left_to_right(run: Run) -> None:
    """The sum of non-negative weights equals the sequential float32 sum in every bit, unlike a pairwise sum."""
    rng = np.random.default_rng(7)
    data, dst = rng.random((64, 128), F32), np.zeros((64, 1), F32)
    run("tensor_reduce", dst=dst, op=np.add, data=data, axis=1)
    sequential = np.array([_fold(np.add, row) for row in data])
    assert (dst[:, 0] == sequential).all()
    assert (sequential != data.sum(axis=1)).any()


def test_tensor_reduce_rounds_once_into_dst(run: Run) -> None:
    data, dst = np.array([[1.0, 2.0**-8, 2.0**-8]], bf16), np.zeros((1, 1), bf16)
    run("tensor_reduce", dst=dst, op=np.add, data=data, axis=1)
    assert dst[0, 0] == bf16(1 + 2.0**-7)


def test_tensor_reduce_subtract_folds_from_the_first(run: Run) -> None:
    dst = np.zeros((1, 1), F32)
    run("tensor_reduce", dst=dst, op=np.subtract, data=np.array([[10, 1, 2]], F32), axis=1)
    assert dst[0, 0] == 7


def test_tensor_reduce_one_logical_element_is_0_or_1(run: Run) -> None:
    dst = np.zeros((1, 1), F32)
    for op in (np.logical_and, np.logical_or, np.logical_xor):
        run("tensor_reduce", dst=dst, op=op, data=np.array([[5]], F32), axis=1)
        assert dst[0, 0] == 1


@pytest.mark.parametrize("op", [np.bitwise_and, np.bitwise_or, np.bitwise_xor])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32])
def test_tensor_reduce_bits(run: Run, op: Any, dtype: Any) -> None:
    limits = np.iinfo(dtype)
    data = np.random.default_rng(2).integers(limits.min, limits.max, (3, 2, 5), dtype, endpoint=True)
    dst = np.zeros((3, 2), dtype)
    run("tensor_reduce", dst=dst, op=op, data=data, axis=2)
    assert dst.tolist() == [[int(reduce(op, [int(x) for x in row])) for row in rows] for rows in data]


def test_tensor_reduce_nan_wins_maximum(run: Run) -> None:
    dst = np.zeros((1, 1), F32)
    run("tensor_reduce", dst=dst, op=np.maximum, data=np.array([[1, np.nan, 3]], F32), axis=1)
    assert np.isnan(dst[0, 0])


def test_tensor_scalar_reduce_conformance(run: Run) -> None:
    """isa.md 18: multiply 2, add; negated read-out keeps the sign of the registers; `reduce` continues."""
    data = np.array([[1, 2, 3]], F32)
    dst, total = np.zeros((1, 3), F32), np.zeros((1, 1), F32)
    arguments = dict(dst=dst, data=data, op0=np.multiply, operand0=2, reduce_op=np.add, reduce_res=total)
    machine = run("tensor_scalar_reduce", reduce_res_negate=True, **arguments)
    assert dst.tolist() == [[2, 4, 6]]
    assert total[0, 0] == -12
    assert machine.dve[0] == 12
    run("tensor_scalar_reduce", machine=machine, reduce_cmd=reduce_cmd.reduce, **arguments)
    assert total[0, 0] == 24
    run("tensor_scalar_reduce", machine=machine, reduce_cmd=reduce_cmd.load_reduce, reduce_init=0.5, **arguments)
    assert total[0, 0] == 12.5


@pytest.mark.parametrize("op", [np.add, np.multiply, np.maximum, np.minimum])
def test_tensor_scalar_reduce_values(run: Run, op: Any) -> None:
    """All free dims, before the cast to dst, ascending from the identity or a per-row start."""
    rng = np.random.default_rng(11)
    data, column, start = (rng.standard_normal(s).astype(F32) for s in ((3, 2, 5), (3, 1), (3, 1)))
    dst, total, loaded = np.zeros((3, 2, 5), bf16), np.zeros((3, 1), F32), np.zeros((3, 1), F32)
    arguments = dict(dst=dst, data=data, op0=np.subtract, operand0=column, reduce_op=op)
    run("tensor_scalar_reduce", reduce_res=total, **arguments)
    run("tensor_scalar_reduce", reduce_res=loaded, reduce_cmd=reduce_cmd.load_reduce, reduce_init=start, **arguments)
    for p in range(3):
        results = [x - column[p, 0] for x in data[p].ravel()]
        assert (dst[p].ravel() == np.array(results, F32).astype(bf16)).all()
        assert total[p, 0] == _fold(op, results)
        assert loaded[p, 0] == reduce(FOLDS[op][1], results, start[p, 0])


def test_registers_belong_to_physical_lanes(run: Run) -> None:
    """A tile at partition 32 uses registers 32 and up; a tile elsewhere does not see them."""
    data, total = np.array([[1, 2], [3, 4]], F32), np.zeros((2, 1), F32)
    arguments = dict(dst=np.zeros((2, 2), F32), data=data, op0=np.add, operand0=0, reduce_op=np.add)
    machine = run("tensor_scalar_reduce", start=32, **arguments)
    assert machine.dve[32:34].tolist() == [3, 7]
    assert not machine.dve[:32].any() and not machine.dve[34:].any()
    run("tensor_scalar_reduce", start=64, machine=machine, reduce_cmd=reduce_cmd.reduce, reduce_res=total, **arguments)
    assert total.tolist() == [[3], [7]]
    run("tensor_scalar_reduce", start=32, machine=machine, reduce_cmd=reduce_cmd.reduce, reduce_res=total, **arguments)
    assert total.tolist() == [[6], [14]]


def test_reduce_res_may_be_part_of_dst(run: Run) -> None:
    """The reduction survives: dst is written first."""
    dst = np.zeros((1, 3), F32)
    run(
        "tensor_scalar_reduce",
        dst=dst,
        data=np.array([[1, 2, 3]], F32),
        op0=np.add,
        operand0=0,
        reduce_op=np.add,
        reduce_res=dst[:, 0:1],
    )
    assert dst.tolist() == [[6, 2, 3]]


@pytest.mark.parametrize(
    ("data0", "arguments", "expected"),
    [
        ([1, 2, 3], dict(op0=np.subtract), [1, 3, 3]),
        ([1, 2, 3], dict(op0=np.subtract, reverse0=True), [1, 1, 1]),
        ([0.5, 0.5, 2], dict(op0=np.multiply), [1.5, 2.75, 8.5]),
    ],
)
def test_scan_conformance(run: Run, data0: list[float], arguments: dict[str, Any], expected: list[float]) -> None:
    dst = np.zeros((1, 3), F32)
    run(
        "tensor_tensor_scan",
        dst=dst,
        data0=np.array([data0], F32),
        data1=np.array([[1, 2, 3]], F32),
        initial=1,
        op1=np.add,
        **arguments,
    )
    assert dst.tolist() == [expected]


@pytest.mark.parametrize("reverse1", [False, True])
def test_scan_state_is_float32(run: Run, reverse1: bool) -> None:
    """A bfloat16 dst does not round the state; `initial` may be a tile of another dtype."""
    rng = np.random.default_rng(13)
    data0, data1 = (rng.standard_normal((2, 20)).astype(F32) for _ in range(2))
    initial, dst = np.array([[1], [-2]], np.int8), np.zeros((2, 20), bf16)
    run(
        "tensor_tensor_scan",
        dst=dst,
        data0=data0,
        data1=data1,
        initial=initial,
        op0=np.multiply,
        op1=np.subtract,
        reverse1=reverse1,
    )
    for p in range(2):
        state = F32(initial[p, 0])
        for f in range(20):
            step = data0[p, f] * state
            state = data1[p, f] - step if reverse1 else step - data1[p, f]
            assert dst[p, f] == state.astype(bf16)


def test_scan_in_place(run: Run) -> None:
    data = np.ones((1, 4), F32)
    run("tensor_tensor_scan", dst=data, data0=data, data1=data, initial=0.0, op0=np.multiply, op1=np.add)
    assert data.tolist() == [[1, 2, 3, 4]]


def test_costs(call: Run) -> None:
    b16, f32, column = "sbuf bfloat16[4,1024]", "sbuf float32[4,1024]", "sbuf float32[4,1]"
    cases: list[tuple[str, dict[str, Any], float]] = [
        ("tensor_reduce", dict(dst="sbuf bfloat16[4,1]", data=b16, op=np.add, axis=1), 512),
        ("tensor_reduce", dict(dst="sbuf bfloat16[4,1]", data=b16, op=np.minimum, axis=1), 1024),
        ("tensor_reduce", dict(dst=column, data=b16, op=np.add, axis=1), 1024),
        ("tensor_reduce", dict(dst=column, data="sbuf float32[4,8]", op=np.add, axis=1), 64),
        ("tensor_scalar_reduce", dict(dst=f32, data=f32, op0=np.add, operand0=0, reduce_op=np.add), 1088),
        ("tensor_tensor_scan", dict(dst=f32, data0=f32, data1=f32, initial=0, op0=np.add, op1=np.add), 2048),
    ]
    for name, arguments, cycles in cases:
        bound = call(name, **arguments)
        assert (bound.engine, bound.spec.cost(bound)) == ("vector", cycles)
