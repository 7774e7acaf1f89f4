"""Kernel objects: decorators, nesting, launches, schedules, dependences."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang import jit, simulate
from tilelang.driver import Kernel
from tilelang.errors import TileTypeError, TileValueError, TileWarning

X = np.arange(32, dtype=np.float32).reshape(4, 8)
MODES = ("native", "reference", "debug")


def body(x: Any, factor: float = 2.0) -> Any:
    """Multiply."""
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor, name="scale")
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile, name="store")
    return out


@pytest.mark.parametrize(
    "decorate",
    [jit, jit(), lambda f: jit(f, mode="trace"), lambda f: jit(debug_kernel=True)(f), lambda f: jit(jit(f))],
    ids=["@jit", "@jit()", "mode", "unknown keyword", "twice"],
)
def test_spellings(decorate: Callable[..., Any]) -> None:
    kernel = decorate(body)
    assert isinstance(kernel, Kernel) and kernel.__name__ == "body" and kernel.__doc__ == "Multiply."
    assert kernel.__wrapped__ is body and inspect.signature(kernel) == inspect.signature(body)
    np.testing.assert_array_equal(kernel(X), 2 * X)


def test_decorator_chains() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    np.testing.assert_array_equal(jit(logged(body))(X, 3.0), 3 * X)
    np.testing.assert_array_equal(logged(jit(body))(X, factor=3.0), 3 * X)
    np.testing.assert_array_equal(jit(functools.partial(body, factor=5.0))(X), 5 * X)


def test_jit_needs_a_function() -> None:
    with pytest.raises(TileTypeError, match="jit needs a function, got int"):
        jit(3)
    with pytest.raises(TileTypeError, match="expected a kernel or a function"):
        simulate("kernel")


def test_platform_target_sets_the_target() -> None:
    with pytest.warns(DeprecationWarning, match="platform_target= was removed") as caught:
        kernel = jit(platform_target="trn1")(lambda x: nisa.get_nc_version() is nisa.nc_version.gen2 and None)
    assert caught[0].filename == __file__
    assert tilelang.compile(kernel, X).program.device.name == "trn1"


@pytest.mark.parametrize("mode", MODES)
def test_nested_kernels_are_inlined(mode: str) -> None:
    seen: list[Any] = []

    @jit
    def inner(tile: Any, *, label: str) -> dict[str, Any]:
        seen.append((tile.buffer, nl.program_id(0), nl.num_programs(), label))
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        return {"tile": tile, "label": label}

    @jit
    def outer(x: Any) -> Any:
        tile = nl.load(x)
        first = inner(tile, label="a")
        second = inner(tile=first["tile"], label="b")
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, second["tile"])
        return out

    np.testing.assert_array_equal(simulate(outer, mode=mode)(X), X + 2)
    assert seen == [(nl.sbuf, 0, 1, "a"), (nl.sbuf, 0, 1, "b")]


def test_bracket_launch_inside_a_kernel() -> None:
    inner = jit(body)
    with pytest.raises(TileTypeError, match="a bracket launch inside a kernel"):
        jit(lambda x: inner[1](x))(X)


def test_launches_on_one_core() -> None:
    seen = []
    kernel = jit(lambda x: seen.append((nl.program_ndim(), nl.num_programs(0), nl.program_id(0))))
    kernel(X)
    kernel[1](X)
    simulate(kernel[1])(X)
    simulate(kernel)[1](X)
    assert seen == [(0, 1, 0), (1, 1, 0)], "the launched forms are one program"


def test_the_degree_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in MODES:
        np.testing.assert_array_equal(simulate(body, mode=mode)[2](X), 2 * X)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with pytest.warns(TileWarning, match=r"k\[1\] differs from NEURON_LOGICAL_NC_CONFIG=2") as caught:
        np.testing.assert_array_equal(simulate(body)[1](X), 2 * X)
    assert caught[0].filename == __file__
    with pytest.raises(TileValueError, match="differs"):
        simulate(body, strict=True)[1](X)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "many")
    with pytest.raises(TileValueError, match="NEURON_LOGICAL_NC_CONFIG='many'; expected 1 or 2"):
        simulate(body)(X)


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_with_schedule_changes_no_result() -> None:
    kernel = jit(body)
    scheduled = kernel.with_schedule([("store", "scale")]).with_schedule([("store", ["scale"])])
    assert scheduled is not kernel and kernel.edges == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(scheduled(X), 2 * X)
    assert tilelang.compile(scheduled, X).program.edges == (("store", ("scale",)), ("store", ("scale",)))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([("store", "scal")], "no instruction is named 'scal'"),
        ([("sto", "scale")], "no instruction is named 'sto'"),
        ([("scale", "store")], "'scale' cannot run after 'store', which comes later"),
    ],
)
def test_schedules_that_cannot_hold(edges: Any, message: str) -> None:
    scheduled = jit(body).with_schedule(edges)
    with pytest.warns(TileWarning, match=message):
        np.testing.assert_array_equal(scheduled(X), 2 * X)
    with pytest.raises(TileValueError, match=message):
        simulate(scheduled, strict=True)(X)


@pytest.mark.parametrize("edges", [[("a",)], ["ab c"], [(1, "a")], [("a", [])], [("a", [1])], [3]])
def test_malformed_schedules(edges: Any) -> None:
    with pytest.raises(TileTypeError, match="is not an edge"):
        jit(body).with_schedule(edges)


def test_depends_on() -> None:
    found = []

    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        first = nisa.memset(tile, 1.0)
        second = nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        third = nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        assert third.depends_on(first, second).depends_on(first) is third
        found.append(third.after == (first, second, first))

        def loop(i: Any) -> None:
            inner = nisa.memset(tile, 2.0).depends_on(first)
            nisa.memset(tile, 3.0).depends_on(inner)
            found.append(inner)

        nl.fori_loop(0, 2, loop)
        with pytest.raises(TileTypeError, match="inside a dynamic loop"):
            nisa.memset(tile, 4.0).depends_on(found[-1])
        with pytest.raises(TileTypeError, match="takes instructions, got NkiTensor"):
            first.depends_on(tile)

    simulate(kernel)(X)
    assert found[0] is True


def test_instructions_have_names_and_places() -> None:
    program = tilelang.compile(body, X).program
    assert [i.name for i in program.walk()] == [None, "scale", "store"]
    assert all("test_kernels.py" in str(i.site) for i in list(program.walk())[1:])
    assert len(program) == 3 and "tensor_scalar" in str(program)


@pytest.mark.parametrize("mode", ["native", "reference", "debug"])
def test_views_outside_their_tensor_may_be_made_but_not_used(mode: str) -> None:
    """Kernels build the view of a tile that does not exist and skip its instruction."""

    def kernel(x: Any, use: str) -> Any:
        tile = nl.load(x)
        beyond = tile.ap([[x.shape[1], x.shape[0]], [1, x.shape[1]]], offset=1)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        if use == "instruction":
            nisa.tensor_copy(tile, beyond)
        elif use == "wrapper":
            nl.add(beyond, 1.0)
        elif use == "view":
            beyond[0:1]
        elif use == "result":
            return beyond
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(simulate(kernel, mode=mode)(X, ""), X)
    for use in ("instruction", "wrapper", "view", "result"):
        with pytest.raises(IndexError, match="touches elements"):
            simulate(kernel, mode=mode)(X, use)


def test_a_broadcast_counts_its_elements_once() -> None:
    def kernel(x: Any) -> Any:
        small = nl.ndarray((1, 4), nl.float32, buffer=nl.psum)
        large = nl.ndarray((1, 8000), nl.float32, buffer=nl.sbuf)
        nisa.memset(small, 2.0)
        nisa.tensor_copy(large, small.ap([[4, 1], [0, 2000], [1, 4]]))
        out = nl.ndarray((1, 8000), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, large)
        return out

    assert (simulate(kernel)(X) == 2).all()
