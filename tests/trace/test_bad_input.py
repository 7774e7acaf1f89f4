"""Whatever is passed to a public function, what it raises is an error of ours."""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.driver import simulate
from tilelang.errors import TileCapacityError, TileError, TileTypeError, TileUnsupportedError, TileValueError
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.spec import REGISTRY
from tilelang.trace.binding import from_host

BASE: dict[str, dict[str, Any]] = {}
for _path in sorted((Path(__file__).parents[1] / "isa").glob("rows_*.py")):
    BASE |= runpy.run_path(str(_path))["BASE"]

X = np.zeros((4, 8), np.float32)
pytestmark = pytest.mark.filterwarnings("ignore")


class Odd:
    """An object that is nothing a kernel knows."""


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
NUMBERS: list[Any] = [0, -1, 3, 2**70, -(2**40), 2.5, float("nan"), float("inf"), True, 1j, np.float32(1), np.int64(3)]
TEXTS: list[Any] = ["", "foo", b"foo", "float32", "float31", "a b -> b a", "(a -> b"]
LISTS: list[Any] = [(), [], [None], ["a"], (1, 2), [1, 1], [[1]], [[1, 2], [3]], {}, {"a": 1}, {1}, range(3), ENDLESS]
ARRAYS: list[Any] = [np.array([1]), np.array(1), np.array("a"), np.array([Odd()], object), np.zeros((2, 2))]
CALLABLES: list[Any] = [lambda: None, print, len, np.add, nl.add, nl.exp, Odd, np.float32, Exception, type, int]
OTHERS: list[Any] = [
    None,
    Odd(),
    object(),
    np.dtype("U3"),
    slice(None),
    Ellipsis,
    iter([]),
    nl.sbuf,
    NotImplemented,
    nisa,
]
JUNK = NUMBERS + TEXTS + LISTS + ARRAYS + CALLABLES + OTHERS


def handles(x: NkiTensor) -> dict[str, Any]:
    """Values that exist inside a kernel only."""
    return {
        "tensor": nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf),
        "hbm": x,
        "psum": nl.ndarray((4, 8), nl.float32, buffer=nl.psum),
        "register": nisa.register_alloc(1),
    }


def tensor_of(text: str) -> NkiTensor:
    place, rest = text.split(" ", 1)
    dtype, sizes = rest[:-1].split("[")
    shape = tuple(int(n) for n in sizes.split(","))
    return nl.ndarray(shape, dtype, buffer=getattr(nl, place.split("@")[0]))


def failure(function: Any, *args: Any, **kwargs: Any) -> str | None:
    """What a call raised, if that is no error of ours."""
    try:
        function(*args, **kwargs)
    except TileError as error:
        assert str(error).strip()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def trace(kernel: Any, target: str = "trn2") -> None:
    traced = simulate(kernel, target=target)
    traced.trace((X,), {}, [from_host(X, "numpy")], traced.options.resolve())


def variants(good: dict[str, Any], function: Any, x: NkiTensor) -> Iterator[tuple[str, dict[str, Any]]]:
    """The call with one argument after the other replaced by each kind of junk."""
    values = JUNK + list(handles(x).values())
    for name in inspect.signature(function).parameters:
        for value in values if name != "kwargs" else ():
            yield f"{name}={value!r:.60}", {**good, name: value}


@pytest.mark.parametrize("name", sorted(name for name in BASE if hasattr(nisa, name)))
def test_instructions(name: str) -> None:
    raised: dict[str, str] = {}
    operands = REGISTRY[name].operands

    def kernel(x: Any) -> None:
        good = dict(BASE[name])
        for key, value in good.items():
            if isinstance(value, str) and value.count("[") == 1:
                good[key] = tensor_of(value)
            elif callable(value) and key in operands:
                good[key] = value(tensor_of)
        for label, arguments in variants(good, getattr(nisa, name), x):
            found = failure(getattr(nisa, name), **arguments)
            if found:
                raised[label] = found

    trace(kernel, "trn3" if REGISTRY[name].since > 3 else "trn2")
    assert raised == {}


def good_call(name: str, x: NkiTensor) -> dict[str, Any]:
    """A legal call of a function of `nl`: tensors for whatever has no default, or what is listed here."""
    tile = nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf)
    creation = dict(shape=(4, 8), dtype=nl.float32, buffer=nl.sbuf)
    calls: dict[str, dict[str, Any]] = {
        "ndarray": creation,
        "zeros": creation,
        "ones": creation,
        "full": dict(fill_value=1.0, **creation),
        "fori_loop": dict(lower=0, upper=2, body_fun=lambda i: None),
        "while_loop": dict(init=nisa.register_alloc(0), body_fun=lambda r: r),
        "affine_range": dict(start=0, stop=4),
        "sequential_range": dict(start=0, stop=4),
        "static_range": dict(start=0, stop=4),
        "dynamic_range": dict(start=0, stop=4),
        "store": dict(dst=x, value=tile),
        "device_print": dict(print_prefix="a", tensor=tile),
        "shared_constant": dict(constant=np.zeros((4, 8), np.float32)),
        "shared_identity_matrix": dict(n=8),
    }
    parameters = inspect.signature(getattr(nl, name)).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return calls.get(name) or {name: tile for name in required}


