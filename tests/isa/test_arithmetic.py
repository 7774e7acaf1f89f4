"""Values and engines of tensor_scalar, scalar_tensor_tensor and reciprocal (isa.md 12.2, 12.3, 12.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.isa.enums import engine, reduce_cmd
from tilelang.isa.operators import register_token

Run = Callable[..., Any]
bf16 = ml_dtypes.bfloat16
F32 = np.float32


def _token(name: str) -> Any:
    def token() -> None: ...

    register_token(token, name)
    return token


RSQRT, SQUARE, RELU, ABS_MAX, ABS_MIN = map(_token, ("rsqrt", "square", "relu", "abs_max", "abs_min"))

ORACLES: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: lambda a, b: a + b,
    np.subtract: lambda a, b: a - b,
    np.multiply: lambda a, b: a * b,
    np.maximum: lambda a, b: a if a > b else b,
    np.minimum: lambda a, b: a if a < b else b,
    np.equal: lambda a, b: F32(a == b),
    np.not_equal: lambda a, b: F32(a != b),
    np.greater: lambda a, b: F32(a > b),
    np.greater_equal: lambda a, b: F32(a >= b),
    np.less: lambda a, b: F32(a < b),
    np.less_equal: lambda a, b: F32(a <= b),
    np.logical_and: lambda a, b: F32(a != 0 and b != 0),
    np.logical_or: lambda a, b: F32(a != 0 or b != 0),
    np.logical_xor: lambda a, b: F32((a != 0) != (b != 0)),
}


def _random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(F32) * F32(1.1) + F32(0.25) * rng.integers(0, 2, shape).astype(F32)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 6),
        ({"reverse0": True}, -6),
        ({"op1": np.subtract, "reverse1": True}, -1),
        ({"op1": None, "operand1": None}, 3),
    ],
)
def test_tensor_scalar_conformance(run: Run, changes: dict[str, Any], expected: int) -> None:
    dst = np.zeros((1, 1), F32)
    arguments = dict(op0=np.subtract, operand0=1, op1=np.multiply, operand1=2)
    run("tensor_scalar", dst=dst, data=np.full((1, 1), 4, F32), **{**arguments, **changes})
    assert dst[0, 0] == expected


@pytest.mark.parametrize("op0", ORACLES)
@pytest.mark.parametrize("reverse", [False, True])
def test_tensor_scalar_operators(run: Run, op0: Any, reverse: bool) -> None:
    """Each operator with a tile and with a number, in both orders, against Python loops."""
    rng = np.random.default_rng(1)
    data, column = _random(rng, 3, 5), _random(rng, 3, 1)
    dst, number = np.zeros((3, 5), F32), np.zeros((3, 5), F32)
    run("tensor_scalar", dst=dst, data=data, op0=op0, operand0=column, reverse0=reverse)
    run("tensor_scalar", dst=number, data=data, op0=op0, operand0=1.1, reverse0=reverse)
    for p in range(3):
        for f in range(5):
            for result, operand in ((dst, column[p, 0]), (number, F32(1.1))):
                pair = (operand, data[p, f]) if reverse else (data[p, f], operand)
                assert result[p, f] == ORACLES[op0](*pair)


def test_no_rounding_between_the_operators(run: Run) -> None:
    dst = np.zeros((1, 1), bf16)
    run(
        "tensor_scalar",
        dst=dst,
        data=np.ones((1, 1), bf16),
        op0=np.add,
        operand0=2.0**-10,
        op1=np.subtract,
        operand1=1.0,
    )
    assert dst[0, 0] == 2.0**-10


def test_output_conversion(run: Run) -> None:
    """isa.md 3.3: to nearest even, saturating; NaN becomes 0."""
    data = np.array([[0.5, 1.5, 2.5, 254.5, 300, -3, np.nan, np.inf]], F32)
    dst = np.zeros((1, 8), np.uint8)
    run("tensor_scalar", dst=dst, data=data, op0=np.multiply, operand0=1)
    assert dst.tolist() == [[0, 2, 2, 254, 255, 0, 0, 255]]


def test_comparisons_with_nan(run: Run) -> None:
    data = np.full((1, 1), np.nan, F32)
    for op, expected in ((np.equal, 0), (np.less, 0), (np.greater_equal, 0), (np.not_equal, 1)):
        dst = np.full((1, 1), 7, F32)
        run("tensor_scalar", dst=dst, data=data, op0=op, operand0=1.0)
        assert dst[0, 0] == expected


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [(np.abs, -3.5, 3.5), (np.logical_not, -3.5, 0), (np.logical_not, 0, 1), (np.reciprocal, 4, 0.25)],
)
def test_unary_operators_ignore_their_operand(run: Run, op: Any, value: float, expected: float) -> None:
    for operand in (None, 0, 0.0):
        dst = np.zeros((2, 2), F32)
        run("tensor_scalar", dst=dst, data=np.full((2, 2), value, F32), op0=op, operand0=operand)
        assert (dst == expected).all()


def test_generation_4_operators(run: Run) -> None:
    data = np.array([[-3, 2, 3, -1]], F32)
    cases = [
        (SQUARE, None, [9, 4, 9, 1]),
        (RELU, None, [0, 2, 3, 0]),
        (ABS_MAX, 2.0, [-3, 2, 3, 2]),
        (ABS_MAX, 3.0, [3, 3, 3, 3]),
        (ABS_MIN, 2.0, [2, 2, 2, -1]),
    ]
    for op, operand, expected in cases:
        dst = np.zeros((1, 4), F32)
        run("tensor_scalar", "trn3", dst=dst, data=data, op0=op, operand0=operand)
        assert dst.tolist() == [expected]


def test_rsqrt_with_epsilon(run: Run) -> None:
    """The norm idiom `(x + eps)^-1/2` in both of its forms."""
    data = np.array([[0.25, 1, 2, 1e-30]], F32)
    for op1, operand1 in ((RSQRT, None), (np.power, -0.5)):
        dst = np.zeros((1, 4), F32)
        run("tensor_scalar", dst=dst, data=data, op0=np.add, operand0=1e-6, op1=op1, operand1=operand1)
        exact = (data.astype(np.float64) + np.float64(F32(1e-6))) ** -0.5
        np.testing.assert_allclose(dst, exact, rtol=3 * 2.0**-24)


WORDS = [0xD2511F53, 2**24 + 1, 2**32 - 1, 0, 2**31]


@pytest.mark.parametrize("op", [np.add, np.subtract, np.multiply, np.maximum, np.minimum])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("operand", [3, -7, 0xD2511F53])
def test_exact_integer_form(run: Run, op: Any, dtype: Any, operand: int) -> None:
    """32-bit data, dst and operands: exact, modulo 2^32 (isa.md 12.2, "address arithmetic")."""
    data = np.array([WORDS], np.uint32).view(dtype)
    dst, from_tile = np.zeros((1, 5), dtype), np.zeros((1, 5), dtype)
    bits = np.array([[operand % 2**32]], np.uint32).view(dtype)
    run("tensor_scalar", dst=dst, data=data, op0=op, operand0=operand, reverse0=True)
    run("tensor_scalar", dst=from_tile, data=data, op0=op, operand0=bits, reverse0=True)
    second = int(bits[0, 0])
    arithmetic = {np.add: lambda a, b: a + b, np.subtract: lambda a, b: a - b, np.multiply: lambda a, b: a * b}
    exact = arithmetic | {np.maximum: max, np.minimum: min}
    expected = [exact[op](second, int(x)) % 2**32 for x in data[0]]
    assert [int(x) % 2**32 for x in dst[0]] == expected
    assert (from_tile == dst).all()


def test_two_exact_steps(run: Run) -> None:
    dst = np.zeros((1, 1), np.int32)
    run(
        "tensor_scalar",
        dst=dst,
        data=np.full((1, 1), 2**24 + 1, np.int32),
        op0=np.multiply,
        operand0=5,
        op1=np.add,
        operand1=1,
    )
    assert dst[0, 0] == 5 * (2**24 + 1) + 1


@pytest.mark.parametrize(
    "changes", [{"operand0": 1.0}, {"op0": np.greater, "operand0": 2**24}, {"dst": np.zeros((1, 1), F32)}]
)
def test_other_integers_go_through_float32(run: Run, changes: dict[str, Any]) -> None:
    arguments = (
        dict(dst=np.zeros((1, 1), np.int32), data=np.full((1, 1), 2**24 + 1, np.int32), op0=np.add, operand0=0)
        | changes
    )
    run("tensor_scalar", **arguments)
    assert arguments["dst"][0, 0] == (0 if arguments["op0"] is np.greater else 2**24)


BITVEC: dict[Any, Callable[[int, int, int], int]] = {
    np.bitwise_and: lambda a, b, bits: a & b,
    np.bitwise_or: lambda a, b, bits: a | b,
    np.bitwise_xor: lambda a, b, bits: a ^ b,
    np.left_shift: lambda a, b, bits: (a << b) % 2**bits if b < bits else 0,
    np.right_shift: lambda a, b, bits: a >> b if b < bits else 0,
}


@pytest.mark.parametrize("op", BITVEC)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("reverse", [False, True])
def test_bit_operators(run: Run, op: Any, dtype: Any, reverse: bool) -> None:
    """Raw bits, also of signed types; a shift by the width or more gives 0."""
    width = 8 * np.dtype(dtype).itemsize
    unsigned = f"uint{width}"
    data = np.array([[0, 1, 2, 7, width - 1, width, 2 ** (width - 1), 2**width - 1]], unsigned)
    for operand in (0, 1, width - 1, width, 2**width - 1):
        dst = np.zeros((1, 8), dtype)
        run("tensor_scalar", dst=dst, data=data.view(dtype), op0=op, operand0=operand, reverse0=reverse)
        pairs = [(operand, int(x)) if reverse else (int(x), operand) for x in data[0]]
        assert dst.view(unsigned).tolist() == [[BITVEC[op](a, b, width) for a, b in pairs]]


def test_bit_operators_in_a_row(run: Run) -> None:
    """Field 13:19 of a word, and a per-partition shift of another signedness."""
    data = np.array([[0xDEADBEEF], [0x12345678]], np.uint32)
    dst = np.zeros((2, 1), np.uint32)
    run("tensor_scalar", dst=dst, data=data, op0=np.right_shift, operand0=13, op1=np.bitwise_and, operand1=0x3F)
    assert dst.tolist() == [[0xDEADBEEF >> 13 & 0x3F], [0x12345678 >> 13 & 0x3F]]
    run("tensor_scalar", dst=dst, data=data, op0=np.left_shift, operand0=np.array([[4], [8]], np.int32))
    assert dst.tolist() == [[0xEADBEEF0], [0x34567800]]
    run("tensor_scalar", dst=dst, data=data, op0=np.invert, operand0=None)
    assert dst.tolist() == [[~0xDEADBEEF % 2**32], [~0x12345678 % 2**32]]


def test_in_place_and_discarded_destination(run: Run) -> None:
    data = np.arange(8, dtype=F32).reshape(2, 4)
    run("tensor_scalar", dst=data, data=data, op0=np.add, operand0=1.0)
    assert data.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    column = np.zeros((2, 1), F32)
    view = np.lib.stride_tricks.as_strided(column, (2, 4), (4, 0))
    run("tensor_scalar", dst=view, data=data, op0=np.multiply, operand0=10.0)
    assert column.tolist() == [[40], [80]]  # the last element in order wins (AP.R7)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (dict(op0=np.add), "vector"),
        (dict(op0=RSQRT, operand0=0), "gpsimd"),
        (dict(op0=np.power, operand0=-0.5), "gpsimd"),
        (dict(op0=np.add, op1=RSQRT), "gpsimd"),
        (dict(op0=RSQRT, operand0=None, engine=engine.vector), "vector"),
        (dict(op0=np.add, engine=engine.scalar), "scalar"),
    ],
)
def test_tensor_scalar_engine(call: Run, arguments: dict[str, Any], expected: str) -> None:
    tile = "sbuf float32[4,8]"
    assert call("tensor_scalar", dst=tile, data=tile, **{"operand0": 1.0, **arguments}).engine == expected


@pytest.mark.parametrize("seed", range(40))
def test_scalar_tensor_tensor_values(run: Run, seed: int) -> None:
    """op1(op0(data, operand0), operand1), one rounding each, with both reverse flags, and the running reduction."""
    rng = np.random.default_rng(seed)
    operators = [np.add, np.subtract, np.multiply, np.maximum, np.minimum]
    op0, op1 = (operators[i] for i in rng.integers(0, 5, 2))
    reduce_op = [np.add, np.multiply, np.maximum, np.minimum][rng.integers(0, 4)]
    reverse0, reverse1 = (bool(b) for b in rng.integers(0, 2, 2))
    data, tile = (rng.standard_normal((2, 6)).astype(F32) for _ in range(2))
    column = rng.standard_normal((2, 1)).astype(F32)
    dst, total = np.zeros((2, 6), F32), np.zeros((2, 1), F32)
    run(
        "scalar_tensor_tensor", dst=dst, data=data, op0=op0, operand0=column, op1=op1, operand1=tile, reverse0=reverse0,
        reverse1=reverse1, reduce_op=reduce_op, reduce_res=total,
    )  # fmt: skip
    for p in range(2):
        running = {np.add: F32(0), np.multiply: F32(1), np.maximum: F32(-np.inf), np.minimum: F32(np.inf)}[reduce_op]
        for f in range(6):
            a, b = data[p, f], column[p, 0]
            step = ORACLES[op0](b, a) if reverse0 else ORACLES[op0](a, b)
            result = ORACLES[op1](tile[p, f], step) if reverse1 else ORACLES[op1](step, tile[p, f])
            assert dst[p, f] == result
            running = ORACLES[reduce_op](running, result)
        assert total[p, 0] == running


def test_scalar_tensor_tensor_accumulates(run: Run) -> None:
    """Every call leaves its sum in the registers; `reduce` continues from there (nki-0.7.md 2.6)."""
    data, total = np.array([[1, 2, 3]], F32), np.zeros((1, 1), F32)
    arguments = dict(dst=np.zeros((1, 3), F32), data=data, op0=np.multiply, operand0=2, op1=np.add, operand1=data)
    machine = run("scalar_tensor_tensor", **arguments)
    assert machine.dve[0] == 18
    run("scalar_tensor_tensor", machine=machine, reduce_cmd=reduce_cmd.reduce, reduce_res=total, **arguments)
    assert total[0, 0] == 36


def test_reciprocal(run: Run) -> None:
    """Correctly rounded: float64 division of float32 values rounds innocuously."""
    rng = np.random.default_rng(3)
    data = np.concatenate([rng.standard_normal(500), [0.0, -0.0, np.inf, -np.inf, 3.0, 1e-39, 3e38]]).astype(F32)[
        None, :
    ]
    dst, half = np.zeros_like(data), np.zeros(data.shape, bf16)
    run("reciprocal", dst=dst, data=data)
    run("reciprocal", dst=half, data=data)
    with np.errstate(divide="ignore", over="ignore"):
        exact = (1 / data.astype(np.float64)).astype(F32)
    assert (dst.view(np.uint32) == exact.view(np.uint32)).all()
    assert (half == exact.astype(bf16)).all()


B16, F4, PS = "sbuf bfloat16[4,1024]", "sbuf float32[4,1024]", "psum bfloat16[4,1024]"
F8 = "sbuf float8_e4m3[4,1024]"


@pytest.mark.parametrize(
    ("target", "dst", "data", "changes", "cycles"),
    [
        ("trn1", B16, B16, {}, 1024),
        ("trn2", B16, B16, {}, 256),
        ("trn2", B16, "sbuf float16[4,1024]", {}, 256),
        ("trn2", PS, B16, {}, 512),
        ("trn2", F4, B16, {}, 1024),
        ("trn2", F8, F8, {}, 1024),
        ("trn3", F8, F8, {}, 256),
        ("trn2", B16, B16, dict(op0=RSQRT, operand0=0), 150 + 4096),
        ("trn2", B16, B16, dict(engine=engine.scalar), 1024),
        ("trn3", B16, B16, dict(engine=engine.scalar), 512),
        ("trn2", "sbuf bfloat16[4,8]", "sbuf bfloat16[4,8]", {}, 64),
    ],
)
def test_tensor_scalar_cost(
    call: Run, target: str, dst: str, data: str, changes: dict[str, Any], cycles: float
) -> None:
    bound = call("tensor_scalar", target, dst=dst, data=data, **{"op0": np.add, "operand0": 1.0, **changes})
    assert bound.spec.cost(bound) == cycles


def test_other_costs(call: Run) -> None:
    fast = dict(dst=B16, data=B16, op0=np.subtract, operand0=1.0, op1=np.multiply, operand1=B16)
    for changes, cycles in (
        ({}, 1024),
        ({"op1": np.add}, 2048),
        ({"data": F4}, 2048),
        ({"reduce_res": "sbuf float32[4,1]"}, 1088),
    ):
        bound = call("scalar_tensor_tensor", **{**fast, **changes})
        assert bound.spec.cost(bound) == cycles
    bound = call("reciprocal", dst=F4, data=F4)
    assert bound.spec.cost(bound) == 1024
