"""Running reductions, fast exponentials and activate2: all modes agree, and give what their definitions say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.conformance.harness import FLOATS, ndarray, result_of, rng_for, run_everywhere, sample, tile_of, token
from tilelang.isa.operators import ACTIVATIONS

CMD = nisa.reduce_cmd
F32 = np.float32
SHAPE = (70, 9)


def same(ours: NDArray[Any], expected: NDArray[Any]) -> None:
    """Equal bits where they are numbers."""
    np.testing.assert_array_equal(ours, np.asarray(expected, ours.dtype))


STEPS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": np.fmax,
    "minimum": np.fmin,
}
START = {"add": 0, "subtract": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf}


@pytest.mark.parametrize("op1", STEPS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int8", "uint16"])
@pytest.mark.parametrize("tile", [False, True])
def test_tensor_scalar_cumulative(op1: str, dtype: str, tile: bool) -> None:
    rng = rng_for(op1, dtype, tile)
    x = rng.integers(0, 5, SHAPE).astype(F32)
    host = nl_host(dtype)
    column = rng.integers(-3, 4, (SHAPE[0], 1)).astype(F32)

    def kernel(a: Any, c: Any) -> Any:
        src, imm = tile_of(a, "sbuf"), tile_of(c, "sbuf") if tile else 2.0
        out, more, last = (ndarray(SHAPE, "float32") for _ in range(3))
        nisa.tensor_scalar_cumulative(dst=out, src=src, op0=nl.add, op1=token(op1), imm0=imm)
        nisa.tensor_scalar_cumulative(more, src, nl.subtract, token(op1), imm, reduce_cmd=CMD.reduce)
        nisa.tensor_scalar_cumulative(last, src, nl.abs, token(op1), None, imm, CMD.load_reduce)
        return result_of(out), result_of(more), result_of(last)

    results = run_everywhere(kernel, (x.astype(host), column))
    imm = column[:, 0] if tile else np.full(SHAPE[0], F32(2))
    state = np.full(SHAPE[0], START[op1], F32)
    expected = []
    for step in (lambda v: v + imm, lambda v: v - imm, np.abs):
        if step is np.abs:
            state = imm
        rows = np.empty(SHAPE, F32)
        for f in range(SHAPE[1]):
            state = STEPS[op1](step(x[:, f]), state).astype(F32)
            rows[:, f] = state
        expected.append(rows)
    for ours, wanted in zip(results, expected, strict=True):
        same(ours, wanted)


def nl_host(dtype: str) -> Any:
    from tilelang.dtypes import FORMATS

    return FORMATS[dtype].host


def test_vectors_of_tensor_scalar_cumulative() -> None:
    """isa.md section 18."""
    x = np.array([[1, 2, 3, 4]], F32)
    for op1, expected in ((nl.subtract, [1, 1, 2, 2]), (nl.add, [1, 3, 6, 10])):

        def kernel(a: Any, op1: Any = op1) -> Any:
            src, out = tile_of(a, "sbuf"), ndarray((1, 4), "float32")
            nisa.tensor_scalar_cumulative(dst=out, src=src, op0=nl.add, op1=op1, imm0=0.0)
            return result_of(out)

        same(run_everywhere(kernel, (x,))[0][0], np.array(expected, F32))


@pytest.mark.parametrize("op1", STEPS)
def test_cumulative_modes_agree_on_special_values(op1: str) -> None:
    x = sample(rng_for(op1), (128, 600), "float32", 0.05)

    def kernel(a: Any) -> Any:
        src, out = tile_of(a, "sbuf"), ndarray((128, 600), "bfloat16")
        nisa.tensor_scalar_cumulative(dst=out, src=src, op0=nl.multiply, op1=token(op1), imm0=0.5)
        nisa.tensor_scalar_cumulative(dst=src, src=src, op0=nl.multiply, op1=token(op1), imm0=0.5)
        return result_of(out), result_of(src)

    run_everywhere(kernel, (x,))


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int8", "int32", "uint16"]
)
@pytest.mark.parametrize("out", ["float32", "bfloat16", "float8_e5m2", "tfloat32", "int16"])
def test_exponential(dtype: str, out: str) -> None:
    rng = rng_for(dtype, out)
    x = rng.integers(0, 6, SHAPE).astype(nl_host(dtype))
    peak = rng.integers(4, 8, (SHAPE[0], 1)).astype(F32)

    def kernel(a: Any, m: Any) -> Any:
        src, top, result = tile_of(a, "sbuf"), tile_of(m, "sbuf"), ndarray(SHAPE, out)
        sums = [ndarray((SHAPE[0], 1), "float32") for _ in range(3)]
        nisa.exponential(dst=result, src=src, max_value=top, reduce_res=sums[0], reduce_cmd=CMD.reset_reduce)
        nisa.exponential(dst=result, src=src, max_value=top, reduce_res=sums[1], reduce_cmd=CMD.reduce)
        nisa.exponential(result, src, top, sums[2], CMD.load_reduce, 10.0)
        plain = ndarray(SHAPE, "float32")
        nisa.exponential(dst=plain, src=src)
        return result_of(plain), result_of(result), *map(result_of, sums)

    plain, result, *sums = run_everywhere(kernel, (x, peak), target="trn3")
    wide = x.astype(np.float64)
    np.testing.assert_allclose(plain, np.exp(wide), rtol=3e-7)
    values = np.exp(wide - peak)
    steps = {"bfloat16": 2.0**-8, "float8_e5m2": 2.0**-3, "tfloat32": 2.0**-11, "float32": 3e-7}
    if out == "int16":
        np.testing.assert_allclose(result, values, atol=0.5 + 1e-6)
    else:
        np.testing.assert_allclose(result.astype(np.float64), values, rtol=1.01 * steps[out])
    total = values.sum(1, keepdims=True)
    for ours, expected in zip(sums, (total, 2 * total, total + 10), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=3e-6)


def test_exponential_of_special_values() -> None:
    x = sample(rng_for("exp"), (128, 700), "float32", 0.2)

    def kernel(a: Any) -> Any:
        src, sums = tile_of(a, "sbuf"), ndarray((128, 1), "bfloat16")
        nisa.exponential(dst=src, src=src, max_value=1.5, reduce_res=sums, reduce_cmd=CMD.reset_reduce)
        return result_of(src), result_of(sums)

    run_everywhere(kernel, (x,), target="trn3")


PAIRS = [
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
]
ACTIVATE_OPS = {"multiply": lambda a, b: a * b, "add": lambda a, b: a + b, "subtract": lambda a, b: a - b}


@pytest.mark.parametrize("pair", [*PAIRS, ("bypass", "bypass")], ids="-".join)
@pytest.mark.parametrize("reverse", list(itertools.product([False, True], repeat=2)), ids=str)
@pytest.mark.parametrize("tile", ["float32", "bfloat16", "int8", None])
def test_activate2_steps(pair: tuple[str, str], reverse: tuple[bool, bool], tile: str | None) -> None:
    swap0, swap1 = reverse[0] and pair[0] != "bypass", reverse[1] and pair[1] != "bypass"
    rng = rng_for(pair, reverse, tile)
    x = rng.integers(-9, 9, SHAPE).astype(F32)
    c, d = rng.integers(-5, 6, (2, SHAPE[0], 1)).astype(nl_host(tile or "float32"))

    def kernel(a: Any, p: Any, q: Any) -> Any:
        data, out = tile_of(a, "sbuf"), ndarray(SHAPE, "float32")
        imm0, imm1 = (tile_of(p, "sbuf"), tile_of(q, "sbuf")) if tile else (3.0, -2.0)
        nisa.activate2(
            dst=out, op=nl.copy, data=data, imm0=imm0, imm1=imm1, op0=token(pair[0]), op1=token(pair[1]),
            reverse0=swap0, reverse1=swap1,
        )  # fmt: skip
        return result_of(out)

    (ours,) = run_everywhere(kernel, (x, c, d), target="trn3")
    expected = x
    for op, swap, column, number in ((pair[0], swap0, c, F32(3)), (pair[1], swap1, d, F32(-2))):
        if op != "bypass":
            other = column.astype(F32) if tile else number
            expected = ACTIVATE_OPS[op](other, expected) if swap else ACTIVATE_OPS[op](expected, other)
    same(ours, expected)


@pytest.mark.parametrize("form", ["add", "subtract", "reverse"])
def test_activate2_multiplies_and_adds_with_one_rounding(form: str) -> None:
    x, scale, bias = F32(1 + 2**-12), F32(1 + 2**-12), F32(1)

    def kernel(a: Any) -> Any:
        data, out = tile_of(a, "sbuf"), ndarray((1, 1), "float32")
        op1, swap = (nl.add, False) if form == "add" else (nl.subtract, form == "reverse")
        nisa.activate2(
            out,
            nl.copy,
            data,
            float(scale),
            float(-bias if form == "add" else bias),
            nl.multiply,
            op1,
            0.0,
            False,
            swap,
        )
        return result_of(out)

    exact = np.float64(x) * np.float64(scale) - 1
    (ours,) = run_everywhere(kernel, (np.array([[x]]),), target="trn3")
    assert ours[0, 0] == F32(-exact if form == "reverse" else exact)


REDUCE = {
    "add": lambda a, b: a + b,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "abs_max": lambda a, b: np.where(np.abs(a) > np.abs(b), a, b),
    "abs_min": lambda a, b: np.where(np.abs(a) < np.abs(b), a, b),
}
FIRST = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "abs_max": 0.0, "abs_min": np.inf}


@pytest.mark.parametrize("op", REDUCE)
def test_activate2_reduces(op: str) -> None:
    x = rng_for(op).integers(-9, 10, (128, 33)).astype(F32)

    def kernel(a: Any) -> Any:
        data, out = tile_of(a, "sbuf"), ndarray((128, 33), "bfloat16")
        sums = [ndarray((128, 1), "float32") for _ in range(4)]
        for sum_, command in zip(sums, (CMD.reset_reduce, CMD.reduce, CMD.idle, CMD.reset), strict=True):
            nisa.activate2(
                dst=out, op=nl.copy, data=data, imm0=-1.0 if command is CMD.reduce else 1.0, imm1=None, op0=nl.multiply,
                op1=nl.bypass, reduce_op=token(op), reduce_res=sum_, reduce_cmd=command,
            )  # fmt: skip
        return tuple(map(result_of, sums))

    state = np.full(128, FIRST[op], F32)
    expected = []
    for sign in (1, -1):
        for f in range(33):
            state = REDUCE[op](state, F32(sign) * x[:, f])
        expected.append(state)
    expected += [state, np.full(128, FIRST[op], F32)]
    for ours, wanted in zip(run_everywhere(kernel, (x,), target="trn3"), expected, strict=True):
        same(ours[:, 0], wanted)


@pytest.mark.parametrize("engine", [nisa.engine.scalar, nisa.engine.gpsimd])
@pytest.mark.parametrize("op", ACTIVATIONS)
def test_activate2_functions(op: str, engine: Any) -> None:
    """As `activation` does, which is compared with mpmath elsewhere; prelu with its slope."""
    x = sample(rng_for(op), (128, 40), "float32")
    slope = sample(rng_for(op, 1), (128, 1), "float32", 0.0)

    def kernel(a: Any, s: Any) -> Any:
        data, out, other = tile_of(a, "sbuf"), ndarray((128, 40), "float32"), ndarray((128, 40), "float32")
        nisa.activate2(
            dst=out, op=token(op), data=data, imm0=0.5, imm1=0.25, op0=nl.multiply, op1=nl.add,
            relu_param=tile_of(s, "sbuf"), engine=engine,
        )  # fmt: skip
        if op == "prelu":
            nisa.activation(dst=other, op=nl.copy, data=data, bias=0.25, scale=0.5)
        else:
            nisa.activation(dst=other, op=token(op), data=data, bias=0.25, scale=0.5)
        return result_of(out), result_of(other)

    ours, other = run_everywhere(kernel, (x, slope), target="trn3")
    if op == "prelu":
        with np.errstate(all="ignore"):
            other = np.where(other >= 0, other, np.where(np.isnan(other), other, slope * other))
    np.testing.assert_array_equal(ours, other)


@pytest.mark.parametrize("dtype", FLOATS)
def test_activate2_casts(dtype: str) -> None:
    x = sample(rng_for(dtype), (64, 50), "float32")

    def kernel(a: Any) -> Any:
        data, out = tile_of(a, "sbuf"), ndarray((64, 50), dtype)
        nisa.activate2(dst=out, op=nl.tanh, data=data, imm0=2.0, imm1=0, op0=nl.subtract, op1=nl.bypass, reverse0=True)
        return result_of(out)

    run_everywhere(kernel, (x,), target="trn3")


def test_instructions_of_generation_4_say_so() -> None:
    for call in (
        lambda t: nisa.exponential(dst=t, src=t),
        lambda t: nisa.activate2(t, nl.exp, t, None, None, nl.bypass, nl.bypass),
    ):

        def kernel(a: Any, call: Any = call) -> Any:
            tile = tile_of(a, "sbuf")
            call(tile)
            return result_of(tile)

        with pytest.raises(tilelang.errors.TileRuleError, match="generation 4"):
            tilelang.simulate(kernel, target="trn2")(np.zeros((2, 2), F32))
