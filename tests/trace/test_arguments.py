"""Arguments of kernels: which values are arrays, how they enter, and what the caller sees afterwards."""

from __future__ import annotations

import dataclasses
import warnings
from array import array
from collections import OrderedDict, namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
import tilelang.nki.typing as nt
from tilelang import jit, simulate
from tilelang.errors import TileRuleError, TileTypeError, TileValueError, TileWarning

MODES = ("native", "reference", "debug")
X = np.arange(32, dtype=np.float32).reshape(4, 8)


def double(x: Any) -> Any:
    """A new tensor with 2 * x; x has rank 1 or 2."""
    view = x if x.ndim == 2 else x.reshape((1, x.shape[0]))
    tile = nl.load(view)
    nisa.tensor_tensor(tile, tile, tile, op=nl.add)
    out = nl.ndarray(view.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def increment(x: Any) -> None:
    """x += 1 in place."""
    tile = nl.load(x if x.ndim == 2 else x.reshape((1, x.size)))
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    nl.store(x if x.ndim == 2 else x.reshape((1, x.size)), tile)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Pair = namedtuple("Pair", "first second")


class Plain:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Config(nl.NKIObject):
    x: Any
    scale: int = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    inner: Any = None


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


CONTAINERS = {
    "tuple": ((X, 1), lambda a: a[0]),
    "list": ([1, [X]], lambda a: a[1][0]),
    "dict": ({"a": {"x": X}}, lambda a: a["a"]["x"]),
    "ordered dict": (OrderedDict(a=X), lambda a: a["a"]),
    "named tuple": (Pair(0, X), lambda a: a.second),
    "plain object": (Plain(x=X, y=2), lambda a: a.x),
    "NKIObject": (Config(X), lambda a: a.x),
    "frozen dataclass": (Frozen(X), lambda a: a.x),
    "nested objects": (Frozen(None, Plain(parts=(X,))), lambda a: a.inner.parts[0]),
    "slots": (Slotted(X), lambda a: a.x),
}


@pytest.mark.parametrize("case", CONTAINERS)
def test_arrays_inside_containers(case: str, mode: str) -> None:
    value, find = CONTAINERS[case]
    kinds: list[type] = []

    def kernel(holder: Any) -> Any:
        kinds.append(type(holder))
        return double(find(holder))

    np.testing.assert_array_equal(simulate(kernel, mode=mode)(value), 2 * X)
    assert kinds[-1] is type(value)
    assert find(value) is X, "the caller's object still holds its array"


def test_writes_reach_arrays_inside_containers(mode: str) -> None:
    config = Config(X.copy())

    def kernel(c: Any) -> None:
        increment(c.x)

    assert simulate(kernel, mode=mode)(config) is None
    np.testing.assert_array_equal(config.x, X + 1)


def test_objects_without_arrays_are_the_same_objects() -> None:
    marker = Plain(name="m")
    config = Plain(marker=marker, sizes=[1, 2])
    seen: list[Any] = []

    def kernel(x: Any, c: Any) -> Any:
        seen.append(c)
        return double(x)

    simulate(kernel)(X, config)
    assert seen[0] is config and seen[0].marker is marker


LAYOUTS = {
    "Fortran order": lambda: np.asfortranarray(X),
    "strided": lambda: np.repeat(X, 2, axis=1)[:, ::2],
    "transposed": lambda: np.ascontiguousarray(X.T).T,
    "negative strides": lambda: X[::-1, ::-1].copy()[::-1, ::-1],
    "unaligned": lambda: np.frombuffer(bytearray(b"\0" + X.tobytes()), np.uint8)[1:].view(np.float32).reshape(4, 8),
    "big endian": lambda: X.astype(">f4"),
    "broadcast": lambda: np.broadcast_to(np.arange(8, dtype=np.float32), (4, 8)),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_layouts_of_numpy_arrays(case: str, mode: str) -> None:
    kernel = simulate(double, mode=mode)
    for _ in range(2):  # the second call takes the short ways of known dtypes
        given = LAYOUTS[case]()
        np.testing.assert_array_equal(kernel(given), 2 * given.astype(np.float32))


@pytest.mark.parametrize("case", ["Fortran order", "strided", "unaligned", "big endian"])
def test_copied_inputs_are_copied_back(case: str, mode: str) -> None:
    given = LAYOUTS[case]()
    assert simulate(increment, mode=mode)(given) is None
    np.testing.assert_array_equal(given, X + 1)


def test_contiguous_inputs_are_not_copied() -> None:
    given = X.copy()
    address = given.__array_interface__["data"]
    simulate(increment)(given)
    np.testing.assert_array_equal(given, X + 1)
    assert given.__array_interface__["data"] == address


def test_read_only_inputs_may_be_read(mode: str) -> None:
    given = X.copy()
    given.flags.writeable = False
    np.testing.assert_array_equal(simulate(double, mode=mode)(given), 2 * X)


def test_read_only_inputs_may_not_be_written(mode: str) -> None:
    given = X.copy()
    given.flags.writeable = False
    with pytest.raises(TileValueError, match=r"'x', which is read-only\n.*pass a copy"):
        simulate(increment, mode=mode)(given)
    np.testing.assert_array_equal(given, X)


def test_zero_dim_arrays_have_one_element(mode: str) -> None:
    shapes = []

    def kernel(x: Any) -> None:
        shapes.append(x.shape)
        increment(x)

    given = np.array(2.5, np.float32)
    simulate(kernel, mode=mode)(given)
    assert given == 3.5 and shapes[-1] == (1,)


@pytest.mark.parametrize(
    ("dtype", "narrow"), [("float64", "float32"), ("int64", "int32"), ("uint64", "uint32"), ("longdouble", None)]
)
def test_wide_dtypes(dtype: str, narrow: str | None, mode: str) -> None:
    given = X.astype(dtype)
    if narrow is None:
        with pytest.raises(TypeError, match="not a tile dtype|not supported"):
            simulate(double, mode=mode)(given)
        return
    with pytest.warns(TileWarning, match=f"{dtype} argument narrowed to {narrow}") as caught:
        result = simulate(double, mode=mode)(given)
    assert caught[0].filename == __file__
    assert result.dtype == narrow
    np.testing.assert_array_equal(result, 2 * X)


def test_writes_into_wide_arrays_are_widened(mode: str) -> None:
    given = X.astype(np.float64)
    with pytest.warns(TileWarning, match="narrowed"):
        simulate(increment, mode=mode)(given)
    assert given.dtype == np.float64
    np.testing.assert_array_equal(given, X + 1)


@pytest.mark.parametrize("dtype", ["complex64", "object", "U3", "datetime64[s]"])
def test_dtypes_that_no_tile_has(dtype: str) -> None:
    with pytest.raises(TypeError, match="tile dtype"):
        simulate(double)(np.zeros((2, 2), dtype))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, np.float16])
