"""The inventory of `nki.language`: every documented name, what removed names say, dtypes, sizes and data classes."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Optional

import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.devices import get_device
from tilelang.errors import TileTypeError, TileWarning
from tilelang.ir.context import use_builder
from tilelang.isa.operators import ACTIVATIONS, OPERATORS, operator_name
from tilelang.trace.builder import Builder

DTYPES = """bool_ int8 int16 int32 uint8 uint16 uint32 float16 float32 bfloat16 tfloat32 float8_e4m3 float8_e4m3fn
float8_e5m2 float8_e8m0fnu float8_e5m2_x4 float8_e4m3fn_x4 float4_e2m1fn_x4 int64""".split()
OTHERS = """DType sbuf psum hbm private_hbm shared_hbm MemoryRegion is_hbm is_on_chip is_psum is_sbuf NKIObject
NkiTensor ndarray tile_size prelu bypass average zeros ones full zeros_like empty_like shared_constant
shared_identity_matrix load store load_transpose2d copy transpose matmul broadcast_to expand_dims ds where
add subtract multiply divide maximum minimum abs_max abs_min power fmod mod
equal not_equal less less_equal greater greater_equal
bitwise_and bitwise_or bitwise_xor invert left_shift right_shift logical_and logical_or logical_xor logical_not
abs square exp log sqrt rsqrt reciprocal sin cos tan arctan tanh ceil floor trunc negative sign
sigmoid relu gelu gelu_dx gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh silu silu_dx softplus mish erf erf_dx
softmax rms_norm sum max min mean prod var all
affine_range sequential_range static_range dynamic_range fori_loop while_loop range
program_id num_programs program_ndim no_reorder device_print
rand random_seed dropout gather_flattened
tiles blocks alloc_tiles alloc_blocks NkiGrid NkiTileGrid NkiBlockGrid""".split()
REMOVED = """arange mgrid par_dim nc spmd_dim all_reduce atomic_rmw loop_reduce static_cast finfo fp32 bfp16 gemm_grid
gemm_stationary_grid""".split()


@pytest.mark.parametrize("name", [*DTYPES, *OTHERS])
def test_name_exists_and_is_exported(name: str) -> None:
    assert getattr(nl, name) is not None
    assert name == "DType" or name in nl.__all__


def test_star_import_gives_exactly_all() -> None:
    space: dict[str, object] = {}
    exec("from tilelang.language import *", space)
    assert set(nl.__all__) == set(space) - {"__builtins__"}
    assert "bool" not in nl.__all__  # would break isinstance(x, bool) in kernels


@pytest.mark.parametrize("name", REMOVED)
def test_removed_name_points_to_a_replacement(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"nki\.language\.{name} was removed from NKI; \w+"):
        getattr(nl, name)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = nl.frobnicate


def test_misspelt_names_get_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="did you mean 'load'"):
        _ = nl.laod
    with pytest.raises(AttributeError, match="did you mean 'nc_matmul'"):
        _ = nisa.nc_matmull


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_plain_strings(name: str) -> None:
    assert getattr(nl, name) == ("bool" if name == "bool_" else name)
    assert type(getattr(nl, name)) is nl.DType is str


def test_bool_is_bool_() -> None:
    assert nl.bool == nl.bool_ == "bool"


@pytest.mark.parametrize("name", sorted({*OPERATORS, *ACTIVATIONS}))
def test_every_operator_has_a_token(name: str) -> None:
    assert operator_name(getattr(nl, name)) == name


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (nl.max, "maximum"),
        (nl.min, "minimum"),
        (nl.sum, "add"),
        (nl.prod, "multiply"),
        (np.add, "add"),
        (np.max, "maximum"),
    ],
)
def test_reductions_and_numpy_functions_are_tokens(token: object, name: str) -> None:
    assert operator_name(token) == name


def test_functions_are_documented_and_picklable() -> None:
    for name in nl.__all__:
        value = getattr(nl, name)
        if callable(value) and not isinstance(value, type):
            assert value.__doc__, name
    assert pickle.loads(pickle.dumps(nl.add)) is nl.add
    assert nl.add.__name__ == "add"


def test_token_is_not_a_function() -> None:
    with pytest.raises(TypeError, match=r"nl\.prelu is an operator"):
        nl.prelu(1.0)


def test_regions() -> None:
    assert nl.hbm is nl.private_hbm
    assert nl.sbuf in {nl.sbuf, nl.psum}
    assert nl.is_hbm(nl.shared_hbm) and nl.is_on_chip(nl.psum) and nl.is_psum(nl.psum) and nl.is_sbuf(nl.sbuf)
    assert not nl.is_hbm(nl.sbuf)


@pytest.mark.parametrize(
    ("target", "usable", "total"), [("trn1", 180224, 24), ("trn2", 212984, 28), ("trn3", 245752, 32)]
)
def test_tile_size_depends_on_the_target(target: str, usable: int, total: int) -> None:
    with use_builder(Builder(get_device(target))):
        size = nl.tile_size
        assert (size.pmax, size.psum_fmax, size.psum_bank_fmax, size.psum_bank_fmax_bytes) == (128, 512, 512, 2048)
        assert (size.gemm_stationary_fmax, size.gemm_moving_fmax, size.bn_stats_fmax) == (128, 512, 512)
        assert (size.psum_num_banks, size.psum_min_align, size.sbuf_min_align) == (8, 4, 1)
        assert size.sbuf_fmax_bytes == size.total_available_sbuf_size == usable
        assert size.sbuf_fmax == usable // 4
        assert size.sbuf_size_bytes == total << 20


def test_tile_size_outside_a_kernel_is_that_of_the_default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert nl.tile_size.sbuf_fmax_bytes == 180224
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert nl.tile_size.psum_num_banks == 8  # generation 2 keeps its bank
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert nl.tile_size.psum_num_banks == 7


def test_ndarray_is_an_annotation() -> None:
    def kernel(x: nl.ndarray, y: Optional[nl.ndarray] = None, z: nl.ndarray | None = None) -> list[nl.ndarray]:  # noqa: UP045
        return [x]

    assert kernel.__annotations__
    with use_builder(Builder(get_device("trn2"))):
        tile = nl.ndarray((128, 4), nl.float32)
    assert isinstance(tile, nl.ndarray) and isinstance(tile, nl.NkiTensor)
    assert type(tile) is nl.NkiTensor
    assert not isinstance(3, nl.ndarray)


class Plain(nl.NKIObject):
    size: int
    step: int = 2
    label: str | None = None
    count: ClassVar[int] = 7


class Derived(Plain):
    extra: int = 5

    def __post_init__(self) -> None:
        self.total = self.size + self.extra


@dataclass(frozen=True, eq=True)
class Frozen(nl.NKIObject):
    size: int
    parts: tuple[int, ...] = ()


@dataclass
class Mutable(nl.NKIObject):
    parts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parts.append(1)


class Own(nl.NKIObject):
    size: int = 3

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__()


class Callable_(nl.NKIObject):
    scale: int

    def __call__(self, x: int) -> int:
        return self.scale * x


def test_undecorated_class_gets_a_constructor() -> None:
    plain = Plain(4, label="a")
    assert (plain.size, plain.step, plain.label, plain.count) == (4, 2, "a", 7)
    assert Plain().size is None
    derived = Derived(1, extra=3)
    assert (derived.step, derived.total) == (2, 4)
    assert Callable_(3)(5) == 15
    assert Plain(1) != Plain(1)  # Python's equality: identity


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plain(1, 2, "x", 4), "takes 3 positional arguments, got 4"),
        (lambda: Plain(1, size=2), "multiple values for argument 'size'"),
        (lambda: Plain(sise=2), "unexpected keyword argument 'sise'"),
    ],
)
def test_constructor_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TileTypeError, match=message):
        make()


def test_dataclasses_and_own_constructors_keep_theirs() -> None:
    assert Frozen(2, (1,)) == Frozen(2, (1,)) and hash(Frozen(2)) == hash(Frozen(2))
    with pytest.raises(AttributeError):
        Frozen(2).size = 3  # type: ignore[misc]
    assert Mutable().parts == [1]
    assert Own(9).size == 9
    assert vars(nl.NKIObject(a=1, b=2)) == {"a": 1, "b": 2}


@dataclasses.dataclass
class Sizes(nl.NKIObject):
    rows: int
    columns: int
    depth: int = 3


def test_required_fields_of_data_classes_may_be_left_out_with_a_warning() -> None:
    with pytest.warns(TileWarning, match="columns is not given"):
        made = Sizes(2)
    assert (made.rows, made.columns, made.depth) == (2, None, 3)
    with pytest.raises(TypeError, match="unexpected keyword"):
        Sizes(2, 3, oops=1)
    assert Sizes(1, 2) == Sizes(1, columns=2)
