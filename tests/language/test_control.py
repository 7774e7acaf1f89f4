"""Loops, registers, program identity, ordering and printing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tilelang import jit, simulate
from tilelang.devices import get_device
from tilelang.errors import TileRuleError, TileTypeError, TileValueError
from tilelang.ir.context import use_builder
from tilelang.ir.program import Loop
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.trace.builder import Builder

MODES = ("native", "reference", "debug")
X = np.random.default_rng(3).standard_normal((128, 16)).astype(np.float32)


def new_builder(**options: Any) -> Builder:
    return Builder(get_device("trn2"), **options)


@pytest.mark.parametrize("function", [nl.affine_range, nl.sequential_range, nl.static_range, nl.range])
def test_ranges_are_range(function: Any) -> None:
    assert function(5) == range(5)
    assert function(2, 9) == range(2, 9)
    assert function(1, 9, 3) == range(1, 9, 3)


@pytest.mark.parametrize(
    ("options", "ndim", "ident", "count"),
    [({}, 0, 0, 1), ({"grid": 1}, 1, 0, 1), ({"grid": 1, "lnc": 2, "core": 1}, 1, 1, 2)],
)
def test_program_identity(options: dict[str, int], ndim: int, ident: int, count: int) -> None:
    with use_builder(new_builder(**options)):
        assert (nl.program_ndim(), nl.program_id(0), nl.program_id()) == (ndim, ident, ident)
        assert nl.num_programs() == nl.num_programs(0) == nl.num_programs(None) == nl.num_programs((0,)) == count
        with pytest.raises(TileValueError, match="axis 1"):
            nl.num_programs((0, 1))


def test_no_reorder_nests_and_refuses_device_loops() -> None:
    with use_builder(new_builder()) as _, nl.no_reorder(), nl.no_reorder():
        for i in nl.affine_range(2):
            assert i < 2
        with pytest.raises(TileTypeError, match="no_reorder"):
            nl.fori_loop(0, 4, lambda i: None)
    builder = new_builder()
    with use_builder(builder):
        nl.fori_loop(0, 4, _ordered_body)
    assert builder.ordered == 0


def _ordered_body(i: Any) -> None:
    with nl.no_reorder():
        nl.zeros((128, 4), nl.float32)


def sums_by_fori(x: Any) -> Any:
    total, tile = nl.zeros((128, 1), nl.float32), nl.load(x)
    out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)

    def body(i: Any) -> None:
        column = i * 2 + 1
        nisa.tensor_tensor(total, total, tile.select(1, column), op=nl.add)

    nl.fori_loop(0, 4, body)
    nl.store(out, total)
    return out


@pytest.mark.parametrize("mode", MODES)
def test_fori_loop_with_scalar_arithmetic(mode: str) -> None:
    expected = np.cumsum(X[:, 1:8:2], axis=1, dtype=np.float32)[:, -1:]
    np.testing.assert_array_equal(simulate(sums_by_fori, mode=mode)(X), expected)


def test_fori_loop_argument_follows_the_bounds() -> None:
    builder = new_builder()
    seen: list[Any] = []
    with use_builder(builder):
        nl.fori_loop(0, 4, lambda i: seen.append(i))
        nl.fori_loop(0, nisa.register_alloc(4), lambda i: seen.append(i))
    assert [type(i) for i in seen] == [NkiScalar, VirtualRegister]
    assert sum(isinstance(item, Loop) for item in builder.items) == 2
    with use_builder(builder), pytest.raises(TypeError, match="must return None"):
        nl.fori_loop(0, 4, lambda i: 3)


def counts_by_while(x: Any) -> Any:
    ones, left = nl.zeros((128, 1), nl.float32), nl.full((1, 1), 3, nl.int32)
    out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)

    def body(register: Any) -> Any:
        nisa.tensor_scalar(ones, ones, nl.add, 1.0)
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        nisa.register_load(register, left)
        return register

    nl.while_loop(nisa.register_alloc(3), body)
    nl.store(out, ones)
    return out


@pytest.mark.parametrize("mode", MODES)
def test_while_loop(mode: str) -> None:
    assert (simulate(counts_by_while, mode=mode)(X) == 3).all()


def sums_by_dynamic_range(x: Any) -> Any:
    total, tile = nl.zeros((128, 1), nl.float32), nl.load(x)
    out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)
    for i in nl.dynamic_range(4):
        nisa.tensor_tensor(total, total, tile[:, i], op=nl.add)
    nl.store(out, total)
    return out


@pytest.mark.parametrize("mode", MODES)
def test_dynamic_range_runs_with_one_warning(mode: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = simulate(sums_by_dynamic_range, mode=mode)(X)
    np.testing.assert_array_equal(result, np.cumsum(X[:, :4], axis=1, dtype=np.float32)[:, -1:])
    deprecations = [w for w in caught if w.category is DeprecationWarning]
    assert len(deprecations) == 1 and "nl.fori_loop" in str(deprecations[0].message)
    assert deprecations[0].filename == __file__


def test_dynamic_range_of_older_versions_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with use_builder(new_builder(nki="0.5")):
            registers = [i for i in nl.dynamic_range(0, 4, 2)]
    assert len(registers) == 1 and registers[0].frozen


def test_dynamic_range_step_is_static() -> None:
    with use_builder(new_builder()), pytest.raises(TileRuleError, match="step must be an int, got VirtualRegister"):
        nl.dynamic_range(0, 4, nisa.register_alloc(1))


def test_if_register_is_refused() -> None:
    with use_builder(new_builder()):
        register = nisa.register_alloc(1)
        with pytest.raises(TypeError, match=r"nl\.while_loop"):
            if register:
                raise AssertionError("a register has no truth value")


@jit
def prints(x: Any) -> Any:
    out = nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)
    tile = nl.full((2, 2), 1.5, nl.float32)
    nl.device_print("tile:", tile)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("mode", ["native", "reference", "debug"])
def test_device_print(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(prints, mode=mode)(X)
    assert capsys.readouterr().out == f"tile:\n{np.full((2, 2), 1.5, np.float32)!r}\n"


@pytest.mark.parametrize("mode", ["native", "reference", "debug"])
def test_device_print_prints_what_is_there_at_each_iteration(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((1, 2), nl.bfloat16, buffer=nl.shared_hbm)
        tile = nl.zeros((1, 2), nl.bfloat16)

        def body(i: Any) -> None:
            nl.device_print("now", tile)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, 3, body)
        nl.store(out, tile)
        nl.device_print("hbm", out)
        return out

    for threads in (1, 2):
        result = simulate(kernel, mode=mode, threads=threads)(X)
        shown = [np.full((1, 2), value, result.dtype) for value in range(4)]
        expected = "".join(f"{'now' if n < 3 else 'hbm'}\n{array!r}\n" for n, array in enumerate(shown))
        assert capsys.readouterr().out == expected


def test_target_queries() -> None:
    with use_builder(Builder(get_device("trn3"))):
        assert nisa.get_nc_version() is nisa.nc_version.gen4 and nisa.get_nc_version() >= 3
        assert nisa.get_nc_sub_version() == 0


def test_isa_names() -> None:
    for name in nisa.__all__:
        assert getattr(nisa, name) is not None
    with pytest.raises(AttributeError, match=r"tensor_copy_dynamic_src was removed from NKI; use nisa\.tensor_copy"):
        _ = nisa.tensor_copy_dynamic_src
    with pytest.raises(AttributeError, match="no attribute 'frob'"):
        _ = nisa.frob
    assert nisa.vector_engine is nisa.engine.vector
