"""Every rule of storages and views: a call that just breaks it, with its message, and one that just does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilelang.dtypes import FORMATS
from tilelang.errors import NkiValidationError, TileError, TileWarning
from tilelang.ir import hooks
from tilelang.ir.context import use_builder
from tilelang.ir.indexing import DynamicSlice
from tilelang.ir.regions import MemoryRegion, region_of
from tilelang.ir.rules import RULES, WARNINGS
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

SBUF, PSUM, HBM = MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm
F32 = FORMATS["float32"]


def make(shape: Any, region: MemoryRegion = SBUF, dtype: str = "float32", **options: Any) -> NkiTensor:
    return NkiTensor.over(Storage(shape, FORMATS[dtype], region, **options))


@pytest.fixture(autouse=True)
def no_hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("value_reader", "assign", "tensor_op", "scalar_op", "register_op", "register_truth"):
        monkeypatch.setattr(hooks, name, None)
    monkeypatch.setattr(hooks, "warn", hooks._warn)
    monkeypatch.setattr(hooks, "clamp_slices", False)
    yield


T = make((128, 512), name="x")
T3 = make((64, 4, 32))
COLUMN = make((128, 1))
PS = make((128, 512), PSUM)
H = make((100, 64), HBM, name="h")
H1 = make((7,), HBM)
IDX = make((128, 1), dtype="int32")
ONE = make((1, 1), dtype="uint32")
REG = VirtualRegister(0)
SCALAR = NkiScalar(0)
WIDE_SCALAR = NkiScalar(0, "int64")
COMPARISON = NkiScalar(0) < 4
ROWS = H.vector_select(0, IDX)
GATHERED = T.indirect(make((128, 4), dtype="uint16"))
MOVED = T3.select(1, REG)

HALF = make((4, 8), dtype="bfloat16")


def high(call: Callable[[], Any]) -> Any:
    """`call` while a kernel is traced with precision="high"."""
    with use_builder(SimpleNamespace(precision="high")):
        return call()


# rule, exception, breaking call, parts of its message, legal call
Case = tuple[str, type[BaseException], Callable[[], Any], tuple[str, ...], Callable[[], Any]]
CASES: list[Case] = [
    # storages
    ("LANG.R201", TypeError, lambda: make(128), ("128", "tuple"), lambda: make((128,))),
    ("LANG.R201", TypeError, lambda: make((128, REG)), ("not a Python int",), lambda: make((np.int64(128), 4))),
    ("LANG.R201", TypeError, lambda: make((128, True)), ("True",), lambda: make([128, 1])),
    ("LANG.R201", ValueError, lambda: make((128, 0)), ("(128, 0)", "at least one"), lambda: make((1, 1))),
    ("LANG.R201", ValueError, lambda: make(()), ("()",), lambda: make((1,))),
    ("LANG.R202", ValueError, lambda: make((4,), HBM, address=(0, 0)),
     ("private_hbm", "by hand"), lambda: make((4,), HBM)),
    ("LANG.R202", TypeError, lambda: make((4, 4), address=0), ("pair of ints",), lambda: make((4, 4), address=(0, 0))),
    (
        "LANG.R202",
        IndexError,
        lambda: make((64, 4), address=(65, 0)),
        ("65..128", "0..127", "partition 64"),
        lambda: make((64, 4), address=(64, 0)),
    ),
    ("LANG.R202", IndexError, lambda: make((4, 4), address=(0, -1)),
     ("negative",), lambda: make((4, 4), address=[0, 1])),
    (
        "GEN.R15",
        AssertionError,
        lambda: make((4, 4), PSUM, address=(0, 2052)),
        ("2052", "2048", "bank"),
        lambda: make((4, 4), PSUM, address=(0, 4096)),
    ),
    ("LANG.R228", TypeError, lambda: region_of(3), ("3", "nl.sbuf"), lambda: region_of(SBUF)),
    # t[key]
    ("LANG.R203", IndexError, lambda: T[0, 512], ("index 512", "dim 1", "-512..511", "'x'"), lambda: T[0, 511]),
    ("LANG.R203", IndexError, lambda: T[-129], ("-129", "dim 0"), lambda: T[-128]),
    ("LANG.R203", IndexError, lambda: H[100], ("100", "float32[100, 64] 'h'"), lambda: H[99]),
    ("LANG.R203", IndexError, lambda: T.select(1, -1), ("-1", "0..511"), lambda: T.select(1, 0)),
    (
        "LANG.R204",
        IndexError,
        lambda: H[96:128],
        ("96:128", "dim 0", "100 elements", "ragged", "min(128, 100)"),
        lambda: H[96:100],
    ),
    ("LANG.R204", IndexError, lambda: T[:, -513:4], ("-513:4", "0..512"), lambda: T[:, -512:4]),
    ("LANG.R204", IndexError, lambda: T[:, 512:513], ("512:513",), lambda: T[:, 511:512]),
    ("LANG.R205", ValueError, lambda: T[:, 512:], ("512:", "empty"), lambda: T[:, 511:]),
    ("LANG.R204", IndexError, lambda: T[:, DynamicSlice(500, 13)],
     ("nl.ds(500, 13)",), lambda: T[:, DynamicSlice(500, 12)]),
    ("LANG.R204", IndexError, lambda: T[:, DynamicSlice(-1, 2)], ("nl.ds(-1, 2)",), lambda: T[:, DynamicSlice(0, 1)]),
    ("LANG.R204", IndexError, lambda: T.slice(1, 0, 513), ("0:513", "0..512", "min(513"), lambda: T.slice(1, 0, 512)),
    ("LANG.R204", IndexError, lambda: T.slice(1, -1, 5), ("-1:5",), lambda: T.slice(1, 0, 5)),
    ("LANG.R205", ValueError, lambda: T[:, 4:4], ("4:4", "empty", "dim 1"), lambda: T[:, 4:5]),
    ("LANG.R205", ValueError, lambda: T[:, DynamicSlice(4, 0)], ("empty",), lambda: T[:, DynamicSlice(4, 1)]),
    ("LANG.R205", ValueError, lambda: T.slice(1, 5, 5), ("5:5",), lambda: T.slice(1, 5, 6)),
    ("LANG.R206", ValueError, lambda: T[:, ::0], ("step 0",), lambda: T[:, ::1]),
    ("LANG.R206", ValueError, lambda: T[:, 0:8:-1], ("step -1",), lambda: T[:, 0:8:2]),
    ("LANG.R206", ValueError, lambda: T.slice(1, 0, 8, 0), ("step 0",), lambda: T.slice(1, 0, 8, 8)),
    ("LANG.R206", TypeError, lambda: T[:, None], ("None", "expand_dim"), lambda: T.expand_dim(1)),
    ("LANG.R206", TypeError, lambda: T[:, True], ("True",), lambda: T[:, 1]),
    ("LANG.R206", TypeError, lambda: T[np.arange(3)], ("vector_offset",), lambda: T[np.int64(3)]),
    ("LANG.R206", TypeError, lambda: T[..., 0, ...], ("once",), lambda: T[..., 0]),
    ("LANG.R206", TypeError, lambda: T[:, "a"], ("'a'",), lambda: T[:, 0]),
    ("LANG.R206", TypeError, lambda: T[:, 1.5], ("1.5",), lambda: T[:, 1]),
    ("LANG.R206", TypeError, lambda: T[:, REG:4], ("VirtualRegister", "scalar_offset"), lambda: T3[:, REG]),
    ("LANG.R206", TypeError, lambda: T[:, 0:SCALAR], ("scalar_offset",), lambda: T3[:, SCALAR]),
    ("LANG.R206", TypeError, lambda: DynamicSlice(REG, 4), ("nl.ds start",), lambda: DynamicSlice(0, 4)),
    ("LANG.R207", IndexError, lambda: T[0, 0, 0], ("3 index items", "2 dims"), lambda: T3[0, 0, 0]),
    ("LANG.R207", IndexError, lambda: T[0, 0, ..., 0], ("3 index items",), lambda: T[0, 0, ...]),
    # view methods
    ("LANG.R208", ValueError, lambda: T.slice(2, 0, 1), ("dim 2", "0..1"), lambda: T.slice(1, 0, 1)),
    ("LANG.R208", ValueError, lambda: T.expand_dim(3), ("dim 3", "0..2"), lambda: T.expand_dim(2)),
    ("LANG.R208", TypeError, lambda: T.reshape_dim(1, 4), ("sequence",), lambda: T.reshape_dim(1, (4, 128))),
    ("LANG.R208", TypeError, lambda: T.reshape((128, REG)), ("reshape",), lambda: T.reshape([128, 512])),
    ("LANG.R209", AssertionError, lambda: T3.permute((1, 0, 2)), ("dim 0", "partition"), lambda: T3.permute((0, 2, 1))),
    ("LANG.R209", AssertionError, lambda: ROWS.permute((1, 0)), ("index tensor",), lambda: H.permute((1, 0))),
    ("LANG.R209", AssertionError, lambda: make((1, 4)).broadcast(0, 2),
     ("dim 0",), lambda: make((4, 1)).broadcast(1, 2)),
    ("LANG.R209", AssertionError, lambda: T.expand_dim(0), ("expand_dim", "dim 0"), lambda: T.expand_dim(1)),
    ("LANG.R209", AssertionError, lambda: make((1, 4)).squeeze_dim(0),
     ("dim 0",), lambda: make((1, 4), HBM).squeeze_dim(0)),
    ("LANG.R209", AssertionError, lambda: T.reshape_dim(0, (2, 64)), ("dim 0",), lambda: T.reshape_dim(0, (128,))),
    ("LANG.R209", AssertionError, lambda: T.flatten_dims(0, 1), ("dim 0",), lambda: H.flatten_dims(0, 1)),
    ("LANG.R209", AssertionError, lambda: T.reshape((64, 1024)),
     ("dim 0", "keep 128"), lambda: T.reshape((128, 2, 256))),
    ("LANG.R209", AssertionError, lambda: ROWS.reshape((64, 128)), ("dim 0",), lambda: ROWS.reshape((128, 8, 8))),
    ("LANG.R210", ValueError, lambda: T3.permute((0, 1, 1)), ("(0, 1, 1)", "0..2"), lambda: T3.permute((0, 1, 2))),
    ("LANG.R210", ValueError, lambda: T3.flatten_dims(2, 1), ("start 2",), lambda: T3.flatten_dims(2, 2)),
    ("LANG.R211", AssertionError, lambda: T.broadcast(1, 2), ("size 1", "dim 1"), lambda: COLUMN.broadcast(1, 2)),
    ("LANG.R212", AssertionError, lambda: T.squeeze_dim(1), ("size 1",), lambda: COLUMN.squeeze_dim(1)),
    ("LANG.R212", AssertionError, lambda: make((1,), HBM).squeeze_dim(0),
     ("only one",), lambda: make((1, 1), HBM).squeeze_dim(0)),
    ("LANG.R213", AssertionError, lambda: T.reshape_dim(1, (5, -1)),
     ("512", "(5, -1)"), lambda: T.reshape_dim(1, (4, -1))),
    ("LANG.R213", AssertionError, lambda: T.reshape_dim(1, (-1, -1)), ("512",), lambda: T.reshape_dim(1, (-1,))),
    (
        "LANG.R214",
        ValueError,
        lambda: T3[:, :, 0:31].flatten_dims(1, 2),
        ("dims 1 and 2", "32 is not 31 * 1"),
        lambda: T3[:, 0:3].flatten_dims(1, 2),
    ),
    ("LANG.R215", AssertionError, lambda: T.reshape((128, 511)), ("65536", "65408"), lambda: T.reshape((128, 512, 1))),
    ("LANG.R215", AssertionError, lambda: H.reshape((-1, 64)), ("positive",), lambda: H.reshape((64, 100))),
    ("LANG.R216", ValueError, lambda: T3[:, :, 0:31].reshape((64, 124)), ("copy",), lambda: T3.reshape((64, 128))),
    ("LANG.R217", TypeError, lambda: T.rearrange("p f",
     ("p", "f")), ("src_pattern",), lambda: T.rearrange(("p", "f"), ("p", "f"))),
    ("LANG.R217", TypeError, lambda: T.rearrange(("p", 1),
     ("p", 1)), ("neither a name",), lambda: T.rearrange(["p", "a"], ["p", "a"])),
    ("LANG.R217", ValueError, lambda: T.rearrange(("p", "p"),
     ("p",)), ("twice",), lambda: T.rearrange(("p", "q"), ("p", "q"))),
    ("LANG.R217", ValueError, lambda: T.rearrange(("p", "a"),
     ("p", "b")), ("['a', 'b']",), lambda: T3.rearrange(("p", "a", "b"), ("p", "b", "a"))),
    ("LANG.R217", ValueError, lambda: T.rearrange(("p",),
     ("p",)), ("1 dims", "2"), lambda: H1.rearrange(("p",), ("p",))),
    ("LANG.R217", ValueError, lambda: T.rearrange(("p", "a"),
     ("p", "a"), {"b": 2}), ("fixed_sizes", "b"), lambda: T.rearrange(("p", "a"), ("p", "a"), {"a": 512})),
    ("LANG.R217", ValueError, lambda: T.rearrange(("p",
     ("a", "b")), ("p", "b", "a")), ("['a', 'b']", "one may"),
     lambda: T.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": 2})),
    ("LANG.R217", AssertionError, lambda: T.rearrange(("p",
     ("a", "b")), ("p", "b", "a"), {"a": 5}), ("512",),
     lambda: T.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"b": 4})),
    # dtype views
    ("AP.R10", AssertionError, lambda: T[:, ::2].view("bfloat16"), ("contiguous",), lambda: T.view("bfloat16")),
    ("AP.R10", AssertionError, lambda: make((4, 3), dtype="uint8").view("uint16"),
     ("multiples of 2",), lambda: make((4, 4), dtype="uint8").view("uint16")),
    ("AP.R10", AssertionError, lambda: make((4,)).view("uint8"), ("partition",), lambda: make((4,)).view("int32")),
    ("AP.R10", AssertionError, lambda: MOVED.view("int32"), ("run time",), lambda: MOVED.view("float32")),
    ("AP.R10", AssertionError, lambda: make((4, 4), dtype="uint8")[:, 1:].ap([[1, 4], [1, 1]], dtype="float32"),
     ("byte offset 1",), lambda: make((4, 8), dtype="uint8")[:, 4:].ap([[2, 4], [1, 1]], dtype="float32")),
    # access patterns
    ("LANG.R218", ValueError, lambda: T.ap([512, 128]), ("pairs",), lambda: T.ap([[512, 128]])),
    ("LANG.R218", ValueError, lambda: T.ap([]), ("empty",), lambda: T.ap([(1, 1)])),
    ("LANG.R218", ValueError, lambda: T.ap([[512, 128], [1, 0]]), ("count",), lambda: T.ap([[512, 128], [1, 1]])),
    ("LANG.R218", TypeError, lambda: T.ap([[512, 128], [1, REG]]),
     ("a count",), lambda: T.ap([[512, 128], [1, np.int8(4)]])),
    ("LANG.R218", TypeError, lambda: T.ap([[512, 1]], offset=REG),
     ("offset", "scalar_offset"), lambda: T.ap([[512, 1]], offset=3)),
    ("LANG.R218", ValueError, lambda: T.ap([[512, 1]], scalar_offset=REG, indirect_dim=2),
     ("indirect_dim=2", "0..1"), lambda: T.ap([[512, 1]], scalar_offset=REG, indirect_dim=1)),
    (
        "AP.R1",
        AssertionError,
        lambda: make((128, 32)).ap([[64, 64], [1, 32]]),
        ("step 64", "free element count 32", "[[32, 64], ...]"),
        lambda: make((128, 32)).ap([[64, 1], [1, 32]]),
    ),
    ("AP.R1", AssertionError, lambda: T.ap([[512, 2], [1, 4]], dtype="bfloat16"),
     ("1024", "bfloat16"), lambda: T.ap([[1024, 2], [1, 1024]], dtype="bfloat16")),
    ("AP.R2", AssertionError, lambda: make((256, 4)).ap([[4, 129], [1, 4]]),
     ("129", "at most 128"), lambda: make((256, 4)).ap([[4, 128], [1, 4]])),
    ("AP.R2", IndexError, lambda: T.ap([[512, 128], [1, 4]], offset=512),
     ("1..128", "0..127"), lambda: T.ap([[512, 127], [1, 4]], offset=512)),
    ("AP.R3", IndexError, lambda: T.ap([[512, 128], [1, 513]]),
     ("0..512", "has 0..511"), lambda: T.ap([[512, 128], [1, 512]])),
    ("AP.R3", IndexError, lambda: H.ap([[64, 101], [1, 1]]),
     ("6400", "0..6399", "ragged"), lambda: H.ap([[64, 100], [1, 64]])),
    ("AP.R3", IndexError, lambda: H.ap([[-1, 8]]), ("-7..0",), lambda: H.ap([[-1, 8]], offset=7)),
    ("AP.R3", IndexError, lambda: NkiTensor((101, 64), "float32", H.storage, HBM),
     ("0..6463",), lambda: NkiTensor((64, 100), "float32", H.storage, HBM)),
    ("AP.R8", AssertionError, lambda: H.ap([[64, 128]], scalar_offset=REG, vector_offset=IDX),
     ("both",), lambda: H.ap([[64, 1]], scalar_offset=REG)),
    ("AP.R9", AssertionError, lambda: MOVED.ap([[128, 64]]), ("dynamic index (scalar)",), lambda: T3.ap([[128, 64]])),
    ("AP.R9", AssertionError, lambda: T3[:, REG, REG], ("dim 2", "dynamic index"), lambda: T3[:, REG, 0]),
    ("AP.R9", AssertionError, lambda: MOVED.select(1, REG), ("dynamic index",), lambda: MOVED.select(1, 3)),
    ("AP.R9", AssertionError, lambda: ROWS[0:64], ("dim 0", "slice(0, 64, None)"), lambda: ROWS[:, 0:64]),
    ("AP.R9", AssertionError, lambda: ROWS[3], ("cannot be indexed again",), lambda: ROWS[..., 3]),
    ("AP.R9", AssertionError, lambda: ROWS.slice(0, 0, 4), ("slice of dim 0",), lambda: ROWS.slice(1, 0, 4)),
    ("AP.R9", AssertionError, lambda: ROWS.select(0, 4), ("select of dim 0",), lambda: ROWS.select(1, 4)),
    ("AP.R9", AssertionError, lambda: GATHERED[:, 0:4], ("dim 1",), lambda: GATHERED[:, :]),
    ("AP.R9", AssertionError, lambda: GATHERED.reshape((128, 8, 8)), ("indirect",), lambda: GATHERED[...]),
    ("AP.R9", AssertionError, lambda: T3[:, make((1, 4), dtype="int32")[0:1, REG]],
     ("itself an indirect",), lambda: T3[:, make((1, 4), dtype="int32")[0:1, 2]]),
    ("AP.R11", AssertionError, lambda: H.ap([[64, 128]], vector_offset=IDX, dtype="bfloat16"),
     ("bfloat16",), lambda: H.ap([[64, 128]], vector_offset=IDX, dtype="float32")),
    ("AP.R12", AssertionError, lambda: T.ap([[512, 128], [1, 4]], scalar_offset=REG),
     ("dim 0", "free dim"), lambda: T.ap([[512, 128], [1, 4]], scalar_offset=REG, indirect_dim=1)),
    ("AP.R12", AssertionError, lambda: T[REG], ("partitions",), lambda: H[REG]),
    ("AP.R14", AssertionError, lambda: T.vector_select(0, IDX), ("HBM only",), lambda: H.vector_select(0, IDX)),
    ("AP.R14", AssertionError, lambda: T.ap([[512, 128]], vector_offset=IDX),
     ("HBM only",), lambda: H.ap([[64, 128]], vector_offset=IDX)),
    ("AP.R15", AssertionError, lambda: H.ap([[64, 128]], vector_offset=IDX, indirect_dim=1),
     ("indirect_dim=1",), lambda: H.ap([[64, 128]], vector_offset=IDX, indirect_dim=0)),
    ("AP.R15", ValueError, lambda: H.vector_select(1, IDX), ("dim=1",), lambda: H.vector_select(0, IDX)),
    ("AP.R16", TypeError, lambda: H.ap([[64, 4]], vector_offset=REG),
     ("not a tensor",), lambda: H.ap([[64, 4]], vector_offset=IDX)),
    ("AP.R16", AssertionError, lambda: H.vector_select(0, make((4, 1), HBM, "int32")),
     ("sbuf",), lambda: H.vector_select(0, make((4, 1), dtype="int32"))),
    ("AP.R16", AssertionError, lambda: H.vector_select(0, make((4, 2), dtype="int32")),
     ("(P, 1)",), lambda: H.vector_select(0, make((4, 2), dtype="int32")[:, 0])),
    ("AP.R16", AssertionError, lambda: H.ap([[64, 4]], vector_offset=make((4,), dtype="int32")),
     ("(P, 1)",), lambda: H.ap([[64, 4]], vector_offset=make((4, 1, 1), dtype="int32"))),
    ("AP.R16", AssertionError, lambda: H.ap([[64, 129]], vector_offset=IDX),
     ("129 rows",), lambda: H.ap([[64, 128]], vector_offset=IDX)),
    ("AP.R17", AssertionError, lambda: H.vector_select(0, make((4, 1), dtype="int16")),
     ("int32 or uint32",), lambda: H.vector_select(0, make((4, 1), dtype="uint32"))),
    # dynamic indices
    ("LANG.R219", TypeError, lambda: T.ap([[512, 1]], scalar_offset=4, indirect_dim=1),
     ("4", "offset="), lambda: T.ap([[512, 1]], scalar_offset=ONE, indirect_dim=1)),
    ("LANG.R219", AssertionError, lambda: T3[:, IDX], ("one element", "int32[128, 1]"), lambda: T3[:, IDX[0]]),
    ("LANG.R219", AssertionError, lambda: T3[:, make((1, 1))],
     ("index dtypes",), lambda: T3[:, make((1, 1), dtype="uint8")]),
    ("LANG.R219", AssertionError, lambda: T3[:, make((1, 1), HBM, "int32")],
     ("sbuf",), lambda: T3[:, make((1,), dtype="int32")]),
    ("LANG.R220", ValueError, lambda: COLUMN.broadcast(1, 4)[:, REG], ("stride 0",), lambda: T[:, REG]),
    ("LANG.R222", AssertionError, lambda: H.permute((1, 0)).vector_select(0, IDX),
     ("largest stride",), lambda: H.vector_select(0, IDX)),
    ("NkiScalar.R4", TypeError, lambda: T3[:, WIDE_SCALAR], ("int64",), lambda: H[WIDE_SCALAR]),
    ("NkiScalar.R3", TypeError, lambda: T3[:, COMPARISON], ("comparison",), lambda: T3[:, SCALAR]),
    ("LANG.R223", AssertionError, lambda: H.indirect(make((100, 4), dtype="int32")),
     ("private_hbm",), lambda: PS.indirect(make((128, 4), dtype="int32"))),
    ("LANG.R223", AssertionError, lambda: T.indirect(make((64, 4), dtype="int32")),
     ("128 partitions",), lambda: T.indirect(make((128, 4), dtype="int32"))),
    ("LANG.R223", AssertionError, lambda: T.indirect(make((128, 4), dtype="int8")),
     ("int8",), lambda: T.indirect(make((128, 4), dtype="uint32"))),
    ("LANG.R223", AssertionError, lambda: T.indirect(REG),
     ("2-D sbuf",), lambda: T.indirect(make((128, 1), dtype="uint16"))),
    ("LANG.R223", AssertionError, lambda: T.indirect(make((128, 4), dtype="int32"), 129),
     ("1..128",), lambda: T.indirect(make((128, 4), dtype="int32"), 128)),
    # content
    ("LANG.R229", NotImplementedError, lambda: high(lambda: HALF.view("uint16")), ("precision", "bfloat16[4, 8]"),
     lambda: high(lambda: T.view("uint8"))),
    ("LANG.R229", NotImplementedError, lambda: high(lambda: T.ap([[1024, 1]], dtype="bfloat16")), ("precision",),
     lambda: high(lambda: HALF.ap([[8, 1]], dtype="bfloat16"))),
    ("LANG.R225", TypeError, lambda: T.__setitem__(0, 1.0), ("nisa.tensor_copy",), lambda: T[0]),
    ("LANG.R226", TypeError, lambda: T + T, ("operator +", "nl.add", "sbuf float32[128, 512]"), lambda: T == T),
    ("LANG.R226", TypeError, lambda: 2 * T, ("2 * sbuf", "nl.multiply"), lambda: T != 2),
    ("LANG.R226", TypeError, lambda: np.float32(2) - T, ("nl.subtract",), lambda: T is T),
    ("LANG.R226", TypeError, lambda: np.zeros(4) / T, ("nl.divide",), lambda: T is not None),
    ("LANG.R226", TypeError, lambda: T < 0, ("nl.less",), lambda: T == 0),
    ("LANG.R226", TypeError, lambda: -T, ("nl.multiply",), lambda: len(T)),
    ("LANG.R227", TypeError, lambda: bool(T), ("truth value", 'mode="debug"', "'x'"), lambda: T is None),
    ("LANG.R227", TypeError, lambda: str(T), ("print", 'mode="debug"'), lambda: repr(T)),
    ("LANG.R227", TypeError, lambda: np.asarray(T), ("NumPy array", 'mode="debug"'), lambda: T.shape),
    ("LANG.R227", TypeError, lambda: ONE.item(), ('mode="debug"',), lambda: ONE.size),
    ("LANG.R227", TypeError, lambda: int(ONE), ('mode="debug"',), lambda: ONE.dtype),
]  # fmt: skip

# Rules of isa.md that views check, besides those of this package.
ISA_RULES = {f"AP.R{n}" for n in (1, 2, 3, 8, 9, 10, 11, 12, 14, 15, 16, 17)}
ISA_RULES |= {"GEN.R15", "NkiScalar.R3", "NkiScalar.R4"}


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{k}" for k, case in enumerate(CASES)])
def test_rule(case: Case) -> None:
    rule, kind, broken, parts, legal = case
    with pytest.raises(TileError) as caught:
        broken()
    assert isinstance(caught.value, kind)
    assert caught.value.rule == rule
    for part in parts:
        assert part in str(caught.value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        legal()


def test_every_rule_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(RULES) | ISA_RULES


def test_rule_violations_are_validation_errors() -> None:
    with pytest.raises(NkiValidationError):
        T.broadcast(1, 2)


@pytest.mark.parametrize(
    ("rule", "doubtful", "part", "plain"),
    [
        ("LANG.R221", lambda: H[1:].ap([[1, 4]], offset=2), "add up", lambda: H.ap([[1, 4]], offset=2)),
        ("LANG.R224", lambda: H[:, 0:32].ap([[64, 1]], scalar_offset=REG), "moves by 32",
         lambda: H[2:].ap([[64, 1]], scalar_offset=REG)),
        ("LANG.R228", lambda: region_of("psum"), "nl.psum", lambda: region_of(PSUM)),
    ],
)  # fmt: skip
def test_warnings(rule: str, doubtful: Callable[[], Any], part: str, plain: Callable[[], Any]) -> None:
    assert rule in WARNINGS
    with pytest.warns(TileWarning, match=rule) as caught:
        doubtful()
    assert part in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain()


def test_slices_can_be_clamped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "clamp_slices", True)
    with pytest.warns(TileWarning, match=r"LANG\.R204.*cut at 100"):
        assert H[96:128].shape == (4, 64)
    with pytest.raises(IndexError):
        H[100:128]


def test_engine_pattern_limits() -> None:
    wide = make((1, 131072), dtype="uint8")
    assert wide[:, 0:65535].engine_pattern_violation() is None
    assert (wide[:, 0:65536].engine_pattern_violation() or ("",))[0] == "AP.R6"
    assert wide[:, ::32767].engine_pattern_violation() is None
    assert (wide[:, ::32768].engine_pattern_violation() or ("",))[0] == "AP.R6"
    deep = make((1, 3, 3, 3, 3, 3))
    assert deep[:, :, 0:2, 0:2, 0:2, 0:2].engine_pattern_violation() is not None
    assert deep[:, 0, 0:2, 0:2, 0:2, 0:2].engine_pattern_violation() is None
    violation = deep[:, :, 0:2, 0:2, 0:2, 0:2].engine_pattern_violation()
    assert violation is not None and violation[0] == "AP.R5" and "5 free dims" in violation[1]