LOOPS = ("dynamic_range", "fori_loop", "while_loop")
FUNCTIONS = sorted(name for name in nl.__all__ if inspect.isfunction(getattr(nl, name)))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in LOOPS])
def test_language(name: str) -> None:
    raised: dict[str, str] = {}

    def kernel(x: Any) -> None:
        for label, arguments in variants(good_call(name, x), getattr(nl, name), x):
            found = failure(getattr(nl, name), **arguments)
            if found:
                raised[label] = found

    trace(kernel)
    assert raised == {}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    """A failed loop ends the trace, so each has a kernel of its own."""
    raised: dict[str, str] = {}
    for parameter in inspect.signature(getattr(nl, name)).parameters:
        for value in [*JUNK, "tensor", "hbm", "psum", "register"]:
            if parameter == "body_fun" and callable(value):
                continue  # what a body raises passes unchanged

            def kernel(x: Any, parameter: str = parameter, value: Any = value) -> None:
                given = handles(x).get(value, value) if isinstance(value, str) else value
                for _ in getattr(nl, name)(**{**good_call(name, x), parameter: given}) or ():
                    pass

            found = failure(trace, kernel)
            if found:
                raised[f"{parameter}={value!r:.60}"] = found
    assert raised == {}


@pytest.mark.parametrize("body", [lambda: None, lambda i, j: None, nl.add])
def test_bodies_of_loops_take_one_argument(body: Any) -> None:
    for loop in (lambda: nl.fori_loop(0, 2, body), lambda: nl.while_loop(nisa.register_alloc(0), body)):
        with pytest.raises(TileTypeError, match="cannot be called with one argument"):
            trace(lambda x, loop=loop: loop())


METHODS: dict[str, tuple[Any, ...]] = {
    "reshape": ((8, 4),),
    "permute": ((0, 1),),
    "view": (nl.int32,),
    "ap": ([[8, 4], [1, 8]],),
    "slice": (0, 0, 2, 1),
    "select": (0, 1),
    "broadcast": (0, 4),
    "expand_dim": (1,),
    "squeeze_dim": (0,),
    "flatten_dims": (0, 1),
    "reshape_dim": (1, (2, 4)),
    "rearrange": (("a", "b"), ("b", "a"), {}),
    "__getitem__": (0,),
    "vector_select": (0, 1),
    "indirect": (0,),
}


def _public(name: str) -> bool:
    return name == "__getitem__" or (name[0] != "_" and inspect.isfunction(getattr(NkiTensor, name)))


@pytest.mark.parametrize("name", [name for name in dir(NkiTensor) if _public(name)])
def test_tensor_methods(name: str) -> None:
    raised: dict[str, str] = {}

    def kernel(x: Any) -> None:
        method = getattr(x, name)
        good = dict(zip(inspect.signature(method).parameters, METHODS.get(name, ()), strict=False))
        for label, arguments in variants(good, method, x):
            found = failure(method, *arguments.values()) if name[0] == "_" else failure(method, **arguments)
            if found:
                raised[label] = found

    trace(kernel)
    assert raised == {}


@pytest.mark.parametrize("mode", ["native", "reference", "debug"])
def test_arguments(mode: str) -> None:
    others = [np.zeros(3, np.complex64), np.array([Odd()], object), np.array(["a"]), np.zeros(2, "datetime64[s]")]
    raised = {f"{value!r:.60}": failure(simulate(lambda x: None, mode=mode), value) for value in JUNK + others}
    assert {label: found for label, found in raised.items() if found} == {}


def test_files_of_shared_constants(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array")
    np.savez(tmp_path / "two.npz", a=X, b=X)
    for name, error in (("absent.npy", TileValueError), ("text.npy", TileValueError), ("two.npz", TileTypeError)):
        with pytest.raises(error, match=name):
            trace(lambda x, name=name: nl.shared_constant(str(tmp_path / name)) and None)


def test_names_are_strings() -> None:
    with pytest.raises(TileTypeError, match="name=3 must be a str"):
        trace(lambda x: nisa.memset(nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf), 0.0, name=3) and None)


def test_tensors_larger_than_the_memory_of_the_chip() -> None:
    with pytest.raises(TileCapacityError, match="trn2 has 96 GiB"):
        trace(lambda x: nl.ndarray((10**9, 10**9), nl.uint8, buffer=nl.private_hbm) and None)


def test_views_of_more_elements_than_an_instruction_handles() -> None:
    def kernel(x: Any) -> None:
        many = [[0, 2**20], [0, 2**20]]
        nisa.dma_copy(dst=x.ap(many), src=x.ap(many))

    with pytest.raises(TileUnsupportedError, match="at most 2\\^32 elements"):
        trace(kernel)
