"""Chains of views visit the same storage elements as the same chains of NumPy views."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from tilelang.dtypes import FORMATS
from tilelang.errors import TileRuleError, TileValueError
from tilelang.ir.handle import collapse
from tilelang.ir.indexing import DynamicSlice
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

REGIONS = (MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm, MemoryRegion.shared_hbm)
EXAMPLES = settings(max_examples=300, deadline=None)


def fresh(shape: tuple[int, ...], region: MemoryRegion, dtype: str = "float32") -> NkiTensor:
    return NkiTensor.over(Storage(shape, FORMATS[dtype], region))


def addresses(tensor: NkiTensor) -> np.ndarray:
    """Storage element of every element of the view, from its fields alone."""
    grid = np.full(tensor.shape, tensor.offset)
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.strides)):
        grid += (np.arange(size) * stride).reshape([-1 if d == dim else 1 for d in range(tensor.ndim)])
    return grid


def walk(pattern: list[tuple[int, int]]) -> np.ndarray:
    offsets = np.zeros(1, dtype=int)
    for count, stride in pattern:
        offsets = (offsets[:, None] + np.arange(count) * stride).ravel()
    return offsets


def expect_same(tensor: NkiTensor, model: np.ndarray) -> None:
    assert tensor.shape == model.shape
    np.testing.assert_array_equal(addresses(tensor), model)
    assert (tensor.size, tensor.ndim) == (model.size, model.ndim)
    assert (model.shape[0], prod(model.shape[1:])) == (tensor.P, tensor.F)
    itemsize, row = tensor.itemsize, tensor.storage.row_bytes
    in_row = model * itemsize % row
    assert tensor.byte_span() == (in_row.min(), in_row.max() + itemsize)
    assert tensor.byte_offset == in_row.flat[0]
    np.testing.assert_array_equal(tensor.offset + walk(tensor.full_pattern()), model.ravel())
    np.testing.assert_array_equal(walk(tensor.free_pattern()), model[0].ravel() - model.flat[0])
    if tensor.on_chip:
        rows = model.reshape(model.shape[0], -1)[:, 0] * itemsize // row
        assert tensor.start_partition == rows[0]
        assert len(rows) == 1 or tensor.partition_step == rows[1] - rows[0]


def indexed(draw: Any, shape: tuple[int, ...], on_chip: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A random key and the NumPy key that means the same (ints on dim 0 of on-chip tensors keep the dim)."""
    key: list[Any] = []
    model: list[Any] = []
    count = draw(st.integers(0, len(shape)))
    cut = draw(st.none() | st.integers(0, count))
    dims = list(range(count)) if cut is None else [*range(cut), *range(len(shape) - count + cut, len(shape))]
    for position, dim in enumerate(dims):
        if position == cut:
            key.append(...)
            model.append(...)
        size = shape[dim]
        start = draw(st.integers(0, size - 1))
        stop = draw(st.integers(start + 1, size))
        kind = draw(st.sampled_from(["int", "negative", "slice", "open", "from_end", "step", "ds", "numpy"]))
        if kind in ("int", "negative", "numpy"):
            value = {"int": start, "negative": start - size, "numpy": np.int32(start)}[kind]
            key.append(value)
            model.append(slice(start, start + 1) if on_chip and dim == 0 else start)
            continue
        item = {
            "slice": slice(start, stop),
            "open": slice(start, None),
            "from_end": slice(start - size, stop - size if stop < size else None),
            "step": slice(start, stop, draw(st.integers(1, 3))),
            "ds": slice(start, stop),
        }[kind]
        key.append(DynamicSlice(start, stop - start) if kind == "ds" else item)
        model.append(item)
    if cut == count:
        key.append(...)
        model.append(...)
    return tuple(key), tuple(model)


def restored(selected: np.ndarray, source: np.ndarray, on_chip: bool) -> np.ndarray:
    least = min(2, source.ndim) if on_chip else 1
    return selected.reshape(selected.shape + (1,) * max(0, least - selected.ndim))


@EXAMPLES
@given(st.data())
def test_chains(data: Any) -> None:
    draw = data.draw
    region = draw(st.sampled_from(REGIONS))
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    tensor = fresh(shape, region)
    model = np.arange(prod(shape)).reshape(shape)
    on_chip = tensor.on_chip
    expect_same(tensor, model)
    for _ in range(draw(st.integers(1, 5))):
        tensor, model = step(draw, tensor, model, on_chip)
        expect_same(tensor, model)


