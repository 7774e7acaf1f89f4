"""Values of the wrappers against NumPy, the same bits in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilelang.execute.native.bodies  # noqa: F401  (registers the native bodies)
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang import simulate
from tilelang.execute.native import NATIVE

MODES = ("native", "reference", "debug")
Array = NDArray[Any]
pytestmark = pytest.mark.filterwarnings("ignore::tilelang.errors.TileWarning")

_rng = np.random.default_rng(7)
A = _rng.standard_normal((128, 24)).astype(np.float32)
B = _rng.standard_normal((128, 24)).astype(np.float32)
POSITIVE = np.abs(A) + np.float32(0.25)
COLUMN = _rng.standard_normal((128, 1)).astype(np.float32)
ROW = _rng.standard_normal((1, 24)).astype(np.float32)
HALF = A.astype(ml_dtypes.bfloat16)
I32 = _rng.integers(-(2**30), 2**30, (128, 24)).astype(np.int32)
U8 = _rng.integers(0, 256, (128, 24)).astype(np.uint8)
FLAGS = (A > 0).astype(np.float32)


def kernel(body: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that loads its arguments, applies `body` and stores the tile it returns."""

    def run(*args: Any) -> Any:
        result = body(*[nl.load(arg) for arg in args])
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return run


def in_all_modes(function: Callable[..., Any], *args: Array, modes: tuple[str, ...] = MODES) -> Array:
    """The result of `function`, after comparing the bits of all modes."""
    results = [simulate(function, mode=mode)(*args) for mode in modes]
    for mode, result in zip(modes, results, strict=True):
        assert result.dtype == results[0].dtype and result.tobytes() == results[0].tobytes(), mode
    first: Array = results[0]
    return first


def cube(x: Any) -> Any:
    return x.reshape((128, 4, 6))


EXACT: dict[str, tuple[Callable[..., Any], tuple[Array, ...], Array]] = {
    "add": (nl.add, (A, B), A + B),
    "subtract a column": (nl.subtract, (A, COLUMN), A - COLUMN),
    "column minus": (nl.subtract, (COLUMN, A), COLUMN - A),
    "multiply by a row": (nl.multiply, (A, ROW), A * ROW),
    "number minus": (lambda x: nl.subtract(2, x), (A,), np.float32(2) - A),
    "maximum": (nl.maximum, (A, B), np.maximum(A, B)),
    "minimum with a number": (lambda x: nl.minimum(x, 0.5), (A,), np.minimum(A, np.float32(0.5))),
    "int32 add wraps": (lambda x: nl.add(x, 2**30), (I32,), I32 + np.int32(2**30)),
    "int32 multiply": (nl.multiply, (I32, I32), I32 * I32),
    "bf16 and float32": (nl.add, (HALF, B), HALF.astype(np.float32) + B),
    "bf16 and number": (lambda x: nl.add(x, 1.0), (HALF,), (HALF.astype(np.float32) + 1).astype(ml_dtypes.bfloat16)),
    "less": (nl.less, (A, B), (A < B).astype(np.float32)),
    "greater_equal as flags": (lambda x: nl.greater_equal(x, 0, dtype=nl.uint8), (A,), (A >= 0).astype(np.uint8)),
    "not_equal": (lambda x: nl.not_equal(x, 3), (U8,), (U8 != 3).astype(np.uint8)),
    "bitwise_and": (lambda x: nl.bitwise_and(x, 0x0F), (U8,), U8 & 0x0F),
    "bitwise_xor": (nl.bitwise_xor, (I32, I32), I32 ^ I32),
    "invert": (nl.invert, (U8,), ~U8),
    "invert int32": (nl.invert, (I32,), ~I32),
    "left_shift": (lambda x: nl.left_shift(x, 3), (I32,), I32 << 3),
    "right_shift is logical": (lambda x: nl.right_shift(x, 3), (I32,), (I32.view(np.uint32) >> 3).view(np.int32)),
    "logical_or": (nl.logical_or, (FLAGS, FLAGS), FLAGS),
    "logical_not": (nl.logical_not, (FLAGS,), 1 - FLAGS),
    "negative": (nl.negative, (A,), -A),
    "abs": (nl.abs, (A,), np.abs(A)),
    "square": (nl.square, (A,), A * A),
    "relu": (nl.relu, (A,), np.maximum(A, 0)),
    "sign": (nl.sign, (A,), np.sign(A)),
    "reciprocal": (nl.reciprocal, (A,), 1 / A),
    "max": (lambda x: nl.max(x, axis=1), (A,), A.max(1, keepdims=True)),
    "min over two dims": (lambda x: nl.min(cube(x), axis=[1, 2]), (A,), A.min(1, keepdims=True)),
    "max keeps dims": (
        lambda x: nl.max(cube(x), axis=2, keepdims=True),
        (A,),
        A.reshape(128, 4, 6).max(2, keepdims=True),
    ),
    "sum in order": (lambda x: nl.sum(x, axis=1), (A,), np.cumsum(A, axis=1, dtype=np.float32)[:, -1:]),
    "prod in order": (lambda x: nl.prod(x, axis=1), (A,), np.cumprod(A, axis=1, dtype=np.float32)[:, -1:]),
    "all": (lambda x: nl.all(x, axis=1), (FLAGS,), FLAGS.all(1, keepdims=True).astype(np.float32)),
    "copy casts": (lambda x: nl.copy(x, dtype=nl.bfloat16), (A,), HALF),
    "transpose": (nl.transpose, (A,), A.T),
    "two PSUM tiles": (lambda x, y: nl.add(nl.transpose(x), nl.transpose(y)), (A, B), (A + B).T),
    "broadcast_to": (lambda x: nl.broadcast_to(x, (100, 24)), (ROW,), np.broadcast_to(ROW, (100, 24))),
    "broadcast_to free": (lambda x: nl.broadcast_to(x, (128, 9)), (COLUMN,), np.broadcast_to(COLUMN, (128, 9))),
    "where tiles": (nl.where, (FLAGS, A, B), np.where(FLAGS != 0, A, B)),
    "where numbers": (lambda c: nl.where(c, 1.5, -2), (FLAGS,), np.where(FLAGS != 0, 1.5, -2).astype(np.float32)),
    "where rows": (lambda c, x: nl.where(c, x, 0), (U8, ROW), np.where(U8 != 0, ROW, 0)),
    "identity": (
        lambda x: nl.multiply(x[0:24], nl.shared_identity_matrix(24, dtype=nl.float32)),
        (A,),
        A[:24] * np.eye(24, dtype=np.float32),
    ),
    "full": (lambda x: nl.add(x, nl.full((128, 24), 2.5, nl.float32)), (A,), A + np.float32(2.5)),
    "expand_dims": (lambda x: nl.expand_dims(x, 1), (A,), A[:, None, :]),
    "matmul by ones": (
        lambda x: nl.matmul(x, nl.ones((128, 3), nl.float32), transpose_x=True),
        (FLAGS,),
        FLAGS.sum(0)[:, None] + np.zeros((1, 3), np.float32),
    ),
}


