"""What kernels return: structures, views, arguments, constants; GEN.R17; torch tensors."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tilelang import jit, simulate
from tilelang.errors import TileTypeError, TileWarning

MODES = ("native", "reference", "debug")
X = np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def copied(x: Any, buffer: Any = nl.shared_hbm) -> Any:
    """A new HBM tensor with the content of x."""
    out = nl.ndarray(x.shape, x.dtype, buffer=buffer)
    nisa.dma_copy(out, x)
    return out


Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Bundle:
    tensor: Any
    label: str


class Plain(nl.NKIObject):
    tensors: Any
    count: int = 2


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


STRUCTURES = {
    "tensor": (lambda t: t, lambda r: [r]),
    "tuple": (lambda t: (t, 1), lambda r: [r[0]] if type(r) is tuple and r[1] == 1 else []),
    "list": (lambda t: [t, [t]], lambda r: [r[0], r[1][0]] if type(r) is list else []),
    "dict": (lambda t: {"a": t, "b": None}, lambda r: [r["a"]] if r["b"] is None else []),
    "named tuple": (lambda t: Pair(t, "x"), lambda r: [r.first] if type(r) is Pair and r.second == "x" else []),
    "dataclass": (lambda t: Bundle(t, "x"), lambda r: [r.tensor] if type(r) is Bundle and r.label == "x" else []),
    "slots": (lambda t: Slotted(t), lambda r: [r.tensor] if type(r) is Slotted else []),
    "NKIObject": (lambda t: Plain([t]), lambda r: r.tensors if type(r) is Plain and r.count == 2 else []),
}


@pytest.mark.parametrize("case", STRUCTURES)
def test_structures(case: str, mode: str) -> None:
    wrap, unwrap = STRUCTURES[case]
    kernel = jit(lambda x: wrap(copied(x))).with_options(mode=mode)
    for factor in (1, 2):  # the second call must not see the arrays of the first
        arrays = unwrap(kernel(X * factor))
        assert arrays
        for array in arrays:
            assert isinstance(array, np.ndarray) and array.flags.owndata | array.flags.c_contiguous
            np.testing.assert_array_equal(array, X * factor)


def test_nothing_is_none(mode: str) -> None:
    assert simulate(lambda x: None, mode=mode)(X) is None


VIEWS = {
    "slice": lambda t: t[1:3, ::2],
    "permute": lambda t: t.permute((1, 0)),
    "reshape": lambda t: t.reshape((2, 16)),
    "select": lambda t: t.select(1, 3),
    "broadcast": lambda t: t[:, 0:1].broadcast(1, 5),
    "dtype": lambda t: t.view(nl.int32),
    "bytes": lambda t: t.view(nl.uint8),
}
EXPECTED = {
    "slice": X[1:3, ::2],
    "permute": X.T,
    "reshape": X.reshape(2, 16),
    "select": X[:, 3],
    "broadcast": np.repeat(X[:, :1], 5, axis=1),
    "dtype": X.view(np.int32),
    "bytes": X.view(np.uint8),
}


@pytest.mark.parametrize("case", VIEWS)
def test_views_of_results(case: str, mode: str) -> None:
    result = simulate(lambda x: VIEWS[case](copied(x)), mode=mode)(X)
    assert result.dtype == EXPECTED[case].dtype and result.flags.c_contiguous
    np.testing.assert_array_equal(result, EXPECTED[case])


@pytest.mark.parametrize("case", VIEWS)
def test_views_of_arguments_are_copies(case: str, mode: str) -> None:
    given = X.copy()
    result = simulate(lambda x: VIEWS[case](x), mode=mode)(given)
    np.testing.assert_array_equal(result, EXPECTED[case])
    assert not np.may_share_memory(result, given)


def test_square_transpose_of_an_argument_is_no_argument(mode: str) -> None:
    square = X[:, :4].copy()
    result = simulate(lambda x: x.permute((1, 0)), mode=mode)(square)
    assert result is not square
    np.testing.assert_array_equal(result, square.T)


def increment(x: Any) -> Any:
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    nl.store(x, tile)
    return x


@pytest.mark.parametrize("make", [X.copy, lambda: np.asfortranarray(X), lambda: X.astype(np.float64)])
@pytest.mark.filterwarnings("ignore:.*narrowed")
def test_a_returned_argument_is_the_callers_array(make: Any, mode: str) -> None:
    given = make()
    assert simulate(increment, mode=mode)(given) is given
    np.testing.assert_array_equal(given, X + 1)


def test_returning_an_untouched_argument(mode: str) -> None:
    given = X.copy()
    given.flags.writeable = False
    first, second = simulate(lambda x: (x, x), mode=mode)(given)
    assert first is given and second is given


def test_constants_stay_constant(mode: str) -> None:
    table = np.arange(6, dtype=np.int32)

    @jit
    def kernel(x: Any) -> Any:
        return nl.shared_constant(table)

    kernel = kernel.with_options(mode=mode)
    first = kernel(X)
    first[:] = 0
    np.testing.assert_array_equal(kernel(X), table)


def test_unwritten_results_are_poisoned(mode: str) -> None:
    def kernel(x: Any) -> Any:
        floats = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(floats[0:2], x[0:2])
        ints = nl.ndarray((3,), nl.int16, buffer=nl.shared_hbm)
        flags = nl.ndarray((3,), nl.bool_, buffer=nl.shared_hbm)
        return floats, ints, flags

    floats, ints, flags = simulate(kernel, mode=mode)(X)
    np.testing.assert_array_equal(floats, np.concatenate([X[:2], np.full((2, 8), np.nan, np.float32)]))
    assert (ints == 4).all() and (flags == 1).all() and flags.dtype == np.bool_


def test_tile_computed_before_a_partly_written_result(mode: str) -> None:
    """Poison of the result must not destroy what a forwarded copy has already put there."""

    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        done = nl.ndarray((4, 8), nl.float32)
        nisa.tensor_scalar(done, tile, nl.multiply, 2.0)
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out[0:4], done)
        return out

    result = simulate(kernel, mode=mode)(X)
    np.testing.assert_array_equal(result[:4], 2 * X)
    assert np.isnan(result[4:]).all()


def test_on_chip_results_are_refused(mode: str) -> None:
    with pytest.raises(
        TileTypeError, match=r"GEN\.R17.*results are HBM tensors\n.*test_results\.py:\d+ +tile = nl\.load"
    ):

        def kernel(x: Any) -> Any:
            tile = nl.load(x)
            return {"a": [tile]}

        simulate(kernel, mode=mode)(X)


def test_results_with_a_dynamic_index_are_refused(mode: str) -> None:
    with pytest.raises(TileTypeError, match=r"GEN\.R17.*dynamic index"):
        simulate(lambda x: copied(x).select(0, nisa.register_alloc(1)), mode=mode)(X)


def test_device_scalars_are_no_results(mode: str) -> None:
    for make in (nisa.register_alloc, lambda: nisa.scalar_load(nl.zeros((1, 1), nl.int32))):
        with pytest.raises(TileTypeError, match=r"GEN\.R17.*results are HBM tensors(.|\n)*_store"):
            simulate(lambda x, make=make: [make()], mode=mode)(X)


def test_private_results_warn_and_strict_refuses(mode: str) -> None:
    def kernel(x: Any) -> Any:
        return copied(x, nl.private_hbm)

    with pytest.warns(TileWarning, match=r"GEN\.R17.*shared_hbm") as caught:
        result = simulate(kernel, mode=mode)(X)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(result, X)
    with pytest.raises(TileTypeError, match=r"GEN\.R17"):
        simulate(kernel, mode=mode, strict=True)(X)


def test_results_of_different_calls_are_different_arrays() -> None:
    kernel = jit(copied)
    first, second = kernel(X), kernel(X + 1)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, X + 1)


def test_precision_high_returns_float32_and_rounds_into_arguments(mode: str) -> None:
    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        nisa.tensor_scalar(tile, tile, nl.multiply, 1.0078125 + 2**-12)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        nl.store(x, tile)
        return out, nl.shared_constant(np.ones(3, ml_dtypes.bfloat16))

    low = X.astype(ml_dtypes.bfloat16)
    result, constant = simulate(kernel, mode=mode, precision="high")(low)
    assert result.dtype == constant.dtype == np.float32
    np.testing.assert_array_equal(result, X * np.float32(1.0078125 + 2**-12))
    np.testing.assert_array_equal(low, result.astype(ml_dtypes.bfloat16))
    assert (constant == 1).all()


# -- torch -------------------------------------------------------------------------------------------------------------


def test_torch_tensors(mode: str) -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.bool):
        given = torch.arange(8).reshape(2, 4).to(dtype)
        result = simulate(copied, mode=mode)(given)
        assert isinstance(result, torch.Tensor) and result.dtype is dtype
        assert torch.equal(result, given)


def test_torch_writes_and_layouts(mode: str) -> None:
    torch = pytest.importorskip("torch")
    given = torch.arange(8, dtype=torch.float32).reshape(2, 4)
    assert simulate(increment, mode=mode)(given) is given
    assert torch.equal(given, torch.arange(1, 9, dtype=torch.float32).reshape(2, 4))
    columns = torch.arange(8, dtype=torch.float32).reshape(4, 2).T
    assert simulate(increment, mode=mode)(columns) is columns
    assert torch.equal(columns, torch.arange(1, 9, dtype=torch.float32).reshape(4, 2).T)
    low = torch.ones(2, 4, dtype=torch.bfloat16)
    simulate(increment, mode=mode)([low][0])
    assert torch.equal(low, torch.full((2, 4), 2.0, dtype=torch.bfloat16))
    leaf = torch.ones(2, 4, requires_grad=True)
    assert simulate(copied, mode=mode)(leaf).requires_grad is False


def test_torch_results_from_mixed_arguments() -> None:
    torch = pytest.importorskip("torch")
    result = simulate(lambda x, y: [copied(x), y])(X, torch.ones(2))
    assert isinstance(result[0], torch.Tensor) and isinstance(result[1], torch.Tensor)


def test_other_frameworks_through_dlpack(mode: str) -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    given = Foreign(X.copy())
    assert simulate(increment, mode=mode)(given) is given
    np.testing.assert_array_equal(given.array, X + 1)
