"""Reports from the field, vector and scalar engines: small inputs, the right outcome, and others of the same kind."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tests.language.reports import refused
from tests.tiles import load, store
from tilelang import simulate
from tilelang.errors import TileRuleError, TileWarning

GENERATOR = np.random.default_rng(11)


# -- reductions


def summed(*tiles: Any) -> Any:
    """Sum of all columns of all tiles, one tile after the other."""
    total = nl.zeros((128, 1), nl.float32)
    part = nl.ndarray((128, 1), nl.float32)
    for x in tiles:
        nisa.tensor_reduce(part, nl.add, load(x), axis=1)
        nisa.tensor_tensor(total, total, part, op=nl.add)
    return store(total)


def test_sums_of_many_weights_are_the_left_to_right_sums(mode: str) -> None:
    """Report 1: `tensor_reduce(add)` over 32 tiles is the sequential float32 sum in every bit."""
    tiles = [GENERATOR.random((128, 128), dtype=np.float32) for _ in range(32)]
    total = np.zeros(128, np.float32)
    for tile in tiles:
        part = tile[:, 0]
        for column in tile.T[1:]:
            part = part + column
        total = total + part
    np.testing.assert_array_equal(simulate(summed, mode=mode)(*tiles)[:, 0].view(np.int32), total.view(np.int32))


@pytest.mark.parametrize(("axis", "shape"), [(2, (128, 4)), ((1, 2), (128, 1)), (-1, (128, 4)), ([2], (128, 4, 1))])
@pytest.mark.parametrize("op", ["add", "maximum"])
def test_axes_are_real_dimensions(axis: Any, shape: tuple[int, ...], op: str, mode: str) -> None:
    """Report 29: `tensor_reduce` over the last dims of [128, 4, 8]."""
    x = GENERATOR.integers(-50, 50, (128, 4, 8)).astype(np.float32)

    def kernel(x: Any) -> Any:
        out = nl.ndarray(shape, nl.float32)
        nisa.tensor_reduce(out, getattr(nl, op), load(x), axis=axis)
        return store(out)

    dims = tuple(axis) if isinstance(axis, list) else axis
    expected = getattr(np, op).reduce(x, axis=dims).reshape(shape)
    np.testing.assert_array_equal(simulate(kernel, mode=mode)(x), expected)


def test_inner_axes_are_reduced_through_a_view(mode: str) -> None:
    """Report 29: axis 1 of [128, 4, 8] is not the last one (tensor_reduce.R2); the view in the hint gives it, for
    `nl.sum` too (LANG.R340).
    """
    x = GENERATOR.integers(-50, 50, (128, 4, 8)).astype(np.float32)

    def kernel(x: Any, view: bool) -> Any:
        data, out = load(x), nl.ndarray((128, 8), nl.float32)
        if view:
            nisa.tensor_reduce(out, nl.add, data.permute((0, 2, 1)), axis=2)
        else:
            nisa.tensor_reduce(out, nl.add, data, axis=1)
        return store(out)

    np.testing.assert_array_equal(simulate(kernel, mode=mode)(x, True), x.sum(axis=1))
    view = simulate(lambda x: store(nl.sum(load(x).permute((0, 2, 1)), axis=2)), mode=mode)(x)
    np.testing.assert_array_equal(view, x.sum(axis=1))
    text = refused(kernel, x, False)
    assert "tensor_reduce.R2" in text and "(128, 4, 8)" in text and "data.permute((0, 2, 1))" in text


# -- broadcasting


def test_a_broadcast_along_a_free_dimension(mode: str) -> None:
    """Report 2: [4, 128, 128] * [4, 128, 1] is exact."""
    x, y = (GENERATOR.standard_normal(shape, dtype=np.float32) for shape in ((4, 128, 128), (4, 128, 1)))
    result = simulate(lambda x, y: store(nl.multiply(load(x), load(y))), mode=mode)(x, y)
    np.testing.assert_array_equal(result, x * y)


@pytest.mark.parametrize(
    ("first", "second"), [((4, 128, 128), (4, 128)), ((8, 16), (8, 4)), ((8, 3, 16), (8, 2, 1)), ((8, 16), (4, 16))]
)
def test_shapes_that_do_not_broadcast_are_named(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """Report 2: [4, 128, 128] * [4, 128] names both shapes."""
    x, y = np.ones(first, np.float32), np.ones(second, np.float32)
    text = refused(lambda x, y: store(nl.multiply(load(x), load(y))), x, y)
    assert str(first) in text and str(second) in text


@pytest.mark.parametrize("shape", [(128, 512), (128, 4, 8)])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_column_operand_proposes_tensor_scalar(shape: tuple[int, ...], swapped: bool) -> None:
    """Report 3: `tensor_tensor` with a [128, 1] column proposes `tensor_scalar`."""

    def kernel(x: Any, column: Any) -> None:
        tile = load(x)
        operands = (load(column), tile) if swapped else (tile, load(column))
        nisa.tensor_tensor(tile, *operands, op=nl.add)

    text = refused(kernel, np.ones(shape, np.float32), np.ones((128, 1), np.float32))
    assert "tensor_scalar" in text and "(128, 1)" in text and str(shape) in text


# -- partitions


@pytest.mark.parametrize("size", [1, 32, 33, 64, 65, 96, 128])
def test_start_partitions(size: int) -> None:
    """Report 4: operands start at partition 0, 0/64 or 0/32/64/96, by their size."""
    allowed = (0, 32, 64, 96) if size <= 32 else (0, 64) if size <= 64 else (0,)
    x = np.ones((128, 4), np.float32)
    for start in range(129 - size):

        def kernel(x: Any, start: int = start) -> Any:
            tile, other = load(x), nl.zeros((size, 4), nl.float32)
            nisa.tensor_tensor(other, tile[start : start + size], other, op=nl.add)
            return store(other)

        if start in allowed:
            assert (simulate(kernel)(x) == 1).all()
            continue
        with pytest.raises(TileRuleError, match=f"partition {start}") as caught:
            simulate(kernel)(x)
        assert "hint" in str(caught.value) and str(allowed[-1]) in str(caught.value)


# -- integers and casts

WORDS = np.array([[0xD2511F53], [2**24 + 1], [2**32 - 1]], np.uint32).repeat(2, axis=1)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("copy", WORDS),
        ("bitwise_xor", WORDS ^ np.uint32(0x9E3779B9)),
        ("bitwise_and", WORDS & np.uint32(0x9E3779B9)),
        ("left_shift", WORDS << np.uint32(5)),
        ("right_shift", WORDS >> np.uint32(5)),
    ],
)
def test_moves_and_bit_operators_keep_32_bits(case: str, expected: Any, mode: str) -> None:
    """Report 6: copies, xor and shifts of large words are exact."""

    def kernel(x: Any) -> Any:
        tile = load(x)
        out = nl.ndarray(tile.shape, nl.uint32)
        if case == "copy":
            nisa.tensor_copy(out, tile)
        else:
            nisa.tensor_scalar(out, tile, getattr(nl, case), 5 if "shift" in case else 0x9E3779B9)
        return store(out)

    np.testing.assert_array_equal(simulate(kernel, mode=mode)(WORDS), expected)


@pytest.mark.parametrize(("op", "operand"), [("add", 1), ("multiply", 3), ("subtract", 7)])
def test_arithmetic_of_words_and_ints_is_exact(op: str, operand: int, mode: str) -> None:
    """Report 6: the vector engine's integer form: 32-bit data and a Python int wrap (isa.md 12.2)."""

    def kernel(x: Any) -> Any:
        tile = load(x)
        nisa.tensor_scalar(tile, tile, getattr(nl, op), operand)
        return store(tile)

    np.testing.assert_array_equal(simulate(kernel, mode=mode)(WORDS), getattr(np, op)(WORDS, np.uint32(operand)))


