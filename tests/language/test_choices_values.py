"""Choices where the sources of the language are silent that show in results: one test for each.

The table follows language.md section 11; what holds while tracing is in test_choices.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tests.tiles import load, store
from tilelang import jit, simulate
from tilelang.errors import TileRuleError, TileTypeError

MODES = ("native", "reference", "debug")
X = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)


def hbm(*shape: int, dtype: str = "float32") -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


# -- values, in every mode --------------------------------------------------------------------------------------------


@dataclass
class Inputs(nl.NKIObject):
    first: Any
    rest: tuple[Any, ...]


def arrays_in_containers(x: Any) -> Any:
    given = Inputs(x, (x + 1, {"key": [x + 2]}))

    def kernel(inputs: Any) -> Any:
        return [store(load(a)) for a in (inputs.first, inputs.rest[0], inputs.rest[1]["key"][0])]

    return kernel, (given,), [x, x + 1, x + 2]


def unwritten_integers(x: Any) -> Any:
    def kernel() -> Any:
        return hbm(2, 2, dtype="int32"), hbm(2, 2, dtype="bool"), hbm(2, 2)

    return kernel, (), [np.full((2, 2), 4, np.int32), np.ones((2, 2), bool), np.full((2, 2), np.nan, np.float32)]


def zero_dim_arrays(x: Any) -> Any:
    def kernel(x: Any) -> Any:
        assert x.shape == (1,)
        out = nl.ndarray((1,), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    return kernel, (np.array(3, np.float32),), np.array([3], np.float32)


def nested_results(x: Any) -> Any:
    def kernel(x: Any) -> Any:
        return {"a": store(load(x)), "b": [store(load(x)), (7, "text")]}

    return kernel, (x,), {"a": x, "b": [x, (7, "text")]}


def assignment_copies(x: Any) -> Any:
    def kernel(x: Any) -> Any:
        tile = nl.zeros((128, 8), nl.bfloat16)
        tile[:, 0:4] = load(x)[:, 4:8]
        tile[:, 6:8] = 2.5
        return store(tile)

    expected = np.zeros((128, 8), ml_dtypes.bfloat16)
    expected[:, 0:4], expected[:, 6:8] = x[:, 4:8], 2.5
    return kernel, (x,), expected


def narrowed_arguments(x: Any) -> Any:
    return (
        lambda a, b: [store(load(a)), store(load(b))],
        (x.astype(np.float64), x.astype(np.int64)),
        [
            x,
            x.astype(np.int32),
        ],
    )


def nan_to_int_and_fp8_overflow(x: Any) -> Any:
    given = np.array([[np.nan, 1e6, -1e6, 300.0]], np.float32)

    def kernel(x: Any) -> Any:
        tile, out = load(x), []
        for dtype in (nl.int32, nl.float8_e4m3, nl.float8_e5m2):
            cast = nl.ndarray((1, 4), dtype)
            nisa.tensor_copy(cast, tile)
            out.append(store(cast))
        return out

    with np.errstate(all="ignore"):
        low = [given.astype(dtype) for dtype in (ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2)]
    return kernel, (given,), [np.array([[0, 10**6, -(10**6), 300]], np.int32), *low]


def packed_order(x: Any) -> Any:
    given = np.arange(128 * 4, dtype=np.int64).reshape(128, 4).astype(np.uint8)

    def kernel(x: Any) -> Any:
        tile = load(x)
        assert tile.view(nl.float8_e4m3fn_x4).shape == (128, 1)
        return store(tile.view(nl.uint32))

    return kernel, (given,), given.view("<u4")


def pattern_stride_of_a_reshaped_view(x: Any) -> Any:
    def kernel(x: Any) -> Any:
        row = nl.full((1, 1), 3, nl.int32)
        tile = nl.ndarray((2, 8), nl.float32)
        nisa.dma_copy(dst=tile, src=x.reshape((64, 16)).ap([[8, 2], [1, 8]], scalar_offset=row, indirect_dim=0))
        return store(tile)

    return kernel, (x,), x.reshape(64, 16)[3].reshape(2, 8)


def population_variance(x: Any) -> Any:
    return lambda x: store(nl.var(load(x), axis=1)), (x,), x.var(axis=1, keepdims=True)


def bounds_are_read_at_the_start(x: Any) -> Any:
    def kernel() -> Any:
        total, end = nl.zeros((1, 1), nl.float32), nisa.register_alloc(3)

        def body(i: Any) -> None:
            nisa.register_move(end, 9)
            nisa.tensor_scalar(total, total, nl.add, 1.0)

        nl.fori_loop(0, end, body)
        return store(total)

    return kernel, (), np.full((1, 1), 3, np.float32)


def new_registers_are_zero(x: Any) -> Any:
    def kernel() -> Any:
        tile = nl.ndarray((1, 1), nl.int32)
        nisa.register_store(tile, nisa.register_alloc(None))
        return store(tile)

    return kernel, (), np.zeros((1, 1), np.int32)


def register_sums(x: Any) -> Any:
    def kernel() -> Any:
        tile, first = nl.ndarray((1, 1), nl.int32), nisa.register_alloc(7)
        nisa.register_store(tile, 3 * first - first + 2**31 - 1)
        return store(tile)

    return kernel, (), np.array([[14 + 2**31 - 1 - 2**32]], np.int32)


VALUES = [
    ("11.3", arrays_in_containers),
    ("11.4", unwritten_integers),
    ("11.6", zero_dim_arrays),
    ("11.7", nested_results),
    ("11.17", assignment_copies),
    ("11.20", pattern_stride_of_a_reshaped_view),
    ("11.21 64 bits", narrowed_arguments),
    ("11.21 packing", packed_order),
    ("11.22", nan_to_int_and_fp8_overflow),
    ("11.28 variance", population_variance),
    ("11.30", bounds_are_read_at_the_start),
    ("11.31 value", new_registers_are_zero),
    ("11.31 arithmetic", register_sums),
]


def assert_same(result: Any, expected: Any) -> None:
    assert type(result) is type(expected) or isinstance(expected, np.ndarray)
    if isinstance(expected, dict):
        assert list(result) == list(expected)
        result, expected = list(result.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert result.dtype == expected.dtype and result.shape == expected.shape
        wide = [a.astype(np.float64) for a in (result, expected)]
        np.testing.assert_allclose(*wide, rtol=1e-6)
    else:
        assert result == expected


@pytest.mark.filterwarnings("ignore::tilelang.errors.TileWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("row", "make"), VALUES, ids=[row for row, _ in VALUES])
def test_values(row: str, make: Callable[[Any], Any], mode: str) -> None:
    kernel, args, expected = make(X)
    result = simulate(kernel, mode=mode, nki="0.6" if make is register_sums else "0.7")(*args)
    assert_same(list(result) if isinstance(result, tuple) else result, expected)


# -- calls ------------------------------------------------------------------------------------------------------------


def test_targets_of_older_sources() -> None:
    """11.1: `platform_target=` is taken, with a warning."""
    with pytest.warns(DeprecationWarning, match="platform_target"):
        kernel = jit(lambda x: store(load(x)), platform_target="trn1")
    np.testing.assert_array_equal(kernel(X), X)


def test_kernels_without_tensors() -> None:
    """11.2: they run, and give NumPy arrays."""
    result = jit(lambda n: store(nl.full((n, n), 2.0, nl.float32)))(4)
    assert isinstance(result, np.ndarray) and (result == 2).all()


def test_the_environment_is_read_at_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """11.8: a variable set after the import counts."""

    @jit
    def kernel(x: Any) -> Any:
        return store(nl.full((1, 1), float(nl.tile_size.sbuf_fmax_bytes), nl.float32))

    for target, size in (("trn1", 180224), ("trn3", 245752), ("trn2", 212984)):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        assert kernel(X) == size


def test_truth_of_tensors_needs_debug_mode() -> None:
    """11.14 and rulings 10: `bool(tensor)` is known in debug mode only; all elements non-zero."""

    def kernel(x: Any) -> Any:
        tile = load(x)
        seen.append((bool(nl.equal(tile, tile)), bool(nl.less(tile, tile))))
        return store(tile)

    seen: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        simulate(kernel, mode="debug")(X)
    assert seen == [(True, False)]
    with pytest.raises(TypeError, match="debug"):
        simulate(kernel)(X)


def test_shared_results_of_two_cores() -> None:
    """11.7 and 11.33: the result is core 0's; `shared_hbm` tensors of one place are one tensor."""

    @jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray((2, 128, 8), nl.float32, buffer=nl.shared_hbm)
        tile = load(x)
        core = nl.program_id(0)
        nisa.tensor_scalar(tile, tile, nl.add, float(core))
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    np.testing.assert_array_equal(kernel[2](X), [X, X + 1])


def test_strict_refuses_wide_tensors_at_once() -> None:
    """11.10: with strict, more than 128 partitions are refused when the tensor is made."""

    def kernel() -> None:
        nl.ndarray((129, 8), nl.float32)

    with pytest.raises(TileRuleError, match="128"):
        simulate(kernel, strict=True)()


@pytest.mark.parametrize("schedule", [[("a",)], ["ab"], [(1, 2)], [("a", [])]])
def test_malformed_schedules(schedule: Any) -> None:
    """11.36: edges that are no pairs of names are refused at once."""
    with pytest.raises(TileTypeError, match="edge"):
        jit(lambda x: store(load(x))).with_schedule(schedule)
