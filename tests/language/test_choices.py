"""Where the sources of the language contradict each other or are silent: one test for each choice made.

The tables follow language.md sections 10 and 11 row by row; `docs/decisions.md` and the specification give the reasons.
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
from tilelang.collectives import ReplicaGroup
from tilelang.devices import get_device
from tilelang.errors import NkiValidationError, TileRuleError, TileTypeError, TileWarning
from tilelang.ir.context import use_builder
from tilelang.trace.builder import Builder

MODES = ("native", "reference", "debug")
X = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)


def sbuf(*shape: int, dtype: str = "float32", **options: Any) -> Any:
    return nl.ndarray(shape, dtype, **options)


def hbm(*shape: int, dtype: str = "float32") -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def psum(*shape: int) -> Any:
    return nl.ndarray(shape, "float32", buffer=nl.psum)


def warned(function: Callable[[], Any], match: str = "") -> Any:
    with pytest.warns((TileWarning, DeprecationWarning), match=match):
        return function()


# -- what holds while tracing: section 10 -----------------------------------------------------------------------------


def pattern_offset_is_added() -> None:
    assert hbm(8, 8)[2].reshape((8,)).ap([[1, 4]], offset=3).offset == 19


def address_is_in_bytes() -> None:
    tile = sbuf(128, 8, address=(0, 64))
    assert tile.storage.address == (0, 64)


def none_is_compared_with_is() -> None:
    tile = sbuf(8, 8)
    assert (tile is not None) and (tile != None)  # noqa: E711
    assert (tile == None) is False  # noqa: E711


def an_int_on_the_partition_dim_keeps_it() -> None:
    assert sbuf(64, 64, 64)[0].shape == (1, 64, 64)
    assert hbm(64, 64, 64)[0].shape == (64, 64)


def likes_keep_the_memory() -> None:
    assert nl.zeros_like(psum(8, 8)).buffer is nl.psum
    assert nl.zeros_like(hbm(8, 8)).buffer is nl.shared_hbm


def wrappers_broadcast_free_dims() -> None:
    assert nl.add(sbuf(128, 4, 8), sbuf(128, 1, 8)).shape == (128, 4, 8)
    assert nl.add(sbuf(128, 512), sbuf(128, 1)).shape == (128, 512)


def copies_land_in_sbuf() -> None:
    assert nl.copy(psum(128, 8)).buffer is nl.sbuf


def registers_move_from_ints_and_registers() -> None:
    register = nisa.register_alloc(3)
    nisa.register_move(register, 4)
    nisa.register_move(register, nisa.register_alloc(5))


def registers_compute_before_0_7() -> None:
    register = nisa.register_alloc(3)
    for function in (lambda r: r + 1, lambda r: 2 * r, lambda r: r - r, lambda r: -r, lambda r: r % 2):
        with pytest.raises(TypeError, match="registers have no arithmetic"):
            function(register)
    with use_builder(Builder(get_device("trn2"), nki="0.6")):
        register = nisa.register_alloc(3)
        assert type(warned(lambda: 2 * register - 1, r"reg\.R3")) is type(register)
        with pytest.raises(TypeError, match="operator %"):
            _ = register % 2


def static_ranges_are_ranges() -> None:
    assert nl.affine_range(3) == nl.sequential_range(3) == nl.static_range(3) == nl.range(3) == range(3)


def trn2_has_28_mib() -> None:
    assert nl.tile_size.sbuf_size_bytes == 28 << 20


def no_grid_has_no_dims() -> None:
    assert nl.program_ndim() == 0 and nl.num_programs() == 1 and nl.program_id(0) == 0


def shapes_are_tuples() -> None:
    assert sbuf(8, 4).shape == (8, 4)
    assert type(sbuf(8, 4).shape) is tuple and sbuf(8, 4).shape != [8, 4]


# -- what holds while tracing: section 11 -----------------------------------------------------------------------------


def sizes() -> None:
    size = nl.tile_size
    assert (size.psum_min_align, size.sbuf_min_align, size.sbuf_fmax_bytes) == (4, 1, 212984)


def many_partitions_fail_at_first_use() -> None:
    tile = sbuf(129, 8)
    with pytest.raises(AssertionError, match=r"dst.* 129 exceeds maximum 128"):
        nisa.memset(tile, 0.0)


def filled_tensors_in_hbm() -> None:
    assert nl.zeros((4, 4), nl.float32, buffer=nl.shared_hbm).buffer is nl.shared_hbm


def identity_into_a_tile() -> None:
    tile = sbuf(16, 16)
    assert nl.shared_identity_matrix(16, nl.float32, dst=tile) is tile


def no_operators_between_tensors() -> None:
    tile = sbuf(8, 8)
    for function in (lambda: tile + tile, lambda: tile * 2, lambda: -tile, lambda: tile @ tile):
        with pytest.raises(TypeError):
            function()
    assert len(tile) == 8 and [part.shape for part in tile] == [(1, 8)] * 8


def slices_beyond_the_end_are_errors() -> None:
    with pytest.raises(IndexError, match="4:12"):  # nki-0.7.md section 3; cutting is an option: tests/ir/test_rules.py
        _ = sbuf(8, 8)[:, 4:12]
    strided = sbuf(8, 8)[0:8:2]
    assert strided.shape == (4, 8)
    with pytest.raises(NkiValidationError):
        nisa.memset(strided, 0.0)


def registers_as_indices() -> None:
    register = nisa.register_alloc(1)
    assert sbuf(8, 4, 4)[:, register].shape == sbuf(8, 4, 4).select(1, register).shape == (8, 4)


def select_keeps_the_partition_dim() -> None:
    assert sbuf(8, 4).select(0, 3).shape == (1, 4)
    assert hbm(8, 4).select(0, 3).shape == (4,)


def bool_is_a_string() -> None:
    assert nl.bool_ == "bool" and str(nl.bfloat16) == "bfloat16"


def average_is_a_token() -> None:
    with pytest.raises(TypeError, match=r"nl\.average is an operator"):
        nl.average(1.0)


def dtypes_of_binary_wrappers() -> None:
    low, high = sbuf(8, 8, dtype="bfloat16"), sbuf(8, 8)
    assert nl.add(low, high).dtype == "float32" and nl.add(low, 1.5).dtype == "bfloat16"
    assert nl.add(low, sbuf(8, 8, dtype="float16")).dtype == "float32"


def stores_from_psum_and_numbers_in_where() -> None:
    nl.store(hbm(8, 8), psum(8, 8))
    assert nl.where(sbuf(8, 8), 1.0, sbuf(8, 8)).shape == (8, 8)
    with pytest.raises((TypeError, ValueError, AssertionError)):
        nl.gather_flattened(sbuf(8, 8), sbuf(8, 4, dtype="uint32"), axis=1)


def full_reductions_have_a_column() -> None:
    assert nl.sum(sbuf(8, 4, 4), axis=(1, 2)).shape == (8, 1)


def lints_are_not_errors() -> None:
    squares = [i * i for i in range(3)]
    assert (total := sum(squares)) == 5 and (lambda value: value + 1)(total) == 6


def registers_are_no_python_numbers() -> None:
    register = nisa.register_alloc(None)
    for function in (int, float, range, lambda r: [1, 2][r], lambda r: r < 1 and None):
        with pytest.raises(TypeError):
            function(register)


def groups_have_replica_groups() -> None:
    assert ReplicaGroup([[0, 1], [2, 3]]).replica_groups == ReplicaGroup([[0, 1], [2, 3]]).replica_groups


TRACED = [
    ("10 ap offset", pattern_offset_is_added),
    ("10 address unit", address_is_in_bytes),
    ("10 is None", none_is_compared_with_is),
    ("10 int index on P", an_int_on_the_partition_dim_keeps_it),
    ("10 zeros_like", likes_keep_the_memory),
    ("10 broadcasting, 11.26", wrappers_broadcast_free_dims),
    ("10 nl.copy", copies_land_in_sbuf),
    ("10 register_move", registers_move_from_ints_and_registers),
    ("10 register ALU", registers_compute_before_0_7),
    ("10 static ranges", static_ranges_are_ranges),
    ("10 SBUF of trn2", trn2_has_28_mib),
    ("10 program_ndim", no_grid_has_no_dims),
    ("10 shapes", shapes_are_tuples),
    ("11.9", sizes),
    ("11.10", many_partitions_fail_at_first_use),
    ("11.11", filled_tensors_in_hbm),
    ("11.13", identity_into_a_tile),
    ("11.14", no_operators_between_tensors),
    ("11.15", slices_beyond_the_end_are_errors),
    ("11.16", registers_as_indices),
    ("11.18", select_keeps_the_partition_dim),
    ("11.21 bool_", bool_is_a_string),
    ("11.23", average_is_a_token),
    ("11.25", dtypes_of_binary_wrappers),
    ("11.27", stores_from_psum_and_numbers_in_where),
    ("11.28 shape", full_reductions_have_a_column),
    ("11.31 registers", registers_are_no_python_numbers),
    ("11.32", lints_are_not_errors),
    ("11.35 field", groups_have_replica_groups),
]


@pytest.mark.filterwarnings("ignore::tilelang.errors.TileWarning")
@pytest.mark.parametrize(("row", "check"), TRACED, ids=[row for row, _ in TRACED])
def test_while_tracing(row: str, check: Callable[[], None]) -> None:
    with use_builder(Builder(get_device("trn2"))):
        check()


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
    kernel = warned(lambda: jit(lambda x: store(load(x)), platform_target="trn1"), "platform_target")
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
