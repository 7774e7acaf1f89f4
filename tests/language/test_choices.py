"""Where the sources of the language contradict each other or are silent: one test for each choice made.

The table follows language.md sections 10 and 11, what holds while tracing; results are in test_choices_values.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.collectives import ReplicaGroup
from tilelang.devices import get_device
from tilelang.errors import NkiValidationError, TileWarning
from tilelang.ir.context import use_builder
from tilelang.trace.builder import Builder


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
