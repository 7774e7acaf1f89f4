"""Values of activation and activation_reduce (isa.md 13.1, 13.2, 4.2, 2.4; nki-0.7.md 2.6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.isa.enums import engine, reduce_cmd
from tilelang.isa.operators import register_token

Run = Callable[..., Any]
F32 = np.float32
bf16 = ml_dtypes.bfloat16


def _token(name: str) -> Any:
    def token() -> None: ...

    register_token(token, name)
    return token


def _nearest(exact: Fraction) -> Any:
    """`exact`, in the normal range of float32, to nearest even."""
    start = F32(float(exact))
    near = [np.nextafter(start, F32(-np.inf)), start, np.nextafter(start, F32(np.inf))]
    return min(near, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _distribution(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


FORMULAS: dict[str, Callable[[float], float]] = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": _sigmoid,
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * _distribution(x),
    "gelu_dx": lambda x: _distribution(x) + x * _density(x),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: _sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - _sigmoid(1.702 * x))),
    "silu": lambda x: x * _sigmoid(x),
    "silu_dx": lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    "tanh": math.tanh,
    "softplus": lambda x: math.log1p(math.exp(x)),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "erf": math.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "exp": math.exp,
    "log": lambda x: math.log(abs(x)),
    "sin": math.sin,
    "arctan": math.atan,
    "sqrt": lambda x: math.sqrt(abs(x)),
    "rsqrt": lambda x: 1 / math.sqrt(abs(x)),
    "reciprocal": lambda x: 1 / x,
    "sign": lambda x: math.copysign(1, x),
    "abs": abs,
}
_POSITIVE = ("log", "sqrt", "rsqrt")
TOKENS = {name: _token(name) for name in FORMULAS}


@pytest.mark.parametrize("name", FORMULAS)
def test_functions(run: Run, name: str) -> None:
    """Each function of the table within 2 ulp of its formula, or 2^-24 of 1 near a root."""
    x = np.linspace(-3, 3, 60).astype(F32).reshape(2, 30)
    x = np.abs(x) if name in _POSITIVE else x
    dst = np.zeros_like(x)
    run("activation", dst=dst, op=TOKENS[name], data=x)
    exact = np.vectorize(FORMULAS[name])(x.astype(np.float64))
    assert (np.abs(dst - exact) <= np.maximum(2 * np.abs(np.spacing(exact.astype(F32))), 2.0**-24)).all()


def test_exact_points(run: Run) -> None:
    data, dst = np.array([[-np.inf, 0, -0.0]], F32), np.zeros((1, 3), F32)
    run("activation", dst=dst, op=np.exp, data=data)
    assert dst.tolist() == [[0, 1, 1]]
    run("activation", dst=dst, op=np.sign, data=np.array([[-5, 0, 5]], F32))
    assert dst.tolist() == [[-1, 0, 1]]


def test_sin_extrapolates_a_cubic(run: Run) -> None:
    dst = np.zeros((1, 2), F32)
    run("activation", dst=dst, op=np.sin, data=np.array([[9, -9]], F32))
    np.testing.assert_allclose(dst, [[27.6526, -27.6526]], atol=1e-3)


def test_bias_of_copy_is_added(run: Run) -> None:
    """Zeros with a bias column of ones give ones."""
    dst = np.zeros((3, 4), F32)
    run("activation", dst=dst, op=np.copy, data=np.zeros((3, 4), F32), bias=np.ones((3, 1), F32))
    assert (dst == 1).all()


@pytest.mark.parametrize("form", ["numbers", "tiles"])
def test_multiply_add_is_fused(run: Run, form: str) -> None:
    """data * scale + bias with one rounding, against exact fractions, where product and sum cancel."""
    rng = np.random.default_rng(21)
    data = rng.standard_normal((4, 50)).astype(F32)
    scale = rng.standard_normal((4, 1)).astype(F32) if form == "tiles" else np.full((4, 1), 1.1, F32)
    bias = -(data[:, :1] * scale)
    bias = bias if form == "tiles" else np.full((4, 1), bias[0, 0])
    dst = np.zeros_like(data)
    numbers = dict(scale=1.1, bias=float(bias[0, 0]))
    run("activation", dst=dst, op=np.copy, data=data, **(dict(scale=scale, bias=bias) if form == "tiles" else numbers))
    twice_rounded = 0
    for p in range(4):
        for f in range(50):
            exact = Fraction(float(data[p, f])) * Fraction(float(scale[p, 0])) + Fraction(float(bias[p, 0]))
            assert dst[p, f] == _nearest(exact)
            twice_rounded += dst[p, f] != data[p, f] * scale[p, 0] + bias[p, 0]
    assert twice_rounded > 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, -0.0),
        ({"bias": 0.0}, -0.0),
        ({"scale": 2}, -0.0),
        ({"bias": np.zeros((1, 1), F32)}, 0.0),
        ({"scale": -1.0}, 0.0),
    ],
)
def test_negative_zero(run: Run, arguments: dict[str, Any], expected: float) -> None:
    """Without bias, scale multiplies and no zero is added; scale 1.0 and bias None pass the data unchanged."""
    dst = np.ones((1, 1), F32)
    run("activation", dst=dst, op=np.copy, data=np.full((1, 1), -0.0, F32), **arguments)
    assert dst[0, 0] == 0 and np.signbit(dst[0, 0]) == np.signbit(expected)


def test_data_passes_unchanged(run: Run) -> None:
    bits = np.array([[0x7F800000, 0xFF800000, 0x00000001, 0x80000001, 0x7F7FFFFF, 0x80000000, 0x7FC00000]], np.uint32)
    dst = np.zeros((1, 7), F32)
    run("activation", dst=dst, op=np.copy, data=bits.view(F32))
    assert (dst.view(np.uint32) == bits).all()


def test_bias_dtypes(run: Run) -> None:
    dst = np.zeros((2, 1), F32)
    for dtype in (bf16, np.float16, np.int8, np.int32, np.uint16):
        run("activation", dst=dst, op=np.copy, data=np.ones((2, 1), F32), bias=np.array([[2], [3]], dtype))
        assert dst.tolist() == [[3], [4]]


def test_integers_go_through_float32(run: Run) -> None:
    dst = np.zeros((1, 1), np.int32)
    run("activation", dst=dst, op=np.copy, data=np.full((1, 1), 2**24 + 1, np.int32))
    assert dst[0, 0] == 2**24


def test_accumulate_conformance(run: Run) -> None:
    """[1, 2] with reset_reduce, then [3] with reduce: 6, so `reduce` counts the old value once."""
    total = np.zeros((1, 1), F32)
    arguments = dict(op=np.copy, reduce_op=np.add)
    machine = run(
        "activation",
        dst=np.zeros((1, 2), F32),
        data=np.array([[1, 2]], F32),
        reduce_cmd=reduce_cmd.reset_reduce,
        **arguments,
    )
    one = dict(dst=np.zeros((1, 1), F32), data=np.array([[3]], F32), reduce_res=total)
    run("activation", machine=machine, reduce_cmd=reduce_cmd.reduce, **one, **arguments)
    assert total[0, 0] == 6
    run("activation", machine=machine, op=np.copy, **one)
    assert total[0, 0] == 6  # idle shows the registers
    run("activation", machine=machine, reduce_cmd=reduce_cmd.reset, op=np.copy, **one)
    assert total[0, 0] == 0


def test_accumulators_of_the_engines_are_apart(run: Run) -> None:
    data = np.array([[1, 2]], F32)
    machine = run(
        "activation_reduce",
        dst=np.zeros((1, 2), F32),
        op=np.copy,
        data=data,
        reduce_op=np.add,
        reduce_res=None,
        start=32,
    )
    assert machine.act[32] == 3 and machine.act.sum() == 3
    assert not machine.dve.any()


def test_sum_is_sequential_before_the_cast(run: Run) -> None:
    """The softmax idiom: bfloat16 results, float32 sum of the unrounded values, left to right, over all free dims."""
    rng = np.random.default_rng(17)
    data, bias = rng.standard_normal((3, 4, 25)).astype(F32), rng.standard_normal((3, 1)).astype(F32)
    half, full, total = np.zeros((3, 4, 25), bf16), np.zeros((3, 100), F32), np.zeros((3, 1), F32)
    run("activation", dst=full, op=np.exp, data=data, bias=bias)
    run(
        "activation",
        dst=half,
        op=np.exp,
        data=data,
        bias=bias,
        reduce_op=np.add,
        reduce_cmd=reduce_cmd.reset_reduce,
        reduce_res=total,
    )
    assert (half.reshape(3, 100) == full.astype(bf16)).all()
    for p in range(3):
        running = F32(0)
        for x in full[p]:
            running = running + x
        assert total[p, 0] == running


def test_activation_reduce_discards_its_result(run: Run) -> None:
    """A step-0 dst keeps the last element; the sum is of all; the registers keep it for a later `reduce`."""
    data, column, total = np.array([[1, 2, 3], [4, 5, 6]], F32), np.zeros((2, 1), F32), np.zeros((2, 1), F32)
    view = np.lib.stride_tricks.as_strided(column, (2, 3), (4, 0))
    machine = run("activation_reduce", dst=view, op=np.square, data=data, reduce_op=np.add, reduce_res=total)
    assert column.tolist() == [[9], [36]]
    assert total.tolist() == [[14], [77]]
    run("activation_reduce", machine=machine, dst=view, op=np.square, data=data, reduce_op=np.add, reduce_res=None)
    extra = dict(dst=np.zeros((2, 1), F32), data=np.ones((2, 1), F32), reduce_res=total, reduce_op=np.add)
    run("activation", machine=machine, op=np.copy, reduce_cmd=reduce_cmd.reduce, **extra)
    assert total.tolist() == [[15], [78]]


def test_reduce_res_may_be_part_of_dst(run: Run) -> None:
    dst = np.zeros((1, 3), F32)
    run(
        "activation_reduce",
        dst=dst,
        op=np.copy,
        data=np.array([[1, 2, 3]], F32),
        reduce_op=np.add,
        reduce_res=dst[:, 0:1],
    )
    assert dst.tolist() == [[6, 2, 3]]


def test_gpsimd_activation(run: Run) -> None:
    """Generation 4 runs functions on gpsimd too, with the same values and without accumulators."""
    data, scalar, gpsimd = np.linspace(-2, 2, 8, dtype=F32)[None, :], np.zeros((1, 8), F32), np.zeros((1, 8), F32)
    run("activation", "trn3", dst=scalar, op=np.tanh, data=data, scale=0.5)
    machine = run("activation", "trn3", dst=gpsimd, op=np.tanh, data=data, scale=0.5, engine=engine.gpsimd)
    assert (scalar == gpsimd).all()
    assert not machine.act.any()


def test_engines_and_costs(call: Run) -> None:
    tile, column = "sbuf float32[4,1024]", "sbuf float32[4,1]"
    base = dict(dst=tile, op=np.exp, data=tile)
    cases: list[tuple[str, dict[str, Any], str, float]] = [
        ("activation", {}, "scalar", 1024),
        ("activation", dict(bias=column, scale=column), "scalar", 1024),
        ("activation", dict(reduce_res=column), "scalar", 1088),
        ("activation", dict(dst="sbuf float32[4,8]", data="sbuf float32[4,8]"), "scalar", 64),
        ("activation", dict(engine=engine.gpsimd), "gpsimd", 1174),
        ("activation_reduce", dict(reduce_op=np.add, reduce_res=None), "scalar", 1088),
    ]
    for name, changes, where, cycles in cases:
        bound = call(name, "trn3", **{**base, **changes})
        assert (bound.engine, bound.spec.cost(bound)) == (where, cycles)
