"""What must not leak from one kernel into another, and run-time offsets of scalar accesses."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.errors import TileRuleError, TileTypeError, TileUnsupportedError

MODES = ("native", "reference", "debug")
X = np.arange(8, dtype=np.int32)[None] * 10


def load(x: Any) -> Any:
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def store(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["input", "tile", "index", "register"])
def test_tensors_of_another_kernel_are_refused(mode: str, what: str) -> None:
    kept: dict[str, Any] = {}

    def first(x: Any) -> Any:
        kept.update(input=x, tile=load(x), register=[nisa.register_alloc(0) for _ in range(9)][-1])
        return store(kept["tile"])

    def second(x: Any) -> Any:
        tile = load(x)
        if what == "register":
            nisa.register_store(tile[:, 0:1], kept["register"])
        elif what == "index":
            view = tile.ap([[8, 1], [1, 1]], scalar_offset=kept["tile"][:, 0:1], indirect_dim=1)
            nisa.memset(dst=view, value=1)
        else:
            nisa.dma_copy(dst=tile, src=kept[what])
        return store(tile)

    tilelang.simulate(first, mode=mode)(X)
    with pytest.raises(TileTypeError, match="belongs to another kernel") as caught:
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


def test_comparing_signed_with_unsigned_is_no_silent_difference() -> None:
    def kernel(a: Any, b: Any) -> Any:
        first, second = load(a), load(b)
        out = nl.ndarray(first.shape, dtype=nl.int32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=out, data1=first, data2=second, op=nl.maximum)
        return store(out)

    with pytest.raises(TileUnsupportedError, match="int32 and uint32"):
        tilelang.simulate(kernel)(np.array([[5]], np.int32), np.array([[6]], np.uint32))


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