def test_low_precision_dtypes(dtype: Any, mode: str) -> None:
    result = simulate(double, mode=mode)(X.astype(dtype))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result[0].astype(np.float32), 2 * X[0])


BUFFERS = {
    "memoryview": (lambda: memoryview(np.arange(6, dtype=np.float32)), np.float32),
    "memoryview of ints": (lambda: memoryview(np.arange(6, dtype=np.int32)), np.int32),
    "array.array": (lambda: array("f", range(6)), np.float32),
    "bytearray": (lambda: bytearray(range(6)), np.uint8),
}


@pytest.mark.parametrize("case", BUFFERS)
def test_buffers(case: str, mode: str) -> None:
    make, dtype = BUFFERS[case]
    result = simulate(double, mode=mode)(make())
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, [2 * np.arange(6)])
    given = make()
    simulate(increment, mode=mode)(given)
    np.testing.assert_array_equal(np.asarray(given), np.arange(6) + 1)


def test_buffers_of_other_sizes_and_types_are_other_programs() -> None:
    kernel = jit(double)
    for size in (100, 50, 200):
        np.testing.assert_array_equal(kernel(bytearray(size)), np.zeros((1, size)))
    np.testing.assert_array_equal(kernel(memoryview(np.ones(4, np.float32))), [[2.0] * 4])
    np.testing.assert_array_equal(kernel(memoryview(np.ones(4, np.int32))), [[2] * 4])


