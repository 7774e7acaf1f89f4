"""Native engines, the registry's NumPy bodies and debug mode give the same bits, for every instruction, operator and dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang.isa as nisa
from tests.conformance.harness import ndarray, result_of, run_everywhere, sample, tile_of
from tilelang.ir.regions import MemoryRegion
from tilelang.isa.operators import _TOKENS, ACTIVATIONS, OPERATORS
from tilelang.isa.spec import REGISTRY

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "tfloat32")
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
TOKENS = {name: token for token, name in _TOKENS.items()}
COMMANDS = nisa.reduce_cmd
COVERED: set[str] = set()


def token(name: str) -> Any:
    if name not in TOKENS:
        from tilelang.isa.operators import register_token

        TOKENS[name] = f"token {name}"
        register_token(TOKENS[name], name)
    return TOKENS[name]


def rng_for(*parts: Any) -> np.random.Generator:
    import zlib

    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def check(name: str, kernel: Callable[..., Any], *args: Any, target: str = "trn2") -> tuple[Any, ...]:
    COVERED.add(name)
    return run_everywhere(kernel, args, target)


@pytest.mark.parametrize("shape", [(128, 300), (7, 5), (64, 3, 40), (32, 2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint16"])
def test_tensor_copy_same_dtype(shape: tuple[int, ...], dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray(shape, dtype)
        nisa.tensor_copy(dst=y, src=x)
        return result_of(y)

    check("tensor_copy", kernel, sample(rng_for(shape, dtype), shape, dtype))


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
    check("tensor_copy", kernel, sample(rng_for(source, target), shape, host, 0.3))


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

    check("memset", kernel, sample(rng_for(dtype), (128, 4), "float32"))


BINARY = [n for n, o in OPERATORS.items() if o.kind == "binary" and not o.simulate_only]
BITVEC = [n for n, o in OPERATORS.items() if o.kind == "bitvec" and o.arity == 2]


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("types", [("float32", "float32", "float32"), ("bfloat16", "float16", "float8_e4m3"), ("int32", "int32", "int32"), ("uint8", "int16", "float32")])
def test_tensor_tensor(op: str, types: tuple[str, str, str]) -> None:
    first, second, out = types

    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        z = ndarray((128, 65), out)
        nisa.tensor_tensor(dst=z, data1=x, data2=y, op=token(op))
        return result_of(z)

    rng = rng_for(op, types)
    check("tensor_tensor", kernel, sample(rng, (128, 65), first), sample(rng, (128, 65), second), target="trn3")


@pytest.mark.parametrize("op", BITVEC)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_tensor_tensor_bits(op: str, dtype: str) -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        z = ndarray((32, 33), dtype)
        nisa.tensor_tensor(dst=z, data1=x, data2=y, op=token(op))
        return result_of(z)

    rng = rng_for(op, dtype)
    check("tensor_tensor", kernel, sample(rng, (32, 33), dtype), sample(rng, (32, 33), dtype))


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
                    dst=second, data=x, op0=np.subtract, operand0=1.5, reverse0=True, op1=token(op), operand1=w, reverse1=reverse
                )
        return result_of(first), result_of(second)

    rng = rng_for(op, reverse)
    check("tensor_scalar", kernel, sample(rng, (96, 50), "float32"), sample(rng, (96, 1), "float32"), target="trn3")


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("ops", [("bitwise_and", "left_shift"), ("left_shift", "right_shift"), ("invert", "bitwise_xor"), ("right_shift", None), ("invert", "right_shift")])
def test_tensor_scalar_bits(dtype: str, ops: tuple[str, str | None]) -> None:
    op0, op1 = ops

    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((16, 40), dtype)
        second = {} if op1 is None else dict(op1=token(op1), operand1=3)
        nisa.tensor_scalar(dst=y, data=x, op0=token(op0), operand0=None if op0 == "invert" else 5, **second)
        return result_of(y)

    check("tensor_scalar", kernel, sample(rng_for(dtype, ops), (16, 40), dtype))


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_tensor_scalar_exact_integers(op: str, dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((16, 40), dtype)
        nisa.tensor_scalar(dst=y, data=x, op0=token(op), operand0=16777217, reverse0=True, op1=np.add, operand1=3)
        return result_of(y)

    check("tensor_scalar", kernel, sample(rng_for(dtype, op), (16, 40), dtype))


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
    check("scalar_tensor_tensor", kernel, *args)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_reciprocal(dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((128, 31), "float32")
        nisa.reciprocal(dst=y, data=x)
        return result_of(y)

    check("reciprocal", kernel, sample(rng_for(dtype), (128, 31), dtype, 0.3))


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

    check("tensor_reduce", kernel, sample(rng_for(op, case), shape, dtype, 0.001))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
def test_tensor_scalar_reduce_chain(dtype: str, op: str) -> None:
    def kernel(a: Any, v: Any) -> Any:
        x, w = tile_of(a, "sbuf"), tile_of(v, "sbuf")
        outs = []
        for command, extra in ((COMMANDS.reset_reduce, {}), (COMMANDS.reduce, {}), (COMMANDS.load_reduce, {"reduce_init": w})):
            y, r = ndarray((128, 40), dtype), ndarray((128, 1), "float32")
            nisa.tensor_scalar_reduce(
                dst=y, data=x, op0=np.multiply, operand0=0.5, reduce_op=token(op), reduce_res=r, reduce_cmd=command,
                reduce_res_negate=command is COMMANDS.reduce, **extra,
            )  # fmt: skip
            outs += [result_of(y), result_of(r)]
        return tuple(outs)

    rng = rng_for(dtype, op)
    check("tensor_scalar_reduce", kernel, sample(rng, (128, 40), dtype, 0.005), sample(rng, (128, 1), "float32", 0))


@pytest.mark.parametrize("reverse", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("ops", [("multiply", "add"), ("subtract", "maximum")])
def test_tensor_tensor_scan(ops: tuple[str, str], reverse: tuple[bool, bool]) -> None:
    def kernel(a: Any, b: Any, v: Any) -> Any:
        x, y, w = tile_of(a, "sbuf"), tile_of(b, "sbuf"), tile_of(v, "sbuf")
        z = ndarray((70, 300), "float32")
        nisa.tensor_tensor_scan(
            dst=z, data0=x, data1=y, initial=w, op0=token(ops[0]), op1=token(ops[1]), reverse0=reverse[0], reverse1=reverse[1]
        )
        return result_of(z)

    rng = rng_for(ops, reverse)
    args = [sample(rng, (70, 300), "bfloat16", 0.001), sample(rng, (70, 300), "float32", 0.001), sample(rng, (70, 1), "bfloat16", 0)]
    check("tensor_tensor_scan", kernel, *args)


@pytest.mark.parametrize("op", [n for n in ACTIVATIONS if n != "prelu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activation(op: str, dtype: str) -> None:
    def kernel(a: Any, s: Any, v: Any) -> Any:
        x, scale, bias = tile_of(a, "sbuf"), tile_of(s, "sbuf"), tile_of(v, "sbuf")
        outs = []
        for keywords in ({}, {"scale": 0.37}, {"bias": bias}, {"bias": bias, "scale": scale}, {"bias": 0.25, "scale": -1.0}):
            y = ndarray((128, 45), dtype)
            nisa.activation(dst=y, op=token(op), data=x, **keywords)
            outs.append(result_of(y))
        return tuple(outs)

    rng = rng_for(op, dtype)
    args = sample(rng, (128, 45), dtype, 0.2), sample(rng, (128, 1), "float32"), sample(rng, (128, 1), dtype)
    check("activation", kernel, *args)


def test_activation_accumulates() -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y, r, s = ndarray((128, 400), "bfloat16"), ndarray((128, 1), "float32"), ndarray((128, 1), "float32")
        nisa.activation(dst=y, op=token("exp"), data=x, reduce_op=np.add, reduce_cmd=COMMANDS.reset_reduce)
        nisa.activation(dst=y, op=token("exp"), data=x, reduce_op=np.add, reduce_cmd=COMMANDS.reduce, reduce_res=r)
        nisa.activation(dst=y, op=token("copy"), data=x, reduce_res=s)
        return result_of(y), result_of(r), result_of(s)

    check("activation", kernel, sample(rng_for("acc"), (128, 400), "float32", 0.001))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activation_reduce(dtype: str) -> None:
    def kernel(a: Any, v: Any) -> Any:
        x, bias = tile_of(a, "psum"), tile_of(v, "sbuf")
        y, r = ndarray((128, 300), dtype), ndarray((128, 1), "float32")
        nisa.activation_reduce(dst=y, op=token("exp"), data=x, reduce_op=np.add, reduce_res=r, bias=bias, scale=0.125)
        return result_of(y), result_of(r)

    rng = rng_for("ar", dtype)
    check("activation_reduce", kernel, sample(rng, (128, 300), "float32", 0.001), sample(rng, (128, 1), "float32", 0))


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
    check("bn_stats", kernel, sample(rng, (128, 512), "float32", 0), sample(rng, (50, 1), "bfloat16", 0))
    COVERED.add("bn_aggr")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_max8_and_find_index8(dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        top, where, narrow = ndarray((128, 8), dtype), ndarray((128, 8), "uint32"), ndarray((128, 8), "uint16")
        nisa.max8(dst=top, src=x)
        nisa.nc_find_index8(dst=where, data=x, vals=top)
        nisa.nc_find_index8(dst=narrow, data=x[:, 20:], vals=top)
        return result_of(top), result_of(where), result_of(narrow)

    check("max8", kernel, sample(rng_for("max8", dtype), (128, 333), dtype, 0.05))
    COVERED.add("nc_find_index8")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("mask", ["uint8", "uint16", "uint32"])
def test_tensor_copy_predicated(dtype: str, mask: str) -> None:
    def kernel(a: Any, b: Any, m: Any) -> Any:
        x, y, p = tile_of(a, "sbuf"), tile_of(b, "sbuf"), tile_of(m, "sbuf")
        nisa.tensor_copy_predicated(dst=x, src=y, predicate=p)
        nisa.tensor_copy_predicated(dst=x[:, 3:30], src=7.0 if dtype != "int8" else 7, predicate=p[:, 3:30], reverse_pred=True)
        return result_of(x)

    rng = rng_for(dtype, mask)
    args = sample(rng, (128, 60), dtype), sample(rng, (128, 60), dtype), rng.integers(0, 2, (128, 60)).astype(mask)
    check("tensor_copy_predicated", kernel, *args)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_range_select(dtype: str) -> None:
    def kernel(a: Any, low: Any, high: Any) -> Any:
        x, b0, b1 = tile_of(a, "sbuf"), tile_of(low, "sbuf"), tile_of(high, "sbuf")
        y, r = ndarray((128, 100), dtype), ndarray((128, 1), "float32")
        nisa.range_select(
            dst=y, on_true_tile=x, comp_op0=np.greater_equal, comp_op1=np.less, bound0=b0, bound1=b1, reduce_res=r, range_start=17
        )
        return result_of(y), result_of(r)

    rng = rng_for("rs", dtype)
    bounds = [rng.integers(0, 130, (128, 1)).astype(np.float32) for _ in range(2)]
    check("range_select", kernel, sample(rng, (128, 100), dtype, 0.01), *bounds)


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
    check("select_reduce", kernel, sample(rng, (128, 100), dtype, 0.01), mask, sample(rng, (128, 1), dtype, 0))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "bfloat16", "int8", "uint16"])
def test_iota(dtype: str) -> None:
    def kernel(a: Any) -> Any:
        x, y = ndarray((128, 24), dtype), ndarray((128, 3, 5), dtype)
        nisa.iota(dst=x, pattern=[[10, 4], [-1, 6]], offset=5, channel_multiplier=100)
        register = nisa.register_alloc(7)
        nisa.iota(dst=y, pattern=[[1, 15]], offset=register, channel_multiplier=-2)
        return result_of(x), result_of(y), result_of(tile_of(a, "sbuf"))

    check("iota", kernel, np.zeros((1, 1), np.float32))


@pytest.mark.parametrize("op", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize("types", [("float32", "float32"), ("bfloat16", "bfloat16"), ("float32", "bfloat16"), ("int8", "int8")])
def test_affine_select(op: str, types: tuple[str, str]) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((128, 130), types[1])
        nisa.affine_select(
            dst=y, pattern=[[-1, 130]], channel_multiplier=1, on_true_tile=x, on_false_value=-3.0e38, cmp_op=token(op), offset=3
        )
        return result_of(y)

    check("affine_select", kernel, sample(rng_for(op, types), (128, 130), types[0]))


@pytest.mark.parametrize("types", [("bfloat16", "bfloat16"), ("float32", "float32"), ("float8_e4m3", "float8_e5m2"), ("float16", "bfloat16")])
@pytest.mark.parametrize("size", [(128, 128, 512), (5, 3, 7), (64, 100, 33)])
def test_nc_matmul(types: tuple[str, str], size: tuple[int, int, int]) -> None:
    k, m, n = size

    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        acc = ndarray((m, n), "float32", MemoryRegion.psum)
        for _ in range(2):
            nisa.nc_matmul(dst=acc, stationary=x, moving=y)
        other = ndarray((m, n), "float32", MemoryRegion.psum)
        nisa.nc_matmul(dst=other, stationary=x, moving=y, accumulate=False)
        nisa.nc_matmul(dst=other, stationary=x, moving=y, accumulate=True)
        return result_of(acc), result_of(other)

    rng = rng_for(types, size)
    check("nc_matmul", kernel, sample(rng, (k, m), types[0], 0), sample(rng, (k, n), types[1], 0))


def test_nc_matmul_overlapping_accumulation() -> None:
    """Fresh elements are overwritten, the rest accumulate, within one call (field report 12)."""

    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        acc = ndarray((64, 384), "float32", MemoryRegion.psum)
        nisa.nc_matmul(dst=acc[:, 0:256], stationary=x, moving=y)
        nisa.nc_matmul(dst=acc[:, 128:384], stationary=x, moving=y)
        return result_of(acc)

    rng = rng_for("overlap")
    a, b = sample(rng, (128, 64), "float32", 0), sample(rng, (128, 256), "float32", 0)
    (got,) = check("nc_matmul", kernel, a, b)
    product = (a.T.astype(np.float64) @ b).astype(np.float32)
    expected = np.zeros((64, 384))
    expected[:, 0:256] += product
    expected[:, 128:384] += product
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-2)


def test_nc_matmul_double_row() -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        acc = ndarray((128, 256), "float32", MemoryRegion.psum)
        nisa.nc_matmul(dst=acc, stationary=x, moving=y, perf_mode="double_row")
        return result_of(acc)

    rng = rng_for("double")
    check("nc_matmul", kernel, sample(rng, (128, 2, 128), "float8_e4m3", 0), sample(rng, (128, 2, 256), "float8_e5m2", 0))


def test_nc_matmul_tiling() -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, y = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        acc = ndarray((128, 64), "float32", MemoryRegion.psum)
        for j in range(4):
            nisa.nc_matmul(
                dst=acc[32 * j : 32 * j + 32, :], stationary=x[:, 32 * j : 32 * j + 32], moving=y, tile_position=(0, 32 * j), tile_size=(128, 32)
            )
        return result_of(acc)

    rng = rng_for("tiling")
    check("nc_matmul", kernel, sample(rng, (128, 128), "bfloat16", 0), sample(rng, (128, 64), "bfloat16", 0))


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_nc_transpose(dtype: str, target: str) -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((40, 100), dtype, MemoryRegion.psum)
        nisa.nc_transpose(dst=y, data=x)
        small = ndarray((32, 32), dtype)
        nisa.nc_transpose(dst=small, data=x[0:32, 0:32])
        return result_of(y), result_of(small)

    check("nc_transpose", kernel, sample(rng_for(dtype, target), (100, 40), dtype, 0.02), target=target)


def test_nc_matmul_transpose_mode() -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, eye = tile_of(a, "sbuf"), tile_of(b, "sbuf")
        y = ndarray((50, 64), "bfloat16", MemoryRegion.psum)
        nisa.nc_matmul(dst=y, stationary=x, moving=eye, is_transpose=True)
        return result_of(y)

    rng = rng_for("pass")
    eye = np.eye(64, dtype=np.float32)[rng.permutation(64)].astype(sample(rng, (1,), "bfloat16").dtype)
    check("nc_matmul", kernel, sample(rng, (64, 50), "bfloat16", 0.2), eye)


@pytest.mark.parametrize("types", [("float32", "float32"), ("float32", "bfloat16"), ("int32", "int8"), ("bfloat16", "float32")])
def test_dma_copy_shapes(types: tuple[str, str]) -> None:
    def kernel(a: Any) -> Any:
        x = ndarray((64, 3, 20), types[1])
        nisa.dma_copy(dst=x, src=a.reshape((64, 3, 20)))
        y = ndarray((20, 192), types[1])
        nisa.dma_copy(dst=y, src=x.reshape((64, 60)).ap([[60, 64], [1, 60]]))
        out = ndarray((20, 3, 64), types[1], MemoryRegion.shared_hbm)
        nisa.dma_copy(dst=out.permute((2, 1, 0)), src=x)
        return result_of(x), result_of(y), out

    check("dma_copy", kernel, sample(rng_for(types), (32, 120), types[0]))


@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
def test_dma_gather_and_scatter(dtype: str) -> None:
    """Field report 20: every third index is out of range and skipped; the rows stay untouched."""
    skip = nisa.oob_mode.skip

    def kernel(table: Any, indices: Any, fresh: Any) -> Any:
        index = tile_of(indices, "sbuf")
        x = tile_of(fresh, "sbuf")
        nisa.dma_copy(dst=x, src=table.ap([[24, 128], [1, 24]], vector_offset=index), oob_mode=skip)
        out = ndarray((200, 24), dtype, MemoryRegion.shared_hbm)
        nisa.dma_copy(dst=out, src=table)
        nisa.dma_copy(dst=out.ap([[24, 128], [1, 24]], vector_offset=index), src=x, oob_mode=skip)
        return result_of(x), out

    rng = rng_for("gather", dtype)
    indices = rng.integers(0, 200, (128, 1)).astype(np.int32)
    indices[::3] = rng.choice([-1, 2**30, 200], indices[::3].shape)
    check("dma_copy", kernel, sample(rng, (200, 24), dtype), indices, sample(rng, (128, 24), dtype))


@pytest.mark.parametrize("shape", [(100, 60), (6, 5, 32), (4, 1, 3, 16)])
def test_dma_transpose(shape: tuple[int, ...]) -> None:
    axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]

    def kernel(a: Any) -> Any:
        x = ndarray(tuple(shape[i] for i in axes), "bfloat16")
        nisa.dma_transpose(dst=x, src=a)
        return result_of(x)

    data = sample(rng_for(shape), shape, "bfloat16")
    (got,) = check("dma_transpose", kernel, data)
    np.testing.assert_array_equal(got.view(np.uint16), np.transpose(data, axes).view(np.uint16))


def test_dma_transpose_gather() -> None:
    def kernel(table: Any, indices: Any) -> Any:
        index = tile_of(indices, "sbuf")
        x = ndarray((64, 32), "bfloat16")
        nisa.dma_transpose(dst=x, src=table.ap([[64, 32], [1, 64]], vector_offset=index))
        return result_of(x)

    rng = rng_for("gather transpose")
    table, indices = sample(rng, (90, 64), "bfloat16"), rng.integers(0, 90, (32, 1)).astype(np.uint32)
    (got,) = check("dma_transpose", kernel, table, indices)
    np.testing.assert_array_equal(got.view(np.uint16), table[indices[:, 0]].T.view(np.uint16))


def test_partition_offsets_and_strides() -> None:
    """Rows move between quadrants and patterns have steps: the synchronisation of threads must notice."""

    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        y = ndarray((128, 64), "float32")
        nisa.memset(dst=y, value=0)
        for _ in range(3):
            nisa.tensor_copy(dst=y[96:128, 0:64:2], src=x[0:32, 0:32])
            nisa.tensor_tensor(dst=x[64:128, 0:10], data1=x[0:64, 5:15], data2=y[0:64, 1:11], op=np.add)
            nisa.tensor_scalar(dst=y[0:64, 20:40], data=x[64:128, 0:20], op0=np.multiply, operand0=x[64:128, 3:4])
        return result_of(x), result_of(y)

    check("tensor_copy", kernel, sample(rng_for("offsets"), (128, 64), "float32", 0))


def test_overlapping_copy_reads_all_first() -> None:
    def kernel(a: Any) -> Any:
        x = tile_of(a, "sbuf")
        nisa.tensor_copy(dst=x[:, 1:600], src=x[:, 0:599])
        nisa.tensor_scalar(dst=x[:, 0:500], data=x[:, 7:507], op0=np.add, operand0=1.0)
        return result_of(x)

    data = sample(rng_for("overlap copy"), (128, 600), "float32", 0)
    (got,) = check("tensor_copy", kernel, data)
    expected = data.copy()
    expected[:, 1:600] = data[:, 0:599]
    expected[:, 0:500] = expected[:, 7:507] + np.float32(1.0)
    np.testing.assert_array_equal(got, expected)


def test_uninitialised_reads_are_poison() -> None:
    def kernel(a: Any) -> Any:
        x, y, z = ndarray((128, 8), "float32"), ndarray((4, 8), "int16"), ndarray((4, 8), "float32")
        nisa.dma_copy(dst=x[0:64, :], src=a)
        out = ndarray((3, 5), "bfloat16", MemoryRegion.shared_hbm)
        nisa.tensor_copy(dst=z, src=y)
        return result_of(x), result_of(y), result_of(z), out

    got = check("dma_copy", kernel, sample(rng_for("poison"), (64, 8), "float32", 0))
    assert np.isnan(got[0][64:]).all() and not np.isnan(got[0][:64]).any()
    assert (got[1] == 4).all() and (got[2] == 4).all() and np.isnan(got[3].astype(np.float32)).all()


def test_every_instruction_is_covered() -> None:
    """Runs last in this file: each compute instruction of the registry went through `check`."""
    wanted = {n for n, s in REGISTRY.items() if s.engines != ("sequencer",) and not s.simulate_only}
    assert not wanted - COVERED or len(COVERED) < 20, sorted(wanted - COVERED)