@pytest.mark.parametrize("case", EXACT)
def test_exact_values(case: str) -> None:
    body, args, expected = EXACT[case]
    result = in_all_modes(kernel(body), *args)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(
        np.asarray(result, np.float64), np.asarray(expected, np.float64).reshape(result.shape)
    )


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


wide = A.astype(np.float64)
CLOSE: dict[str, tuple[Callable[..., Any], tuple[Array, ...], Array]] = {
    "exp": (nl.exp, (A,), np.exp(wide)),
    "log": (nl.log, (POSITIVE,), np.log(POSITIVE.astype(np.float64))),
    "sqrt": (nl.sqrt, (POSITIVE,), np.sqrt(POSITIVE.astype(np.float64))),
    "rsqrt": (nl.rsqrt, (POSITIVE,), POSITIVE.astype(np.float64) ** -0.5),
    "tanh": (nl.tanh, (A,), np.tanh(wide)),
    "sigmoid": (nl.sigmoid, (A,), sigmoid(wide)),
    "silu": (nl.silu, (A,), wide * sigmoid(wide)),
    "power": (nl.power, (POSITIVE, B), POSITIVE.astype(np.float64) ** B),
    "mean": (lambda x: nl.mean(x, axis=1), (A,), wide.mean(1, keepdims=True)),
    "var": (lambda x: nl.var(x, axis=1), (A,), wide.var(1, keepdims=True)),
    "var of the last dim": (lambda x: nl.var(cube(x), axis=2), (A,), wide.reshape(128, 4, 6).var(2, keepdims=True)),
    "softmax": (nl.softmax, (A,), softmax(wide)),
    "softmax of the last dim": (lambda x: nl.softmax(cube(x), axis=2), (A,), softmax(wide.reshape(128, 4, 6))),
    "rms_norm": (
        lambda x, w: nl.rms_norm(x, w, axis=1, n=24, epsilon=0.1),
        (A, ROW),
        wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 0.1) * ROW,
    ),
    "matmul": (nl.matmul, (A[:24].copy(), B[:24].copy()), A[:24].astype(np.float64) @ B[:24]),
    "matmul transposed": (lambda x, y: nl.matmul(x, y, transpose_x=True), (A, B), wide.T @ B),
}