def step(draw: Any, tensor: NkiTensor, model: np.ndarray, on_chip: bool) -> tuple[NkiTensor, np.ndarray]:
    rank = model.ndim
    first = 1 if on_chip else 0
    dim = draw(st.integers(0, rank - 1))
    free = draw(st.integers(first, rank - 1)) if rank > first else None
    size = model.shape[dim]
    method = draw(st.sampled_from(["index", "slice", "select", "permute", "expand", "broadcast", "split", "flatten"]))
    if method == "index":
        key, model_key = indexed(draw, model.shape, on_chip)
        return tensor[key], restored(model[model_key], model, on_chip)
    if method == "slice":
        start = draw(st.integers(0, size - 1))
        end, pace = draw(st.integers(start + 1, size)), draw(st.integers(1, 3))
        return tensor.slice(dim, start, end, pace), model[(slice(None),) * dim + (slice(start, end, pace),)]
    if method == "select":
        index = draw(st.integers(0, size - 1))
        picked = model[:1] + (model[index : index + 1] - model[:1]) if on_chip and dim == 0 else model.take(index, dim)
        return tensor.select(dim, index), restored(picked, model, on_chip)
    if method == "permute":
        order = [*range(first), *draw(st.permutations(range(first, rank)))]
        return tensor.permute(order), model.transpose(order)
    if method == "expand" and rank < 6:
        place = draw(st.integers(first, rank))
        return tensor.expand_dim(place), np.expand_dims(model, place)
    if method == "broadcast" and free is not None and model.shape[free] == 1:
        if draw(st.booleans()) and rank > 1 + first:
            return tensor.squeeze_dim(free), model.squeeze(free)
        wide = draw(st.integers(1, 4))
        return tensor.broadcast(free, wide), np.repeat(model, wide, free)
    if method == "split" and free is not None:
        parts = draw(st.sampled_from([k for k in range(1, model.shape[free] + 1) if model.shape[free] % k == 0]))
        sizes = (parts, model.shape[free] // parts)
        given = draw(st.sampled_from([sizes, (-1, sizes[1]), (sizes[0], -1)]))
        return tensor.reshape_dim(free, given), model.reshape(*model.shape[:free], *sizes, *model.shape[free + 1 :])
    if method == "flatten" and free is not None:
        end = draw(st.integers(free, rank - 1))
        mergeable = all(tensor.strides[d] == tensor.shape[d + 1] * tensor.strides[d + 1] for d in range(free, end))
        if not mergeable:
            with pytest.raises(TileValueError, match=r"LANG\.R214"):
                tensor.flatten_dims(free, end)
            return tensor, model
        return tensor.flatten_dims(free, end), model.reshape(*model.shape[:free], -1, *model.shape[end + 1 :])
    return tensor, model


@EXAMPLES
@given(st.data())
def test_reshape_needs_a_copy_exactly_when_numpy_does(data: Any) -> None:
    draw = data.draw
    region = draw(st.sampled_from(REGIONS))
    tensor = fresh(tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=4))), region)
    on_chip = tensor.on_chip
    model = np.arange(tensor.size).reshape(tensor.shape)
    for _ in range(draw(st.integers(0, 3))):
        tensor, model = step(draw, tensor, model, on_chip)
    head = model.shape[:1] if on_chip else ()
    sizes: list[int] = []
    left = model.size // prod(head)
    while left > 1 or draw(st.booleans()):
        part = draw(st.sampled_from([k for k in range(1, left + 1) if left % k == 0]))
        sizes.append(part)
        left //= part
        if len(sizes) == 4:
            sizes.append(left)
            break
    new = (*head, *sizes) or (1,)
    strided = as_strided(
        np.zeros(tensor.storage.nbytes, np.uint8)[tensor.offset :], tensor.shape, tensor.strides, writeable=False
    )
    rows = strided[0] if on_chip else strided
    try:
        rows.reshape(new[1:] if on_chip else new, copy=False)
        possible = True
    except ValueError:
        possible = False
    if possible:
        expect_same(tensor.reshape(new), model.reshape(new))
    else:
        with pytest.raises(TileValueError, match=r"LANG\.R216"):
            tensor.reshape(new)