@pytest.mark.parametrize(("op", "operand"), [("add", 1.0), ("multiply", 3.0)])
def test_arithmetic_of_words_and_floats_goes_through_float32(op: str, operand: float, mode: str) -> None:
    """Report 6: with a float operand the same call computes in float32: it rounds, and saturates at the end."""

    def kernel(x: Any) -> Any:
        tile = load(x)
        nisa.tensor_scalar(tile, tile, getattr(nl, op), operand)
        return store(tile)

    rounded = getattr(np, op)(WORDS.astype(np.float32), np.float32(operand)).astype(np.float64)
    expected = np.minimum(rounded, 2**32 - 1).astype(np.uint32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = simulate(kernel, mode=mode)(WORDS)
    np.testing.assert_array_equal(result, expected)
    if mode != "native":  # which looks at no data
        assert [w.category for w in caught] == [TileWarning] and caught[0].filename == __file__
        assert "cannot hold the integer 4294967295" in str(caught[0].message)


@pytest.mark.parametrize("value", [2**24, 2**24 + 2, 2**31, 0])
def test_integers_that_float32_holds_do_not_warn(value: int) -> None:
    """Report 6: only what is not representable warns."""

    def kernel(x: Any) -> Any:
        tile = load(x)
        nisa.tensor_scalar(tile, tile, nl.multiply, 1.0)
        return store(tile)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (simulate(kernel, mode="debug")(np.full((4, 4), value, np.uint32)) == value).all()


CAST = np.array(
    [[-1.5, -0.5, 0.5, 1.5, 2.5, 127.5, 128.5, 300, -300, -1e10, 1e10, np.inf, -np.inf, np.nan, -np.nan]], np.float32
)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("how", ["tensor_copy", "activation", "dma_copy"])
def test_casts_to_integers(dtype: str, how: str, mode: str) -> None:
    """Report 7: to the nearest even integer, saturating; NaN gives 0."""

    def kernel(x: Any) -> Any:
        tile, out = load(x), nl.ndarray(x.shape, dtype)
        if how == "activation":
            nisa.activation(out, op=nl.copy, data=tile)
        else:
            getattr(nisa, how)(dst=out, src=tile)
        return store(out)

    limits = np.iinfo(dtype)
    expected = [0 if np.isnan(v) else int(np.clip(np.rint(np.float64(v)), limits.min, limits.max)) for v in CAST[0]]
    np.testing.assert_array_equal(simulate(kernel, mode=mode)(CAST), np.array([expected], dtype))


# -- scalar engine


@pytest.mark.parametrize("op", ["copy", "relu", "square"])
@pytest.mark.parametrize("bias", [1.0, "column"])
def test_a_bias_is_never_dropped(op: str, bias: Any, mode: str) -> None:
    """Report 10: `activation(op=copy, bias=ones)` on zeros is 1.0 everywhere."""

    def kernel(x: Any) -> Any:
        tile = load(x)
        given = nl.full((128, 1), 1.0, nl.float32) if bias == "column" else bias
        nisa.activation(tile, op=getattr(nl, op), data=tile, bias=given)
        return store(tile)

    assert (simulate(kernel, mode=mode)(np.zeros((128, 16), np.float32)) == 1).all()


# -- transposes and searches


@pytest.mark.parametrize("shape", [(128, 128), (33, 32), (32, 33), (16, 64)])
def test_large_transposes_on_the_vector_engine(shape: tuple[int, int]) -> None:
    """Report 15: the vector engine transposes 32 x 32; what is larger is refused, nothing is half written."""

    def kernel(x: Any) -> Any:
        tile = nl.ndarray(shape, nl.float32, buffer=nl.psum)
        nisa.tensor_copy(tile, load(x))
        out = nl.ndarray(shape[::-1], nl.float32)
        nisa.nc_transpose(out, tile, engine=nisa.engine.vector)
        return store(out)

    text = refused(kernel, np.ones(shape, np.float32))
    assert "nc_transpose.R2" in text and "32" in text and "hint" in text


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_search_with_duplicates_and_missing_values(dtype: Any, mode: str) -> None:
    """Report 22: equal values find successive places; a value that is not there gives all ones."""
    x = np.zeros((4, 16), np.float32)
    x[:, [3, 7, 12]] = 5
    x[:, 9] = 4
    values = np.array([[5, 5, 5, 4, 77, 0, 0, 5]] * 4, np.float32)

    def kernel(x: Any, values: Any) -> Any:
        out = nl.ndarray((4, 8), nl.uint32)
        nisa.nc_find_index8(out, data=load(x), vals=load(values))
        return store(out)

    result = simulate(kernel, mode=mode)(x.astype(dtype), values.astype(dtype))
    assert result.tolist() == [[3, 7, 12, 9, 2**32 - 1, 0, 1, 2**32 - 1]] * 4