@pytest.mark.parametrize("case", CLOSE)
def test_close_values(case: str) -> None:
    body, args, expected = CLOSE[case]
    tolerance = 2e-5 if "matmul" in case else 2e-6  # sums of up to 128 products
    np.testing.assert_allclose(in_all_modes(kernel(body), *args), expected, rtol=tolerance, atol=tolerance)


# The native engines need not have what no device has.
SIMULATED_MODES = MODES if {"simulated_binary", "simulated_unary"} <= set(NATIVE) else MODES[1:]
SIMULATED: dict[str, tuple[Callable[..., Any], tuple[Array, ...], Array]] = {
    "divide": (nl.divide, (A, B), A / B),
    "number divided": (lambda x: nl.divide(1.5, x), (A,), np.float32(1.5) / A),
    "divide by a column": (nl.divide, (A, COLUMN), A / COLUMN),
    "mod": (lambda x: nl.mod(x, 0.75), (A,), np.mod(A, np.float32(0.75))),
    "fmod": (nl.fmod, (A, B), np.fmod(A, B)),
    "power": (lambda x: nl.power(x, 2.5), (POSITIVE,), POSITIVE.astype(np.float64) ** 2.5),
    "ceil": (nl.ceil, (A,), np.ceil(A)),
    "floor": (nl.floor, (A,), np.floor(A)),
    "trunc": (nl.trunc, (A,), np.trunc(A)),
    "sin": (lambda x: nl.sin(nl.multiply(x, 100.0)), (A,), np.sin((A * np.float32(100)).astype(np.float64))),
    "cos": (nl.cos, (A,), np.cos(wide)),
    "tan": (nl.tan, (A,), np.tan(wide)),
}


@pytest.mark.parametrize("case", SIMULATED)
def test_simulated_values(case: str) -> None:
    body, args, expected = SIMULATED[case]
    result = in_all_modes(kernel(body), *args, modes=SIMULATED_MODES)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


def test_tensors_filled_in_hbm() -> None:
    def fills(x: Any) -> Any:
        halves = nl.zeros((130, 3000), nl.bfloat16, buffer=nl.shared_hbm)
        numbers = nl.full((7, 11), 3.5, nl.float32, buffer=nl.shared_hbm)
        numbers[2, :] = 9
        return halves, numbers, nl.ones((3, 128, 64), nl.int32, buffer=nl.shared_hbm)

    expected = np.full((7, 11), 3.5, np.float32)
    expected[2] = 9
    for mode in MODES:
        halves, numbers, ones = simulate(fills, mode=mode)(A)
        assert halves.shape == (130, 3000) and not halves.any()
        np.testing.assert_array_equal(numbers, expected)
        assert ones.dtype == np.int32 and (ones == 1).all()


def test_assignment() -> None:
    def assigns(x: Any) -> Any:
        tile = nl.ndarray((128, 24), nl.bfloat16)
        tile[...] = nl.load(x)
        tile[:, 0:2] = 5
        tile[:, 2:6] = nl.load(x)[:, 0:1]
        landed = nl.ndarray((128, 24), nl.float32, buffer=nl.psum)
        landed[...] = x
        out = nl.ndarray((128, 24), nl.float32, buffer=nl.shared_hbm)
        out[...] = tile
        out[:, 10:24] = landed[:, 10:24]
        return out

    expected = HALF.astype(np.float32)
    expected[:, 2:6] = expected[:, 0:1]
    expected[:, 0:2] = 5
    expected[:, 10:] = A[:, 10:]
    np.testing.assert_array_equal(in_all_modes(assigns, A), expected)


@pytest.mark.parametrize("mode", ["reference", "debug"])
def test_shared_constant(mode: str) -> None:
    table = np.arange(128 * 24, dtype=np.float32).reshape(128, 24)

    def adds(x: Any) -> Any:
        out = nl.ndarray((128, 24), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.load(x), nl.load(nl.shared_constant(table))))
        return out

    np.testing.assert_array_equal(simulate(adds, mode=mode)(A), A + table)


def test_load_transpose2d() -> None:
    def transposes(x: Any) -> Any:
        out = nl.ndarray((24, 128), nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x, dtype=nl.bfloat16))
        return out

    np.testing.assert_array_equal(in_all_modes(transposes, A).astype(np.float32), HALF.T.astype(np.float32))


def test_a_name_may_be_none() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=None)
        tile = nl.zeros(x.shape, x.dtype, buffer=nl.sbuf, name=None)
        nisa.dma_copy(dst=tile, src=x, name=None)
        nisa.dma_copy(dst=out, src=tile)
        return out

    x = np.ones((4, 8), np.float32)
    assert np.array_equal(simulate(kernel)(x), x)
