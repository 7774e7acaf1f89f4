"""What must not leak from one kernel into another, and run-time offsets of scalar accesses."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.tiles import load, store
from tilelang.errors import TileRuleError, TileTypeError, TileValueError

MODES = ("native", "reference", "debug")
X = np.arange(8, dtype=np.int32)[None] * 10


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["input", "tile", "index", "register", "bound", "condition"])
def test_tensors_of_another_kernel_are_refused(mode: str, what: str) -> None:
    kept: dict[str, Any] = {}

    def first(x: Any) -> Any:
        kept.update(input=x, tile=load(x), register=nisa.register_alloc(0))
        return store(kept["tile"])

    def second(x: Any) -> Any:
        tile = load(x)
        nisa.register_alloc(0)  # so that the number of the other one exists here
        if what == "bound":
            nl.fori_loop(0, kept["register"], lambda i: None)
        elif what == "condition":
            nl.while_loop(kept["register"], lambda r: r)
        elif what == "register":
            nisa.register_store(tile[:, 0:1], kept["register"])
        elif what == "index":
            view = tile.ap([[8, 1], [1, 1]], scalar_offset=kept["tile"][:, 0:1], indirect_dim=1)
            nisa.memset(dst=view, value=1)
        else:
            nisa.dma_copy(dst=tile, src=kept[what])
        return store(tile)

    tilelang.simulate(first, mode=mode)(X)
    with pytest.raises(TileTypeError, match="another kernel or call") as caught:
        tilelang.simulate(second, mode=mode)(X)
    assert "test_kept_values.py" in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("hbm", [False, True])
def test_scalar_accesses_follow_run_time_offsets(mode: str, scalar: bool, hbm: bool) -> None:
    def kernel(x: Any) -> Any:
        tile = load(x)
        if hbm:
            place = nl.ndarray((1, 8), dtype=nl.int32, buffer=nl.private_hbm)
            nisa.dma_copy(dst=place, src=tile)
        else:
            place = tile

        def at(i: int) -> Any:
            return place.ap([[8, 1], [1, 1]], scalar_offset=nisa.register_alloc(i), indirect_dim=1)

        if scalar:
            nisa.scalar_store(at(5), nisa.scalar_load(at(3)))
        else:
            register = nisa.register_alloc()
            nisa.register_load(register, at(3))
            nisa.register_store(at(5), register)
        return store(place)

    expected = X.copy()
    expected[0, 5] = X[0, 3]
    assert np.array_equal(tilelang.simulate(kernel, mode=mode, threads=2)(X), expected)


class One(IntEnum):
    ONE = 1


def test_equal_numbers_of_other_classes_are_other_arguments() -> None:
    def kernel(x: Any, value: Any) -> Any:
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=value, engine=nisa.engine.unknown)
        return store(tile)

    x = np.array([[2**24 + 1]], np.int32)
    results = [tilelang.simulate(kernel, mode=m)(x, v).item() for v in (1.0, One.ONE) for m in MODES]
    assert len(set(results[:3])) == 1 and len(set(results[3:])) == 1


def test_signs_of_nan_are_told_apart() -> None:
    def kernel(x: Any, value: float) -> Any:
        tile = load(x)
        nisa.memset(dst=tile, value=value)
        return store(tile)

    x = np.zeros((1, 1), np.float32)
    for value in (np.nan, -np.nan):
        signs = {bool(np.signbit(tilelang.simulate(kernel, mode=m)(x, float(value))[0, 0])) for m in MODES}
        assert len(signs) == 1


@pytest.mark.parametrize("value", [1e300, -3.5e38])
def test_numbers_beyond_float32_are_infinite(value: float) -> None:
    def kernel(x: Any) -> Any:
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=value)
        return store(tile)

    for mode in MODES:
        assert tilelang.simulate(kernel, mode=mode)(np.zeros((1, 1), np.float32)).item() == np.copysign(np.inf, value)


@pytest.mark.parametrize(
    "op", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "maximum", "minimum"]
)
@pytest.mark.parametrize("out", ["int32", "uint32"])
def test_signed_against_unsigned_is_exact(op: str, out: str) -> None:
    signed = np.array([[-1, -1, 5, -(2**31), 2**31 - 1, 3]], np.int32)
    unsigned = np.array([[1, 2**32 - 1, 2**31, 7, 2**31, 3]], np.uint32)

    def kernel(a: Any, b: Any) -> Any:
        first, second = load(a), load(b)
        result = nl.ndarray(first.shape, dtype=out, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=result, data1=first, data2=second, op=getattr(nl, op))
        return store(result)

    for a, b in ((signed, unsigned), (unsigned, signed)):
        expected = getattr(np, op)(a.astype(np.int64), b.astype(np.int64)).astype(np.int64).astype(out)
        for mode in MODES:
            assert np.array_equal(tilelang.simulate(kernel, mode=mode)(a, b), expected)


def test_deep_loops_encode_in_no_time_and_stay_right() -> None:
    """Each level below the fourth would double the work of finding where threads must meet."""

    def kernel(x: Any) -> Any:
        tile = load(x)
        scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)

        def body(depth: int) -> None:
            if depth == 0:
                nisa.nc_stream_shuffle(tile, tile, [*range(1, 32), 0])
                nisa.dma_copy(dst=scratch, src=tile)
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
                nisa.dma_copy(dst=tile[:, 0:1], src=scratch[:, 1:2])
                return
            nl.fori_loop(0, 2 if depth < 5 else 1, lambda i: body(depth - 1))

        body(40)
        return store(tile)

    x = np.random.default_rng(3).standard_normal((64, 4), dtype=np.float32)
    results = [tilelang.simulate(kernel, threads=n)(x) for n in (1, 2, 4)]
    results.append(tilelang.simulate(kernel, mode="reference")(x))
    assert len({result.tobytes() for result in results}) == 1


@pytest.mark.parametrize("mode", MODES)
def test_numbers_no_float_holds_are_refused(mode: str) -> None:
    def operand(x: Any) -> None:
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=10**400)

    def value(x: Any) -> None:
        nisa.memset(dst=load(x), value=-(10**400))

    for kernel in (operand, value):
        with pytest.raises(TileValueError, match="1329 bits") as caught:
            tilelang.simulate(kernel, mode=mode)(X.astype(np.float32))
        assert "test_kept_values.py" in str(caught.value)


def test_accumulate_is_a_bool_or_none() -> None:
    def kernel(x: Any) -> None:
        tile = load(x)
        total = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total, tile, tile, accumulate=1)

    with pytest.raises(TileTypeError, match="None, True or False"):
        tilelang.simulate(kernel)(X.astype(np.float32))


@pytest.mark.parametrize("mode", ["native", "reference"])
def test_executables_take_any_layout(mode: str) -> None:
    def kernel(x: Any) -> Any:
        return store(load(x))

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    executable = tilelang.compile(kernel, x, mode=mode)
    read_only = x.copy()
    read_only.flags.writeable = False
    for given in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], read_only, np.broadcast_to(x[:1], (4, 8))):
        assert np.array_equal(executable(given), given)
    with pytest.raises(TileTypeError, match="differ"):
        executable(x.astype(np.int32))


def test_max8_keeps_bits_and_order_of_equal_values() -> None:
    row = np.array([[-0.0, 0.0, -0.0, -1, -2, -3, -4, -np.nan, -5, -6]], np.float32)

    def kernel(x: Any) -> Any:
        out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=out, src=load(x))
        return store(out)

    results = [tilelang.simulate(kernel, mode=mode)(row) for mode in MODES]
    assert len({result.tobytes() for result in results}) == 1
    assert np.signbit(results[0][0, :4]).tolist() == [True, True, False, True]


def test_transposes_round_tfloat32_as_matmuls_do() -> None:
    x = np.array([[-0.11761475, 1.0003]], np.float32)

    def kernel(x: Any) -> Any:
        out = nl.ndarray((2, 1), dtype=nl.tfloat32, buffer=nl.psum)
        tile = nl.ndarray((1, 2), dtype=nl.tfloat32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.view(nl.tfloat32))
        nisa.nc_transpose(dst=out, data=tile)
        copied = nl.ndarray((2, 1), dtype=nl.tfloat32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copied, src=out)
        return store(copied)

    assert len({tilelang.simulate(kernel, mode=mode, target="trn1")(x).tobytes() for mode in MODES}) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_integer_tiles_have_no_infinite_values(value: float) -> None:
    def kernel(x: Any) -> Any:
        tile = load(x)
        nisa.memset(dst=tile, value=float(value))
        return store(tile)

    with pytest.raises(TileRuleError, match=r"memset.R3.*is not an int"):
        tilelang.simulate(kernel)(X)


def test_functions_are_no_binary_operators() -> None:
    def kernel(x: Any) -> Any:
        tile = load(x)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.exp)
        return store(tile)

    with pytest.raises(TileRuleError, match="op=exp is not a binary operator"):
        tilelang.simulate(kernel)(X.astype(np.float32))
