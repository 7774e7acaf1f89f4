"""Native engines, NumPy bodies and debug mode give the same bits: vector, scalar and gpsimd instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang.isa as nisa
from tests.conformance.harness import (
    FLOATS,
    INTEGERS,
    ndarray,
    result_of,
    rng_for,
    run_everywhere,
    sample,
    tile_of,
    token,
)
from tilelang.isa.operators import ACTIVATIONS, OPERATORS

COMMANDS = nisa.reduce_cmd


def check(kernel: Any, *args: Any, target: str = "trn2") -> tuple[Any, ...]:
    return run_everywhere(kernel, args, target)


@pytest.mark.parametrize("shape", [(128, 300), (7, 5), (64, 3, 40), (32, 2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint16"])
def test_tensor_copy_same_dtype(shape: tuple[int, ...], dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray(shape, dtype)
        nisa.tensor_copy(dst=y, src=x)
        return result_of(y)

    check(kernel, sample(rng_for(shape, dtype), shape, dtype))


@pytest.mark.parametrize("target", FLOATS + INTEGERS + ("bool",))
@pytest.mark.parametrize("source", FLOATS + INTEGERS)
def test_tensor_copy_casts(source: str, target: str) -> None:
    shape = (128, 70)

    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf", source if source == "tfloat32" else None)
        y = ndarray(shape, target)
        nisa.tensor_copy(dst=y, src=x)
        return result_of(y)

    host = "float32" if source == "tfloat32" else source
    check(kernel, sample(rng_for(source, target), shape, host, 0.3))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_memset(dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((128, 9), dtype)
        nisa.memset(dst=y, value=3)
        z = ndarray((128, 4, 6), dtype)
        nisa.memset(dst=z, value=0)
        nisa.memset(dst=z[:, :, 1:3], value=5)
        return result_of(y), result_of(z), result_of(x)

    check(kernel, sample(rng_for(dtype), (128, 4), "float32"))


BINARY = [n for n, o in OPERATORS.items() if o.kind == "binary" and not o.simulate_only]
BITVEC = [n for n, o in OPERATORS.items() if o.kind == "bitvec" and o.arity == 2]


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize(
    "types",
    [
        ("float32", "float32", "float32"),
        ("bfloat16", "float16", "float8_e4m3"),
        ("int32", "int32", "int32"),
        ("uint8", "int16", "float32"),
    ],
)
def test_tensor_tensor(op: str, types: tuple[str, str, str]) -> None:
    first, second, out = types

    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        z = ndarray((128, 65), out)
        nisa.tensor_tensor(dst=z, data1=x, data2=y, op=token(op))
        return result_of(z)

    rng = rng_for(op, types)
    check(kernel, sample(rng, (128, 65), first), sample(rng, (128, 65), second), target="trn3")


@pytest.mark.parametrize("op", BITVEC)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_tensor_tensor_bits(op: str, dtype: str) -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        z = ndarray((32, 33), dtype)
        nisa.tensor_tensor(dst=z, data1=x, data2=y, op=token(op))
        return result_of(z)

    rng = rng_for(op, dtype)
    check(kernel, sample(rng, (32, 33), dtype), sample(rng, (32, 33), dtype))


@pytest.mark.parametrize("op", [n for n in BINARY] + ["abs", "square", "relu", "rsqrt", "reciprocal", "logical_not"])
@pytest.mark.parametrize("reverse", [False, True])
def test_tensor_scalar(op: str, reverse: bool) -> None:
    unary = OPERATORS[op].arity == 1

    def kernel(a: Any, v: Any) -> Any:
        x, w = tile_of(a, "sbuf"), tile_of(v, "sbuf")
        first, second = ndarray((96, 50), "float32"), ndarray((96, 50), "bfloat16")
        if unary:
            nisa.tensor_scalar(dst=first, data=x, op0=token(op), operand0=None)
            nisa.tensor_copy(dst=second, src=x)
        else:
            nisa.tensor_scalar(dst=first, data=x, op0=token(op), operand0=w, reverse0=reverse)
            if op == "power":
                nisa.tensor_copy(dst=second, src=x)
            else:
                nisa.tensor_scalar(
                    dst=second,
                    data=x,
                    op0=np.subtract,
                    operand0=1.5,
                    reverse0=True,
                    op1=token(op),
                    operand1=w,
                    reverse1=reverse,
                )
        return result_of(first), result_of(second)

    rng = rng_for(op, reverse)
    check(kernel, sample(rng, (96, 50), "float32"), sample(rng, (96, 1), "float32"), target="trn3")


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "ops",
    [
        ("bitwise_and", "left_shift"),
        ("left_shift", "right_shift"),
        ("invert", "bitwise_xor"),
        ("right_shift", None),
        ("invert", "right_shift"),
    ],
)
def test_tensor_scalar_bits(dtype: str, ops: tuple[str, str | None]) -> None:
    op0, op1 = ops

    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((16, 40), dtype)
        second = {} if op1 is None else dict(op1=token(op1), operand1=3)
        nisa.tensor_scalar(dst=y, data=x, op0=token(op0), operand0=None if op0 == "invert" else 5, **second)
        return result_of(y)

    check(kernel, sample(rng_for(dtype, ops), (16, 40), dtype))


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_tensor_scalar_exact_integers(op: str, dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((16, 40), dtype)
        nisa.tensor_scalar(dst=y, data=x, op0=token(op), operand0=16777217, reverse0=True, op1=np.add, operand1=3)
        return result_of(y)

    check(kernel, sample(rng_for(dtype, op), (16, 40), dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("ops", [("subtract", "multiply"), ("multiply", "add"), ("maximum", "greater")])
def test_scalar_tensor_tensor(dtype: str, ops: tuple[str, str]) -> None:
    def kernel(a: Any, b: Any, v: Any) -> Any:
        x, y, w = tile_of(a, "sbuf"), tile_of(b, "psum"), tile_of(v, "sbuf")
        z, sums = ndarray((128, 77), dtype), ndarray((128, 1), "float32")
        nisa.scalar_tensor_tensor(
            dst=z, data=x, op0=token(ops[0]), operand0=w, op1=token(ops[1]), operand1=y, reverse1=True, reduce_res=sums
        )
        return result_of(z), result_of(sums)

    rng = rng_for(dtype, ops)
    args = sample(rng, (128, 77), dtype, 0.02), sample(rng, (128, 77), dtype, 0.02), sample(rng, (128, 1), "float32", 0)
    check(kernel, *args)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_reciprocal(dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((128, 31), "float32")
        nisa.reciprocal(dst=y, data=x)
        return result_of(y)

    check(kernel, sample(rng_for(dtype), (128, 31), dtype, 0.3))


@pytest.mark.parametrize("op", [n for n, o in OPERATORS.items() if o.reduces])
@pytest.mark.parametrize("case", [((128, 600), 1), ((9, 4, 7, 5), (2, 3)), ((128, 3, 300), 2), ((5, 2, 1), 2)])
def test_tensor_reduce(op: str, case: tuple[tuple[int, ...], Any]) -> None:
    shape, axis = case
    bitvec = OPERATORS[op].kind == "bitvec"
    dtype = "uint16" if bitvec else "float32"
    first = min(axis) if isinstance(axis, tuple) else axis
    kept = shape[:first]

    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray(kept if len(kept) > 1 else (*kept, 1), dtype)
        nisa.tensor_reduce(dst=y, op=token(op), data=x, axis=axis, negate=not bitvec)
        return result_of(y)

    check(kernel, sample(rng_for(op, case), shape, dtype, 0.001))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
def test_tensor_scalar_reduce_chain(dtype: str, op: str) -> None:
    def kernel(a: Any, v: Any) -> Any:
        x, w = tile_of(a, "sbuf"), tile_of(v, "sbuf")
        outs = []
        for command, extra in (
            (COMMANDS.reset_reduce, {}),
            (COMMANDS.reduce, {}),
            (COMMANDS.load_reduce, {"reduce_init": w}),
        ):
            y, r = ndarray((128, 40), dtype), ndarray((128, 1), "float32")
            nisa.tensor_scalar_reduce(
                dst=y, data=x, op0=np.multiply, operand0=0.5, reduce_op=token(op), reduce_res=r, reduce_cmd=command,
                reduce_res_negate=command is COMMANDS.reduce, **extra,
            )  # fmt: skip
            outs += [result_of(y), result_of(r)]
        return tuple(outs)

    rng = rng_for(dtype, op)
    check(kernel, sample(rng, (128, 40), dtype, 0.005), sample(rng, (128, 1), "float32", 0))


@pytest.mark.parametrize("reverse", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("ops", [("multiply", "add"), ("subtract", "maximum")])
def test_tensor_tensor_scan(ops: tuple[str, str], reverse: tuple[bool, bool]) -> None:
    def kernel(a: Any, b: Any, v: Any) -> Any:
        x, y, w = tile_of(a, "sbuf"), tile_of(b, "sbuf"), tile_of(v, "sbuf")
        z = ndarray((70, 300), "float32")
        nisa.tensor_tensor_scan(
            dst=z,
            data0=x,
            data1=y,
            initial=w,
            op0=token(ops[0]),
            op1=token(ops[1]),
            reverse0=reverse[0],
            reverse1=reverse[1],
        )
        return result_of(z)

    rng = rng_for(ops, reverse)
    args = [
        sample(rng, (70, 300), "bfloat16", 0.001),
        sample(rng, (70, 300), "float32", 0.001),
        sample(rng, (70, 1), "bfloat16", 0),
    ]
    check(kernel, *args)


@pytest.mark.parametrize("op", [n for n in ACTIVATIONS if n != "prelu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activation(op: str, dtype: str) -> None:
    def kernel(a: Any, s: Any, v: Any) -> Any:
        x, scale, bias = tile_of(a, "sbuf"), tile_of(s, "sbuf"), tile_of(v, "sbuf")
        outs = []
        for keywords in (
            {},
            {"scale": 0.37},
            {"bias": bias},
            {"bias": bias, "scale": scale},
            {"bias": 0.25, "scale": -1.0},
        ):
            y = ndarray((128, 45), dtype)
            nisa.activation(dst=y, op=token(op), data=x, **keywords)
            outs.append(result_of(y))
        return tuple(outs)

    rng = rng_for(op, dtype)
    args = sample(rng, (128, 45), dtype, 0.2), sample(rng, (128, 1), "float32"), sample(rng, (128, 1), dtype)
    check(kernel, *args)


def test_activation_accumulates() -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y, r, s = ndarray((128, 400), "bfloat16"), ndarray((128, 1), "float32"), ndarray((128, 1), "float32")
        nisa.activation(dst=y, op=token("exp"), data=x, reduce_op=np.add, reduce_cmd=COMMANDS.reset_reduce)
        nisa.activation(dst=y, op=token("exp"), data=x, reduce_op=np.add, reduce_cmd=COMMANDS.reduce, reduce_res=r)
        nisa.activation(dst=y, op=token("copy"), data=x, reduce_res=s)
        return result_of(y), result_of(r), result_of(s)

    check(kernel, sample(rng_for("acc"), (128, 400), "float32", 0.001))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activation_reduce(dtype: str) -> None:
    def kernel(a: Any, v: Any) -> Any:
        x, bias = tile_of(a, "psum"), tile_of(v, "sbuf")
        y, r = ndarray((128, 300), dtype), ndarray((128, 1), "float32")
        nisa.activation_reduce(dst=y, op=token("exp"), data=x, reduce_op=np.add, reduce_res=r, bias=bias, scale=0.125)
        return result_of(y), result_of(r)

    rng = rng_for("ar", dtype)
    check(kernel, sample(rng, (128, 300), "float32", 0.001), sample(rng, (128, 1), "float32", 0))


def test_statistics() -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        stats, more, aggr = ndarray((128, 2, 6), "float32"), ndarray((50, 6), "float32"), ndarray((128, 2), "float32")
        nisa.bn_stats(dst=stats[:, 0, :], data=x)
        nisa.bn_stats(dst=stats[:, 1, :], data=x[:, 100:407])
        nisa.bn_aggr(dst=aggr, data=stats)
        nisa.bn_stats(dst=more, data=y)
        return result_of(stats), result_of(aggr), result_of(more)

    rng = rng_for("bn")
    check(kernel, sample(rng, (128, 512), "float32", 0), sample(rng, (50, 1), "bfloat16", 0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_max8_and_find_index8(dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        top, where, narrow = ndarray((128, 8), dtype), ndarray((128, 8), "uint32"), ndarray((128, 8), "uint16")
        nisa.max8(dst=top, src=x)
        nisa.nc_find_index8(dst=where, data=x, vals=top)
        nisa.nc_find_index8(dst=narrow, data=x[:, 20:], vals=top)
        return result_of(top), result_of(where), result_of(narrow)

    check(kernel, sample(rng_for("max8", dtype), (128, 333), dtype, 0.05))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("mask", ["uint8", "uint16", "uint32"])
def test_tensor_copy_predicated(dtype: str, mask: str) -> None:
    def kernel(a: Any, b: Any, m: Any) -> Any:
        x, y, p = tile_of(a, "sbuf"), tile_of(b, "sbuf"), tile_of(m, "sbuf")
        nisa.tensor_copy_predicated(dst=x, src=y, predicate=p)
        nisa.tensor_copy_predicated(
            dst=x[:, 3:30], src=7.0 if dtype != "int8" else 7, predicate=p[:, 3:30], reverse_pred=True
        )
        return result_of(x)

    rng = rng_for(dtype, mask)
    args = sample(rng, (128, 60), dtype), sample(rng, (128, 60), dtype), rng.integers(0, 2, (128, 60)).astype(mask)
    check(kernel, *args)


def test_predicated_copy_into_one_address() -> None:
    """A step-0 destination keeps the last element that was written, not the last element."""

    def kernel(a: Any, b: Any, m: Any) -> Any:
        x, y, p = tile_of(a, "sbuf"), tile_of(b, "sbuf"), tile_of(m, "sbuf")
        nisa.tensor_copy_predicated(dst=x.ap([[8, 32], [0, 6]]), src=y, predicate=p)
        return result_of(x)

    rng = rng_for("one address")
    mask = np.zeros((32, 6), np.uint8)
    mask[:, 1:3] = 1
    a, b = sample(rng, (32, 8), "float32", 0), sample(rng, (32, 6), "float32", 0)
    (got,) = check(kernel, a, b, mask)
    np.testing.assert_array_equal(got[:, 0], b[:, 2])
    np.testing.assert_array_equal(got[:, 1:], a[:, 1:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_range_select(dtype: str) -> None:
    def kernel(a: Any, low: Any, high: Any) -> Any:
        x, b0, b1 = tile_of(a, "sbuf"), tile_of(low, "sbuf"), tile_of(high, "sbuf")
        y, r = ndarray((128, 100), dtype), ndarray((128, 1), "float32")
        nisa.range_select(
            dst=y,
            on_true_tile=x,
            comp_op0=np.greater_equal,
            comp_op1=np.less,
            bound0=b0,
            bound1=b1,
            reduce_res=r,
            range_start=17,
        )
        return result_of(y), result_of(r)

    rng = rng_for("rs", dtype)
    bounds = [rng.integers(0, 130, (128, 1)).astype(np.float32) for _ in range(2)]
    check(kernel, sample(rng, (128, 100), dtype, 0.01), *bounds)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_select_reduce(dtype: str) -> None:
    def kernel(a: Any, m: Any, v: Any) -> Any:
        x, p, w = tile_of(a, "sbuf"), tile_of(m, "sbuf"), tile_of(v, "sbuf")
        y, z, r = ndarray((128, 100), dtype), ndarray((128, 100), "float32"), ndarray((128, 1), "float32")
        nisa.select_reduce(dst=y, predicate=p, on_true=x, on_false=w, reverse_pred=True)
        nisa.select_reduce(dst=z, predicate=p, on_true=x, on_false=-5.0, reduce_res=r, reduce_cmd=COMMANDS.reset_reduce)
        return result_of(y), result_of(z), result_of(r)

    rng = rng_for("sr", dtype)
    mask = rng.integers(0, 2, (128, 100)).astype(np.uint8)
    check(kernel, sample(rng, (128, 100), dtype, 0.01), mask, sample(rng, (128, 1), dtype, 0))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "bfloat16", "int8", "uint16"])
def test_iota(dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x, y = ndarray((128, 24), dtype), ndarray((128, 3, 5), dtype)
        nisa.iota(dst=x, pattern=[[10, 4], [-1, 6]], offset=5, channel_multiplier=100)
        register = nisa.register_alloc(7)
        nisa.iota(dst=y, pattern=[[1, 15]], offset=register, channel_multiplier=-2)
        return result_of(x), result_of(y), result_of(tile_of(a, "sbuf"))

    check(kernel, np.zeros((1, 1), np.float32))


@pytest.mark.parametrize("op", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize(
    "types", [("float32", "float32"), ("bfloat16", "bfloat16"), ("float32", "bfloat16"), ("int8", "int8")]
)
def test_affine_select(op: str, types: tuple[str, str]) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((128, 130), types[1])
        nisa.affine_select(
            dst=y,
            pattern=[[-1, 130]],
            channel_multiplier=1,
            on_true_tile=x,
            on_false_value=-3.0e38,
            cmp_op=token(op),
            offset=3,
        )
        return result_of(y)

    check(kernel, sample(rng_for(op, types), (128, 130), types[0]))