def test_overlapping_inputs_are_kept_apart(mode: str) -> None:
    """A write to one argument does not show in another one while the kernel runs."""

    def kernel(a: Any, b: Any) -> Any:
        increment(a)
        return double(b)

    base = np.arange(40, dtype=np.float32)
    first, second = base[:32].reshape(4, 8), base[8:].reshape(4, 8)
    expected = 2 * second.copy()
    np.testing.assert_array_equal(simulate(kernel, mode=mode)(first, second), expected)
    np.testing.assert_array_equal(base, np.concatenate([np.arange(32) + 1, np.arange(32, 40)]))
    same = X.copy()
    np.testing.assert_array_equal(simulate(kernel, mode=mode)(same, same), 2 * X)
    np.testing.assert_array_equal(same, X + 1)


@pytest.mark.parametrize(
    "value", [3, 2.5, True, None, "text", nl.add, nl.bfloat16, np.float32, np.dtype("int8"), nl.sbuf]
)
def test_static_values_pass_through(value: Any, mode: str) -> None:
    seen = []

    def kernel(x: Any, v: Any, *, keyword: Any = None) -> Any:
        seen.append((v, keyword))
        return double(x)

    simulate(kernel, mode=mode)(X, value, keyword=value)
    assert seen[-1][0] is value and seen[-1][1] is value


def test_numpy_scalars_are_static() -> None:
    def kernel(x: Any, scale: Any) -> Any:
        tile = nl.load(x)
        nisa.tensor_scalar(tile, tile, nl.multiply, scale)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    traced = jit(kernel)
    for scale in (np.float32(2), np.float32(-0.0), np.float32(0.0), np.int32(2)):
        result = traced(X + 1, scale)
        np.testing.assert_array_equal(np.signbit(result), np.signbit((X + 1) * np.float32(scale)))
        np.testing.assert_array_equal(result, (X + 1) * np.float32(scale))


def test_dict_keys_are_strings() -> None:
    with pytest.raises(TileTypeError, match="key 1: keys must be strings"):
        simulate(lambda d: double(d[1]))({1: X})


def test_keyword_arrays_and_names() -> None:
    def kernel(a: Any, b: Any, *rest: Any, **more: Any) -> Any:
        return double(b)

    program = tilelang.compile(kernel, b=X, a=[X, X]).program
    assert [t.name for t in program.inputs] == ["b", "a.0", "a.1"]
    program = tilelang.compile(kernel, X, X, X, more=X).program
    assert [t.name for t in program.inputs] == ["a", "b", "rest0", "more"]
    np.testing.assert_array_equal(simulate(kernel)(b=X, a=3), 2 * X)


def test_kernels_without_arrays(mode: str) -> None:
    def kernel(value: float) -> Any:
        out = nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.full((2, 2), value, nl.float32))
        return out

    np.testing.assert_array_equal(simulate(kernel, mode=mode)(1.5), np.full((2, 2), 1.5))


def test_shape_annotations() -> None:
    def kernel(x: nt.tensor[4, 8], y: nt.tensor) -> Any:  # type: ignore[valid-type]
        return double(x)

    kernel.__annotations__ = {"x": nt.tensor[4, 8], "y": nt.tensor}
    np.testing.assert_array_equal(simulate(kernel)(X, X[:2]), 2 * X)
    with pytest.raises(AssertionError, match=r"argument x has shape \(2, 8\); its annotation says \(4, 8\)"):
        simulate(kernel)(X[:2], X)
    kernel.__annotations__ = {"x": "nt.tensor[4, 8]", "y": "no such name"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(kernel)(X[:2], X)  # annotations that do not evaluate state nothing
    kernel.__annotations__ = {"x": "nt.tensor[4, 8]"}
    with pytest.raises(TileRuleError, match="annotation"):
        simulate(kernel)(X[:2], X)


def test_missing_and_surplus_arguments_are_type_errors() -> None:
    for call in (lambda: simulate(double)(), lambda: simulate(double)(X, X), lambda: simulate(double)(X, z=1)):
        with pytest.raises(TypeError, match="argument"):
            call()


def test_empty_arrays_are_refused() -> None:
    with pytest.raises(TileValueError, match="at least one element"):
        simulate(double)(np.zeros((0, 4), np.float32))
