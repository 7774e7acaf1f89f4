"""Tensors as Python objects, their layout signature, and the dynamic part of addresses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilelang.dtypes import FORMATS
from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir import hooks
from tilelang.ir.dynamic import Dynamic
from tilelang.ir.indexing import DynamicSlice
from tilelang.ir.regions import MemoryRegion, is_hbm, is_on_chip, is_psum, is_sbuf, region_of
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

SBUF, PSUM, HBM, SHARED = MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm, MemoryRegion.shared_hbm


def make(shape: Any, region: MemoryRegion = SBUF, dtype: str = "float32", **options: Any) -> NkiTensor:
    return NkiTensor.over(Storage(shape, FORMATS[dtype], region, **options))


def dynamic(view: NkiTensor) -> Dynamic:
    assert view.dynamic is not None
    return view.dynamic


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Storage, np.ndarray]]:
    """A value reader over a dict of arrays, as debug mode installs one."""
    memory: dict[Storage, np.ndarray] = {}

    def read(item: Any) -> Any:
        if not isinstance(item, NkiTensor):
            return 7
        flat = memory[item.storage].ravel()[item.offset :]
        return np.lib.stride_tricks.as_strided(flat, item.shape, [s * flat.itemsize for s in item.strides])

    monkeypatch.setattr(hooks, "value_reader", read)
    yield memory


def test_regions() -> None:
    assert MemoryRegion.hbm is MemoryRegion.private_hbm
    assert [member.value for member in MemoryRegion] == ["sbuf", "psum", "private_hbm", "shared_hbm"]
    assert [is_hbm(r) for r in MemoryRegion] == [False, False, True, True]
    assert [is_on_chip(r) for r in MemoryRegion] == [True, True, False, False]
    assert [is_psum(r) for r in MemoryRegion] == [False, True, False, False]
    assert [is_sbuf(r) for r in MemoryRegion] == [True, False, False, False]
    assert pickle.loads(pickle.dumps(PSUM)) is PSUM and {SBUF: 1}[MemoryRegion("sbuf")] == 1
    with pytest.warns(UserWarning, match=r"LANG\.R228"):
        assert region_of("hbm") is HBM


@pytest.mark.parametrize(
    ("shape", "region", "partitions", "row_elements", "strides"),
    [
        ((64, 64, 64), SBUF, 64, 4096, (4096, 64, 1)),
        ((128, 64), PSUM, 128, 64, (64, 1)),
        ((5,), SBUF, 5, 1, (1,)),
        ((256, 8), SBUF, 256, 8, (8, 1)),
        ((3, 4, 5), HBM, 1, 60, (20, 5, 1)),
    ],
)
def test_fresh_tensors(shape: Any, region: Any, partitions: int, row_elements: int, strides: Any) -> None:
    tensor = make(shape, region, "bfloat16", name="t")
    storage = tensor.storage
    assert (storage.partitions, storage.row_elements, storage.row_bytes) == (partitions, row_elements, 2 * row_elements)
    assert storage.nbytes == 2 * tensor.size and storage.index == -1 and storage.data is None
    assert (tensor.shape, tensor.strides, tensor.offset, tensor.dtype) == (shape, strides, 0, "bfloat16")
    assert (tensor.buffer, tensor.name, tensor.data) == (region, "t", tensor)
    assert tensor.is_contiguous() and not tensor.is_indirect()
    same = NkiTensor(shape, "bfloat16", storage, region, "t")
    assert same.key == tensor.key and same != tensor


def test_constructor_must_agree_with_the_storage() -> None:
    storage = Storage((4, 8), FORMATS["float32"], PSUM, name="a", address=(0, 2048))
    assert NkiTensor((4, 4), "int32", storage, PSUM, "a", (0, 2048)).strides == (8, 1)
    for options in ({"buffer": SBUF}, {"buffer": PSUM, "name": "b"}, {"buffer": PSUM, "address": (0, 0)}):
        with pytest.raises(TileValueError, match="psum"):
            NkiTensor((4, 8), "float32", storage, **options)


def test_documented_index_shapes() -> None:
    tile = make((64, 64, 64))
    assert tile[0, 0, 10].shape == (1, 1)
    assert tile[:, 0].shape == (64, 64)
    assert tile[:, 0, 10].shape == (64, 1)
    assert tile[0].shape == (1, 64, 64)
    assert tile[0, ..., :].shape == (1, 64, 64)
    assert tile[()].shape == tile[...].shape == (64, 64, 64)
    array = make((64, 64), HBM)
    assert array[3].shape == (64,) and array[3, 4].shape == (1,) and array[3][4].offset == 3 * 64 + 4
    assert tile.select(0, 3).shape == (1, 64, 64) and array.select(0, 3).shape == (64,)
    assert make((64, 8)).select(1, 3).shape == (64, 1)
    window = DynamicSlice(4, 8)
    assert (window.start, window.size, window.stop, repr(window)) == (4, 8, 12, "nl.ds(4, 8)")


def test_expand_dim_strides() -> None:
    array = make((4, 6), HBM)
    assert array.expand_dim(0).strides == (24, 6, 1)
    assert array.expand_dim(1).strides == (6, 6, 1)
    assert array.expand_dim(2).strides == (6, 1, 1)


def test_identity_semantics() -> None:
    tensor = make((4, 4))
    assert (tensor == None) is False and (tensor != None) is True  # noqa: E711
    assert (tensor == tensor) is True and (tensor[...] == tensor[...]) is False
    assert len({tensor, tensor, tensor[...]}) == 2 and tensor in [tensor]
    assert not isinstance(tensor, int)
    assert len(tensor) == 4 and [row.offset for row in tensor] == [0, 4, 8, 12]
    assert repr(tensor) == "<NkiTensor sbuf float32[4, 4]>"


def test_copies_of_objects_keep_the_storage() -> None:
    tensor, register = make((4, 4)), VirtualRegister(0)
    holder = {"tensor": tensor, "register": register}
    for duplicate in (copy.deepcopy(holder), copy.copy(holder)):
        assert duplicate["tensor"] is tensor and duplicate["register"] is register
    assert copy.copy(tensor) is tensor and copy.deepcopy(tensor.storage) is tensor.storage


def test_content_in_debug_mode(reader: dict[Storage, np.ndarray]) -> None:
    tensor = make((2, 3), HBM)
    reader[tensor.storage] = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(tensor[:, 1:]), [[1, 2], [4, 5]])
    assert np.asarray(tensor, dtype=np.int32).dtype == np.int32
    assert np.array(tensor, copy=True) is not reader[tensor.storage]
    with pytest.raises(ValueError, match="copy"):
        tensor.__array__(np.int32, copy=False)
    assert bool(tensor[1]) and not bool(tensor[0])
    element = tensor[1, 2]
    assert (element.item(), int(element), float(element)) == (5.0, 5, 5.0)
    with pytest.raises(TileValueError, match="6 elements"):
        tensor.item()
    assert "[0. 1. 2.]" in str(tensor) and "[0. 1. 2.]" in repr(tensor)
    assert repr(VirtualRegister(0)) == "VirtualRegister() = 7"


def test_hooks_receive_what_the_kernel_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(hooks, "assign", lambda view, value: seen.append((view.shape, view.offset, value)))
    monkeypatch.setattr(hooks, "tensor_op", lambda symbol, left, right: (symbol, left, right))
    tensor = make((4, 8))
    tensor[1:3, 2:4] = 5.0
    assert seen == [((2, 2), 10, 5.0)]
    assert tensor + 1 == ("+", tensor, 1) and 2 - tensor == ("-", 2, tensor)
    assert (tensor <= 3) == ("<=", tensor, 3)


def test_placement() -> None:
    tile = make((64, 32), PSUM, "bfloat16", address=(64, 4096))
    view = tile[3:, 5:]
    assert (view.start_partition, view.byte_offset, view.partition_step) == (67, 10, 1)
    assert tile[::2].partition_step == 2 and tile[0:1].partition_step == 1
    array = make((4, 8), HBM)
    assert (array[2].byte_offset, array[2].start_partition, array.partition_step) == (64, 0, 0)
    assert make((4, 8))[:, 3:5].byte_span() == (12, 20) and array[1:3, 3:5].byte_span() == (44, 84)


def test_keys_tell_layouts_apart() -> None:
    tile = make((64, 32), PSUM, "bfloat16")
    assert tile[:, 0:8].key == make((64, 32), PSUM, "bfloat16")[:, 0:8].key
    different = [
        tile[:, 0:8],
        tile[:, 1:9],
        tile[1:, 0:8],
        tile[:, 0:16:2],
        tile[:, 0:8].view("int16"),
        make((64, 64), PSUM, "bfloat16")[:, 0:8],
        make((64, 32), SBUF, "bfloat16")[:, 0:8],
        make((64, 32), HBM, "bfloat16")[:, 0:8],
        make((64, 32), HBM, "bfloat16", kind="constant")[:, 0:8],
        tile.reshape((64, 4, 8))[:, VirtualRegister(0)],
        tile.reshape((64, 4, 8))[:, NkiScalar(0)],
        tile.reshape((64, 4, 8))[:, make((1, 1), dtype="int32")],
        tile.reshape((64, 4, 8))[:, make((1, 1), dtype="int8")],
        tile[:, 0:8].indirect(make((64, 4), dtype="int32"), 8),
        tile[:, 0:9].indirect(make((64, 4), dtype="int32"), 8),
    ]
    assert len({view.key for view in different}) == len(different)
    assert make((64, 32))[:, 0:8].key == make((64, 32))[:, 8:16].key


@pytest.mark.parametrize(
    "index", [VirtualRegister(0), NkiScalar(0), NkiScalar(0, "int64"), make((1, 1), dtype="int32")]
)
def test_scalar_index_of_hbm(index: Any) -> None:
    array = make((10, 4, 8), HBM)
    for view in (array[index], array.select(0, index), array[index, ...]):
        moving = dynamic(view)
        assert (view.shape, view.strides, view.offset) == ((4, 8), (8, 1), 0)
        assert (moving.kind, moving.source, moving.multiplier, moving.limit) == ("scalar", index, 32, 10)
        assert moving.byte_multiplier == 128 and view.dynamic_range() == (0, 10)
        assert view.is_indirect() and view.byte_span() == (0, 1280)
    assert array[index, 2, 3:5].offset == 19 and array[index, 2, 3:5].dynamic_range() == (0, 10)


def test_scalar_index_on_chip() -> None:
    tile = make((64, 4, 8))
    register = VirtualRegister(3)
    assert tile[:, register].shape == (64, 8) and tile[:, :, register].shape == (64, 4)
    assert make((64, 8))[:, register].shape == (64, 1)
    view = tile[0:32, register, 2:4]
    assert view.offset == 2 and dynamic(view).multiplier == 8 and view.byte_span() == (8, 112)


def test_scalar_offset_is_the_product_of_the_trailing_shape() -> None:
    array = make((512, 512), HBM)
    register = VirtualRegister(0)
    view = array.ap([[512, 128], [1, 256]], scalar_offset=register, indirect_dim=0)
    moving = dynamic(view)
    assert (moving.multiplier, moving.limit, moving.dim, moving.base) == (512, 512, 0, array)
    # Row 384 is the last at which 128 rows still fit.
    assert view.dynamic_range() == (0, 385) and view.byte_span() == (0, 4 * (511 * 512 + 256))
    columns = make((128, 512)).ap([[512, 128], [1, 4]], scalar_offset=register, indirect_dim=1)
    assert dynamic(columns).multiplier == 1 and columns.dynamic_range() == (0, 509)
    rows = array.reshape((256, 1024)).ap([[1024, 1], [1, 4]], 8, register)
    assert (rows.offset, dynamic(rows).multiplier, rows.dynamic_range()) == (8, 1024, (0, 256))


def test_scalar_offset_with_another_dtype_counts_base_elements() -> None:
    array = make((16, 64), HBM, "bfloat16")
    view = array.ap([[1, 8]], scalar_offset=VirtualRegister(0), indirect_dim=1, dtype="float32")
    assert view.dtype == "float32" and dynamic(view).byte_multiplier == 2
    assert view.dynamic_range() == (0, 64)
    assert array[1:].ap([[1, 1]], dtype="float32").offset == 32


def test_backward_walks_bound_the_index() -> None:
    array = make((8, 4), HBM)
    back = array.ap([[-4, 8], [1, 4]], offset=28)
    view = back[VirtualRegister(0)]
    assert dynamic(view).byte_multiplier == -16 and view.offset == 28
    assert view.dynamic_range() == (0, 8) and view.byte_span() == (0, 128)


def test_gathered_rows() -> None:
    array = make((1000, 4, 8), HBM)
    index = make((128, 1), dtype="int32")
    view = array.vector_select(0, index)
    moving = dynamic(view)
    assert (view.shape, view.strides) == ((128, 4, 8), (0, 8, 1))
    assert (moving.kind, moving.source, moving.multiplier, moving.limit) == ("vector", index, 32, 1000)
    part = view[:, 1, 2:4]
    assert (part.shape, part.offset, part.dynamic) == ((128, 2), 10, moving)
    assert part.dynamic_range() == (0, 1000) and part.byte_span() == (40, 4 * (999 * 32 + 12))
    assert part.full_pattern() == [(128, 0), (2, 1)]
    flat = array.reshape((1000, 32)).ap([[7, 128], [1, 16]], offset=16, vector_offset=index)
    assert (flat.shape, flat.strides, flat.offset) == ((128, 16), (0, 1), 16)
    assert dynamic(flat).multiplier == 32 and flat.dynamic_range() == (0, 1000)
    line = make((100,), HBM).ap([[1, 128]], vector_offset=index)
    assert dynamic(line).multiplier == 1
    many = make((500, 16), HBM, "bfloat16").ap([[16, 256], [1, 16]], vector_offset=make((128, 2), dtype="uint32"))
    assert many.shape == (256, 16)


def test_gathered_columns() -> None:
    tile = make((64, 4, 8))
    index = make((64, 4), dtype="uint16")
    view = tile.indirect(index)
    moving = dynamic(view)
    assert (view.shape, moving.kind, moving.limit, moving.base) == ((64, 64), "indirect", 32, tile)
    assert view.dynamic_range() == (0, 32) and view.byte_span() == tile.byte_span()
    assert tile.indirect(index, 100).shape == (64, 100)
    assert make((8, 16)).indirect(make((8, 2), dtype="int32")).shape == (8, 16)


def test_static_views_have_no_dynamic_range() -> None:
    with pytest.raises(TileTypeError, match="no dynamic index"):
        make((4, 4)).dynamic_range()