@EXAMPLES
@given(st.data())
def test_dtype_views_read_the_same_bytes(data: Any) -> None:
    draw = data.draw
    names = ["float32", "bfloat16", "uint8", "int64", "float8_e4m3fn_x4", "float4_e2m1fn_x4"]
    region = draw(st.sampled_from(REGIONS))
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 4, 8, 12])))
    tensor = fresh(shape, region, draw(st.sampled_from(names)))
    low, high = sorted(draw(st.lists(st.integers(0, shape[2]), min_size=2, max_size=2, unique=True)))
    tensor = tensor[:, :, low:high]
    nbytes = (addresses(tensor)[..., None] * tensor.itemsize + np.arange(tensor.itemsize)).reshape(*shape[:2], -1)
    target = draw(st.sampled_from(names))
    width = FORMATS[target].itemsize
    try:
        view = tensor.view(target)
    except TileRuleError as error:
        assert error.rule == "AP.R10"
        old = tensor.itemsize
        # Size-1 dims have no step, but rows on chip always lie a partition apart.
        steps = [tensor.strides[d] for d in range(2) if tensor.shape[d] > 1 or (d == 0 and tensor.on_chip)]
        assert any(value * old % width for value in (*steps, tensor.shape[-1], tensor.offset))
        return
    assert view.dtype == target
    np.testing.assert_array_equal(
        addresses(view)[..., None] * width + np.arange(width), nbytes.reshape(*view.shape, width)
    )
    again = view.reinterpret_cast(tensor.dtype)
    assert (again.shape, again.offset) == (tensor.shape, tensor.offset)
    np.testing.assert_array_equal(addresses(again), addresses(tensor))


@EXAMPLES
@given(st.data())
def test_static_patterns(data: Any) -> None:
    draw = data.draw
    region = draw(st.sampled_from(REGIONS))
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 24)))
    tensor = fresh(shape, region)
    model = np.arange(prod(shape))
    pairs = draw(st.lists(st.tuples(st.integers(-3, 12), st.integers(1, 4)), min_size=1, max_size=4))
    offset = draw(st.integers(-2, prod(shape)))
    if tensor.on_chip:
        pairs[0] = (shape[1], pairs[0][1])
    grid = offset + walk([(count, step) for step, count in pairs]).reshape([count for _, count in pairs])
    legal = grid.min() >= 0 and grid.max() < model.size
    if tensor.on_chip:
        row = offset // shape[1]
        wanted = (row + np.arange(pairs[0][1])).reshape([-1] + [1] * (len(pairs) - 1))
        legal = legal and bool((grid // shape[1] == wanted).all())
    if not legal:
        with pytest.raises(IndexError, match=r"AP\.R[23]"):
            tensor.ap([list(pair) for pair in pairs], offset=offset)
        return
    view = tensor.ap([list(pair) for pair in pairs], offset=offset)
    expect_same(view, grid)
    assert view.get_pattern() == [list(pair) for pair in pairs]
    other = tensor.reshape((shape[0], 1, shape[1])).ap(pairs, offset)
    np.testing.assert_array_equal(addresses(other), grid)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=4))
def test_collapse_keeps_the_walk(pairs: list[tuple[int, int]]) -> None:
    merged = collapse(tuple(n for n, _ in pairs), tuple(s for _, s in pairs))
    np.testing.assert_array_equal(walk(merged), walk(pairs))
    assert all(n > 1 for n, _ in merged)
    assert all(a[1] != b[0] * b[1] for a, b in pairwise(merged))


@pytest.mark.parametrize("region", REGIONS)
def test_rearrange_matches_its_steps(region: MemoryRegion) -> None:
    tensor = fresh((4, 6, 10), region)
    model = np.arange(240).reshape(4, 6, 10)
    view = tensor.rearrange(("p", ("a", "b"), ("c", "d")), ("p", "c", ("a", "b"), "d"), {"a": 2, "d": 5})
    expect_same(view, model.reshape(4, 2, 3, 2, 5).transpose(0, 3, 1, 2, 4).reshape(4, 2, 6, 5))
    expect_same(tensor.rearrange(("p", "a", "c"), ("p", ("a", "c"))), model.reshape(4, 60))
    if not tensor.on_chip:
        expect_same(tensor.rearrange(("p", "a", "c"), ("c", "a", "p")), model.transpose(2, 1, 0))


def test_reshape_splits_dims_that_do_not_merge() -> None:
    array = fresh((4, 6, 8), MemoryRegion.private_hbm)[:, 0:5, 0:7]
    view = array.reshape((2, 2, 1, 5, 7))
    assert (view.shape, view.strides) == ((2, 2, 1, 5, 7), (96, 48, 40, 8, 1))
    expect_same(view, np.arange(192).reshape(4, 6, 8)[:, 0:5, 0:7].reshape(2, 2, 1, 5, 7))


def test_contiguity() -> None:
    tile = fresh((4, 6, 8), MemoryRegion.sbuf)
    assert tile.is_contiguous() and tile[1:3].is_contiguous() and tile[:, 2:3, 3:5].is_contiguous()
    assert not tile[:, :, 0:4].is_contiguous() and not tile.permute((0, 2, 1)).is_contiguous()
    array = fresh((4, 6, 8), MemoryRegion.private_hbm)
    assert array.is_contiguous() and array[1:3].is_contiguous() and not array[:, 0:2].is_contiguous()
