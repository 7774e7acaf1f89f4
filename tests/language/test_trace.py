"""What wrappers emit, and what they refuse, with a bare builder: no engine runs here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.devices import get_device
from tilelang.errors import TileError, TileRuleError, TileTypeError, TileWarning
from tilelang.ir.context import use_builder
from tilelang.ir.program import Instruction
from tilelang.isa.simulated import simulated_binary, simulated_unary
from tilelang.language.promotion import promote
from tilelang.trace.builder import Builder


@pytest.fixture
def builder() -> Iterator[Builder]:
    made = Builder(get_device("trn2"))
    with use_builder(made):
        yield made


def names(builder: Builder) -> list[str]:
    return [item.opname for item in builder.items if isinstance(item, Instruction)]


def hbm(*shape: int, dtype: str = "float32") -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def sbuf(*shape: int, dtype: str = "float32") -> Any:
    return nl.ndarray(shape, dtype)


def psum(*shape: int) -> Any:
    return nl.ndarray(shape, "float32", buffer=nl.psum)


CASES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "tile and tile": (lambda: nl.add(sbuf(128, 8), sbuf(128, 8)), ["tensor_tensor"]),
    "tile and number": (lambda: nl.multiply(sbuf(128, 8), 2.0), ["tensor_scalar"]),
    "number and tile": (lambda: nl.subtract(1, sbuf(128, 8)), ["tensor_scalar"]),
    "tile and column": (lambda: nl.add(sbuf(128, 4, 8), sbuf(128, 1)), ["tensor_scalar"]),
    "column and tile": (lambda: nl.subtract(sbuf(128, 1), sbuf(128, 8)), ["tensor_scalar"]),
    "bf16 column": (lambda: nl.add(sbuf(128, 8), sbuf(128, 1, dtype="bfloat16")), ["tensor_tensor"]),
    "free broadcast": (lambda: nl.add(sbuf(128, 4, 8), sbuf(128, 4, 1)), ["tensor_tensor"]),
    "row broadcast": (lambda: nl.add(sbuf(5, 8), sbuf(1, 8)), [*["dma_copy"] * 4, "tensor_tensor"]),
    "two PSUM inputs": (lambda: nl.add(psum(128, 8), psum(128, 8)), ["tensor_copy", "tensor_tensor"]),
    "bits": (lambda: nl.bitwise_or(sbuf(128, 8, dtype="int32"), 3), ["tensor_scalar"]),
    "activation": (lambda: nl.gelu(psum(128, 8)), ["activation"]),
    "reciprocal": (lambda: nl.reciprocal(sbuf(128, 8)), ["reciprocal"]),
    "rsqrt": (lambda: nl.rsqrt(sbuf(128, 8)), ["tensor_scalar"]),
    "load": (lambda: nl.load(hbm(128, 8), dtype=nl.bfloat16), ["dma_copy"]),
    "store": (lambda: nl.store(hbm(128, 8), sbuf(128, 8)), ["dma_copy"]),
    "store from PSUM": (lambda: nl.store(hbm(128, 8), psum(128, 8)), ["tensor_copy", "dma_copy"]),
    "load_transpose2d": (lambda: nl.load_transpose2d(hbm(300, 64)), ["dma_transpose"]),
    "load_transpose2d cast": (lambda: nl.load_transpose2d(hbm(9, 64), nl.bfloat16), ["dma_transpose", "tensor_copy"]),
    "copy": (lambda: nl.copy(psum(128, 8)), ["tensor_copy"]),
    "transpose": (lambda: nl.transpose(sbuf(128, 8)), ["nc_transpose"]),
    "matmul": (lambda: nl.matmul(sbuf(64, 128), sbuf(128, 512)), ["nc_transpose", "tensor_copy", "nc_matmul"]),
    "matmul transposed": (lambda: nl.matmul(sbuf(128, 64), sbuf(128, 512), transpose_x=True), ["nc_matmul"]),
    "broadcast_to": (lambda: nl.broadcast_to(sbuf(128, 1), (128, 8)), ["tensor_copy"]),
    "expand_dims": (lambda: nl.expand_dims(sbuf(128, 8), 1), []),
    "where": (
        lambda: nl.where(sbuf(128, 8), sbuf(128, 8), 0.0),
        ["memset", "tensor_scalar", "tensor_copy_predicated"],
    ),
    "where integers": (
        lambda: nl.where(sbuf(128, 8, dtype="int8"), 1.0, sbuf(128, 8)),
        ["tensor_copy", "tensor_copy_predicated"],
    ),
    "sum": (lambda: nl.sum(sbuf(128, 8), axis=1), ["tensor_reduce"]),
    "mean": (lambda: nl.mean(sbuf(128, 8), axis=1), ["tensor_reduce", "tensor_scalar"]),
    "zeros": (lambda: nl.zeros((128, 8), nl.bfloat16), ["memset"]),
    "zeros in HBM": (lambda: nl.zeros((128, 8), nl.bfloat16, buffer=nl.shared_hbm), ["memset", "dma_copy"]),
    "zeros of rank 7": (lambda: nl.zeros((128, 2, 2, 2, 2, 2, 2), nl.float32), ["memset"]),
    "integral float": (lambda: nl.full((128, 8), 2.0, nl.int32), ["memset"]),
    "identity": (lambda: nl.shared_identity_matrix(64), ["memset", "affine_select"]),
    "constant": (lambda: nl.shared_constant(np.ones((4, 4), np.float32)), []),
    "simulated": (lambda: nl.divide(sbuf(128, 8), 2.0), ["simulated_binary"]),
    "scalar power": (lambda: nl.power(sbuf(128, 8), 2.0), ["simulated_binary"]),
    "tile power": (lambda: nl.power(sbuf(128, 8), sbuf(128, 8)), ["tensor_tensor"]),
    "full-range sine": (lambda: nl.sin(sbuf(128, 8)), ["simulated_unary"]),
}


@pytest.mark.filterwarnings("ignore::tilelang.errors.TileWarning")
@pytest.mark.parametrize("case", CASES)
def test_lowering(builder: Builder, case: str) -> None:
    run, expected = CASES[case]
    run()
    assert names(builder) == expected


def test_results_are_new_sbuf_tiles(builder: Builder) -> None:
    x, y = sbuf(128, 4, 8, dtype="bfloat16"), psum(128, 4, 8)
    assert nl.add(x, y).describe() == "sbuf float32[128, 4, 8]"
    assert nl.add(x, 1.5).dtype == "bfloat16"
    assert nl.less(x, y).dtype == "bfloat16"
    assert nl.less(x, y, dtype=nl.uint8).dtype == "uint8"
    assert nl.exp(x, dtype=nl.float32).dtype == "float32"
    assert nl.copy(y, dtype=nl.float16).dtype == "float16"
    assert nl.transpose(x[:, 0]).describe() == "psum bfloat16[8, 128]"
    assert nl.expand_dims(x, -1).shape == (128, 4, 8, 1)
    assert nl.broadcast_to(x, x.shape) is x
    assert nl.zeros_like(y).buffer is nl.psum
    assert nl.empty_like(x, buffer=nl.hbm, dtype=nl.int8).describe() == "private_hbm int8[128, 4, 8]"
    assert nl.empty_like(hbm(300, 64), buffer=nl.sbuf, transpose_axes=(1, 0)).shape == (64, 300)


@pytest.mark.parametrize(
    ("axis", "keepdims", "shape"),
    [(2, False, (128, 4)), (-1, True, (128, 4, 1)), ([1, 2], False, (128, 1)), ((1, 2), True, (128, 1, 1))],
)
def test_reduction_shapes(builder: Builder, axis: Any, keepdims: bool, shape: tuple[int, ...]) -> None:
    assert nl.sum(sbuf(128, 4, 8), axis, keepdims=keepdims).shape == shape


def test_var_keeps_dims(builder: Builder) -> None:
    assert nl.var(sbuf(128, 4, 8), 2, keepdims=False).shape == (128, 4, 1)


PROMOTIONS = """float32 int32 float32|int8 bfloat16 bfloat16|float16 bfloat16 float32|float8_e4m3 float8_e5m2 bfloat16
float8_e4m3 float16 float16|float8_e5m2 bfloat16 bfloat16|float32 tfloat32 float32|float8_e4m3 float8_e4m3fn bfloat16
int8 uint8 int16|int8 uint16 int32|uint16 int32 int32|int32 uint32 float32|uint8 uint16 uint16|bool int8 int8
bool bool bool|int64 int32 int64|float8_e5m2_x4 float32 float8_e5m2_x4""".replace("\n", "|").split("|")


@pytest.mark.parametrize("row", PROMOTIONS)
def test_promotion(row: str) -> None:
    first, second, result = row.split()
    assert promote(first, second) == result
    if "_x4" not in first:
        assert promote(second, first) == result


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "HBM operand": (
        lambda: nl.exp(hbm(128, 8)),
        AssertionError,
        r"nl\.exp: x is in SHARED HBM.*\n.*\n.*\n.*x = nl\.load",
    ),
    "two numbers": (lambda: nl.add(1, 2), TypeError, "both operands are numbers"),
    "host array": (lambda: nl.exp(np.ones((2, 2))), TypeError, "x must be a tile, got ndarray"),
    "shapes": (
        lambda: nl.add(sbuf(128, 8), sbuf(128, 9)),
        AssertionError,
        r"\(128, 8\) and \(128, 9\) do not broadcast",
    ),
    "partitions": (lambda: nl.add(sbuf(128, 8), sbuf(64, 8)), AssertionError, "do not broadcast"),
    "rsqrt of PSUM": (lambda: nl.rsqrt(psum(128, 8)), AssertionError, "gpsimd engine cannot reach"),
    "invert of floats": (lambda: nl.invert(sbuf(128, 8)), AssertionError, "integer tile"),
    "bits of floats": (lambda: nl.bitwise_and(sbuf(128, 8), 1), AssertionError, "integer"),
    "abs_max before generation 4": (lambda: nl.abs_max(sbuf(128, 8), sbuf(128, 8)), AssertionError, "trn3"),
    "load on chip": (lambda: nl.load(sbuf(128, 8)), AssertionError, r"must be in HBM"),
    "load of 129 rows": (lambda: nl.load(hbm(129, 8)), AssertionError, "129 exceeds maximum 128"),
    "store into a tile": (lambda: nl.store(sbuf(128, 8), sbuf(128, 8)), AssertionError, "must be in HBM"),
    "store of a number": (lambda: nl.store(hbm(128, 8), 1.0), TypeError, "value must be a tile, got float"),
    "store of another size": (lambda: nl.store(hbm(128, 8), sbuf(128, 9)), AssertionError, "must be equal"),
    "3-D load_transpose2d": (lambda: nl.load_transpose2d(hbm(4, 8, 8)), ValueError, "it must have 2"),
    "wide load_transpose2d": (lambda: nl.load_transpose2d(hbm(8, 129)), AssertionError, "129"),
    "reduction over partitions": (lambda: nl.sum(sbuf(128, 8), axis=0), ValueError, "without dim 0"),
    "reduction of middle dim": (
        lambda: nl.max(sbuf(128, 4, 8), axis=1),
        ValueError,
        r"allowed here: \(2,\) or \(1, 2\)",
    ),
    "axis of another kind": (lambda: nl.mean(sbuf(128, 8), axis=None), TypeError, "not an int"),
    "broadcast_to": (lambda: nl.broadcast_to(sbuf(128, 2), (128, 8)), ValueError, "only dims of size 1"),
    "expand_dims at 0": (lambda: nl.expand_dims(sbuf(128, 2), 0), ValueError, "it must be 1 to 2"),
    "fractional integer fill": (lambda: nl.full((128, 8), 0.5, nl.int32), AssertionError, "not an int"),
    "fill of a string": (lambda: nl.full((128, 8), "x", nl.int32), TypeError, "expected a number"),
    "packed ones": (lambda: nl.ones((128, 8), nl.float8_e5m2_x4), AssertionError, "only 0"),
    "no dtype": (lambda: nl.ndarray((128, 8), "float99"), TypeError, "not a tile dtype"),
    "zero-size dim": (lambda: nl.ndarray((128, 0), nl.float32), ValueError, "at least one element"),
    "unknown region": (lambda: nl.ndarray((128, 8), nl.float32, buffer=3), TypeError, "not a memory region"),
    "PSUM address": (
        lambda: nl.ndarray((128, 8), nl.float32, buffer=nl.psum, address=(0, 4)),
        AssertionError,
        "start of a bank",
    ),
    "unknown keyword": (lambda: nl.exp(sbuf(128, 8), mask=None), TypeError, "unexpected keyword argument 'mask'"),
    "large identity": (lambda: nl.shared_identity_matrix(129), ValueError, "1 to 128"),
    "identity into PSUM": (lambda: nl.shared_identity_matrix(8, dst=psum(8, 8)), AssertionError, "in SBUF"),
    "float64 constant": (lambda: nl.shared_constant(np.ones(4)), TypeError, "float64 is not supported"),
    "constant of a list": (lambda: nl.shared_constant([1, 2]), TypeError, "NumPy array or a path"),
    "bad transpose_axes": (lambda: nl.empty_like(hbm(4, 8), transpose_axes=(0, 1)), ValueError, r"use \(1, 0\)"),
    "print of a list": (lambda: nl.device_print("x", [1]), TypeError, "expected a tensor"),
    "register in range": (lambda: nl.affine_range(nisa.register_alloc(4)), TypeError, "nl.fori_loop"),
    "number for a register loop": (lambda: nl.while_loop(3, lambda r: r), TypeError, "needs a register"),
    "axis of the grid": (lambda: nl.program_id(1), ValueError, "axis 1"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_point_at_the_caller(builder: Builder, case: str) -> None:
    run, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message) as caught:
        run()
    if isinstance(caught.value, TileError) and case != "register in range":
        assert "test_trace.py:" in str(caught.value)


def test_outside_a_kernel() -> None:
    with pytest.raises(TileTypeError, match="only work inside a kernel"):
        nl.zeros((128, 8), nl.float32)


def test_same_constants_are_one_tensor(builder: Builder, tmp_path: Any) -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.save(tmp_path / "c.npy", array)
    first, second = nl.shared_constant(array), nl.shared_constant(str(tmp_path / "c.npy"))
    assert first is second and first is not nl.shared_constant(array + 1)
    assert first.storage.kind == "constant" and first.buffer is nl.shared_hbm
    array[:] = 0
    assert first.storage.data.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_equal_names_warn_once(builder: Builder) -> None:
    nl.ndarray((128, 8), nl.float32, name="a")
    with pytest.warns(TileWarning, match=r"LANG\.R310.*'a' is used by two tensors"):
        nl.ndarray((128, 8), nl.float32, name="a")


def test_string_buffer_warns_at_the_line(builder: Builder) -> None:
    with pytest.warns(TileWarning, match=r"write nl\.sbuf") as caught:
        assert nl.ndarray((128, 8), nl.float32, buffer="sbuf").buffer is nl.sbuf
    assert caught[0].filename == __file__


def test_simulated_functions_warn(builder: Builder) -> None:
    with pytest.warns(TileWarning, match=r"nl\.divide runs in simulation only"):
        nl.divide(sbuf(128, 8), sbuf(128, 8))


@pytest.mark.filterwarnings("ignore::tilelang.errors.TileWarning")
@pytest.mark.parametrize(
    ("run", "rule"),
    [
        (lambda: simulated_binary(sbuf(8, 8), hbm(8, 8), 2.0, "mod"), r"simulated_binary\.R1"),
        (lambda: simulated_binary(sbuf(8, 8), sbuf(8, 9), 2.0, "mod"), r"simulated_binary\.R1"),
        (lambda: simulated_binary(sbuf(8, 8), 1.0, 2.0, "mod"), r"simulated_binary\.R1"),
        (lambda: simulated_binary(sbuf(8, 8), sbuf(8, 8), 2.0, "add"), r"simulated_binary\.R2"),
        (lambda: simulated_unary(sbuf(8, 8), sbuf(8, 9), "tan"), r"simulated_unary\.R1"),
        (lambda: simulated_unary(sbuf(8, 8), sbuf(8, 8), "exp"), r"simulated_unary\.R2"),
    ],
)
def test_rules_of_simulated_functions(builder: Builder, run: Callable[[], Any], rule: str) -> None:
    with pytest.raises(TileRuleError, match=rule):
        run()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: nl.floor(sbuf(128, 8)), "simulation only"),
        (lambda: nl.power(sbuf(128, 8), 2), "nl.power with a number"),
        (lambda: nl.add(sbuf(128, 8), sbuf(1, 8)), "along partitions"),
        (lambda: nl.ndarray((2, 2), nl.float32, buffer="sbuf"), "is a string"),
        (lambda: nl.dynamic_range(4), r"nl\.fori_loop"),
    ],
)
def test_strict_mode_refuses_what_only_warns(run: Callable[[], Any], message: str) -> None:
    with (
        use_builder(Builder(get_device("trn2"), strict=True)),
        warnings.catch_warnings(),
        pytest.raises((TileRuleError, TileTypeError), match=message),
    ):
        warnings.simplefilter("error")
        run()


def test_strict_mode_allows_broadcasts_that_are_asked_for() -> None:
    with use_builder(Builder(get_device("trn2"), strict=True)):
        assert nl.broadcast_to(sbuf(1, 8), (128, 8)).shape == (128, 8)
