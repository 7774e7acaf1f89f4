"""Raw access patterns and gathers: `.ap`, `.vector_select`, `.indirect` (isa.md sections 5.2-5.5, language.md
2.7-2.8)."""

from __future__ import annotations

from math import prod
from typing import Any, TypeVar

from tilelang.dtypes import FORMATS, format_of
from tilelang.errors import TileError, TileIndexError, TileRuleError, TileTypeError, TileValueError
from tilelang.ir import hooks
from tilelang.ir.context import active_builder
from tilelang.ir.dynamic import Dynamic, refuse_second_index, scalar_source
from tilelang.ir.handle import Handle, check_bounds, check_reinterpretation, make
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.scalars import whole
from tilelang.ir.storage import PARTITIONS

__all__ = ["Access"]

T = TypeVar("T", bound="Access")

# Partitions that share one list of offsets (isa.md section 5.5): vector, scalar and gpsimd engines; tensor engine.
GROUP = 16
TENSOR_ENGINE_GROUP = 32
_MAX_COUNT = 65535
_MAX_STEP = 32767
_MAX_FREE_DIMS = 4


class OutOfBounds:
    """A view that reaches outside its storage, made in a kernel: a tensor for `isinstance`, but whatever is done with
    it raises `error`.
    """

    __slots__ = ("error",)
    stands_for: type = object  # the class of tensors
    __class__ = property(lambda self: OutOfBounds.stands_for)

    def __init__(self, error: TileError) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.error

    def __getitem__(self, key: Any) -> Any:
        raise self.error


class Access(Handle):
    """Methods that address the storage directly or through index tensors."""

    __slots__ = ()

    def ap(
        self: T,
        pattern: Any,
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> T:
        """The view whose element (i0, i1, …) is storage element `base + i0 * step0 + i1 * step1 + …`.

        `pattern` is [[step, count], …], outermost first, in elements of `dtype` (default: the tensor's); `base` is
        the tensor's offset plus `offset`. Shape and strides of the tensor play no part. On-chip the first pair walks
        the partitions, with a step of the storage's free element count.

        At run time one of these moves the view: `scalar_offset` (register, NkiScalar or one-element SBUF tensor) by
        `value * prod(shape[indirect_dim + 1:])`; `vector_offset` (SBUF tensor (P, 1)), HBM only, row i0 by
        `vector_offset[i0] * prod(shape[1:])` in place of `i0 * step0`.

        Raises TileRuleError for violated AP rules, TileIndexError when an element lies outside the storage (in a kernel
        when the view is used).
        """
        refuse_second_index(self, self.dynamic, ".ap")
        name = self.dtype if dtype is None else format_of(dtype).name
        start = self.offset
        if name != self.dtype:
            check_reinterpretation(self, name)
            start = _converted_offset(self, name)
        if offset is not None:
            extra = _whole(offset, "ap: offset", "a dynamic offset is passed as scalar_offset")
            if self.offset:
                hooks.warn(
                    f"ap: offset={extra} on {self.describe()}, whose own offset is {self.offset}: here they add up, "
                    "documents differ on that",
                    "LANG.R221",
                    "call .ap on the whole tensor and give the full offset",
                )
            start += extra
        steps, counts = _parse(pattern)
        storage = self.storage
        if storage.on_chip:
            _check_partitions(self, steps, counts, name)
        dynamic: Dynamic | None = None
        if scalar_offset is not None or vector_offset is not None:
            dynamic = _offset_index(self, scalar_offset, vector_offset, indirect_dim, counts[0], name)
            if dynamic.kind == "vector":
                steps = (0, *steps[1:])
        view = make(type(self), storage, counts, steps, start, name, dynamic)
        try:
            return check_bounds(view, ".ap")
        except TileIndexError as error:
            builder = active_builder()
            if builder is None:
                raise
            # Kernels build views of tiles that do not exist and skip the instruction: only a use is an error.
            unusable: Any = OutOfBounds(error.at(builder.site(2)))
            return unusable

    def vector_select(self: T, dim: int, vector_offset: Any) -> T:
        """Rows of dim 0 (the only legal `dim`) by index: row p of the result is row `vector_offset[p]`.

        HBM only; `vector_offset` is an int32 or uint32 SBUF tensor (P, 1), and dim 0 has the largest stride.
        """
        refuse_second_index(self, self.dynamic, "vector_select")
        if _whole(dim, "vector_select: dim") != 0:
            raise TileValueError(f"vector_select: dim={dim}; rows are selected along dim 0 only", rule="AP.R15")
        index = _row_index(self, vector_offset, "vector_select")
        if index.F != 1:
            raise TileRuleError(f"vector_select: the index {index.describe()} must have shape (P, 1)", rule="AP.R16")
        if self.strides[0] == 0 or self.strides[0] < max(self.strides):
            raise TileRuleError(
                f"vector_select of {self.describe()} with strides {self.strides}: dim 0 must have the largest stride",
                rule="LANG.R222",
                hint="make the selected dim outermost in memory",
            )
        dynamic = Dynamic("vector", index, self.strides[0], self.shape[0], 0, self)
        shape = (index.shape[0], *self.shape[1:])
        return make(type(self), self.storage, shape, (0, *self.strides[1:]), self.offset, self.dtype, dynamic)

    def indirect(self: T, index: Any, num_elem: int | None = None) -> T:
        """Gather (as a source) or scatter (as a destination) along the free dim: element (p, i) is `self[p, off(i)]`.

        `index` is an SBUF tensor (P, K) of uint16, uint32 or int32 offsets into the flattened free dims; each group of
        G partitions reads `off(i) = index[i % G, i // G]` of its own rows (G = 16; 32 on the tensor engine). The
        result has shape (P, num_elem), by default 16 * K.
        """
        refuse_second_index(self, self.dynamic, "indirect")
        if not self.storage.on_chip:
            raise TileRuleError(
                f"indirect of {self.describe()}: only sbuf and psum tensors are gathered by engines",
                rule="LANG.R223",
                hint="gather HBM rows with .ap(..., vector_offset=index) or vector_select",
            )
        if not isinstance(index, Handle) or index.buffer is not MemoryRegion.sbuf or len(index.shape) != 2:
            raise TileRuleError(f"indirect: the index {_shown(index)} must be a 2-D sbuf tensor", rule="LANG.R223")
        refuse_second_index(index, index.dynamic, "indirect: the index")
        if index.dtype not in ("uint16", "uint32", "int32") or index.shape[0] != self.shape[0]:
            raise TileRuleError(
                f"indirect: the index {index.describe()} must be uint16, uint32 or int32 and have the "
                f"{self.shape[0]} partitions of {self.describe()}",
                rule="LANG.R223",
            )
        rows, columns = index.shape
        most = min(rows, TENSOR_ENGINE_GROUP) * columns
        count = min(rows, GROUP) * columns if num_elem is None else _whole(num_elem, "indirect: num_elem")
        if not 1 <= count <= most:
            raise TileRuleError(
                f"indirect: num_elem={count}; a group of partitions has 1..{most} offsets in {index.describe()}",
                rule="LANG.R223",
            )
        dynamic = Dynamic("indirect", index, 1, self.F, 1, self)
        strides = (self.strides[0], 0)
        return make(type(self), self.storage, (self.shape[0], count), strides, self.offset, self.dtype, dynamic)

    def engine_pattern_violation(self) -> tuple[str, str, str] | None:
        """(rule, message, hint) when the free dims do not fit an engine's access pattern (AP.R5, AP.R6); DMA has no
        such limit."""
        pattern = self.free_pattern()
        if len(pattern) > _MAX_FREE_DIMS:
            return (
                "AP.R5",
                f"{self.describe()} with strides {self.strides} needs {len(pattern)} free dims; "
                f"engines walk {_MAX_FREE_DIMS}",
                "split the instruction, or copy to a contiguous tile with dma_copy",
            )
        for count, step in pattern:
            if count > _MAX_COUNT or not -_MAX_STEP - 1 <= step <= _MAX_STEP:
                return (
                    "AP.R6",
                    f"{self.describe()} walks {count} elements in steps of {step}; engines count to {_MAX_COUNT} "
                    f"in steps of {-_MAX_STEP - 1}..{_MAX_STEP}",
                    "split the instruction into smaller tiles",
                )
        return None


def _parse(pattern: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Steps and counts of [[step, count], …]."""
    hint = "pattern=[[step, count], ...], outermost first"
    try:
        pairs = [(step, count) for step, count in pattern]
    except (TypeError, ValueError):
        raise TileValueError(f"ap: pattern={pattern!r} is not a list of pairs", rule="LANG.R218", hint=hint) from None
    if not pairs:
        raise TileValueError("ap: the pattern is empty", rule="LANG.R218", hint=hint)
    steps = tuple([step if type(step) is int else _whole(step, "ap: a step") for step, _ in pairs])
    counts = tuple([count if type(count) is int else _whole(count, "ap: a count") for _, count in pairs])
    if min(counts) < 1:
        raise TileValueError(f"ap: pattern={pattern!r}: every count is at least 1", rule="LANG.R218", hint=hint)
    return steps, counts


def _check_partitions(tensor: Handle, steps: tuple[int, ...], counts: tuple[int, ...], dtype: str) -> None:
    """AP.R1 and the count of AP.R2: one step a partition, at most 128 of them."""
    storage = tensor.storage
    itemsize = FORMATS[dtype].itemsize
    if counts[0] > PARTITIONS:
        raise TileRuleError(
            f"ap: {counts[0]} partitions of {tensor.describe()}; a view has at most {PARTITIONS}", rule="AP.R2"
        )
    if counts[0] > 1 and steps[0] * itemsize != storage.row_bytes:
        row = storage.row_bytes / itemsize
        raise TileRuleError(
            f"ap: partition step {steps[0]} of {tensor.describe()}; the first pair walks the partitions, its step is "
            f"the free element count {row:g} of {storage.describe()} in units of {dtype}",
            rule="AP.R1",
            hint=f"write [[{row:g}, {counts[0]}], ...]; partitions cannot be skipped",
        )


def _converted_offset(tensor: Handle, dtype: str) -> int:
    nbytes = tensor.offset * tensor.itemsize
    itemsize = FORMATS[dtype].itemsize
    if nbytes % itemsize:
        raise TileRuleError(
            f"ap: byte offset {nbytes} of {tensor.describe()} is no multiple of the {itemsize} bytes of {dtype}",
            rule="AP.R10",
        )
    return nbytes // itemsize


def _offset_index(
    tensor: Handle, scalar_offset: Any, vector_offset: Any, indirect_dim: Any, rows: int, dtype: str
) -> Dynamic:
    """The dynamic part of an access pattern with `rows` outer rows."""
    if scalar_offset is not None and vector_offset is not None:
        raise TileRuleError("ap: scalar_offset and vector_offset are both given; one is allowed", rule="AP.R8")
    dim = _whole(indirect_dim, "ap: indirect_dim")
    if not 0 <= dim < len(tensor.shape):
        raise TileValueError(
            f"ap: indirect_dim={dim} of {tensor.describe()} is not in 0..{len(tensor.shape) - 1}",
            rule="LANG.R218",
            hint="indirect_dim counts the dims of the tensor, not of the pattern",
        )
    stride = prod(tensor.shape[dim + 1 :])
    if tensor.strides[dim] != stride and tensor.shape[dim] > 1 and not (tensor.on_chip and dim == 0):
        hooks.warn(
            f"ap: {tensor.describe()} is not contiguous: the index moves by {stride} elements (the product of the "
            f"sizes after dim {dim}), the stride of the dim is {tensor.strides[dim]}",
            "LANG.R224",
            "call .ap on a contiguous tensor, e.g. the whole tensor reshaped",
        )
    if scalar_offset is not None:
        source = scalar_source(tensor, scalar_offset, "scalar_offset")
        if tensor.on_chip and dim == 0:
            raise TileRuleError(
                f"ap: scalar_offset along dim 0 of {tensor.describe()}; partitions are chosen while tracing",
                rule="AP.R12",
                hint="give indirect_dim of a free dim",
            )
        return Dynamic("scalar", source, stride, tensor.shape[dim], dim, tensor)
    if dim != 0:
        raise TileRuleError(f"ap: vector_offset with indirect_dim={dim}; only dim 0 is gathered", rule="AP.R15")
    if dtype != tensor.dtype:
        raise TileRuleError(
            f"ap: vector_offset together with dtype={dtype} on {tensor.describe()}",
            rule="AP.R11",
            hint="take the dtype view on the other side of the copy",
        )
    index = _row_index(tensor, vector_offset, "ap: vector_offset")
    if rows > index.size:
        raise TileRuleError(
            f"ap: vector_offset {index.describe()} has too few indices for {rows} rows of the pattern", rule="AP.R16"
        )
    return Dynamic("vector", index, stride, tensor.shape[0], 0, tensor)


def _row_index(tensor: Handle, index: Any, use: str) -> Handle:
    """`index` when it can pick rows of `tensor` (AP.R14, AP.R16, AP.R17)."""
    if tensor.on_chip:
        raise TileRuleError(
            f"{use} on {tensor.describe()}: rows are gathered from HBM only",
            rule="AP.R14",
            hint="gather within a partition with .indirect or nisa.local_gather",
        )
    if not isinstance(index, Handle):
        raise TileTypeError(f"{use}: {_shown(index)} is not a tensor", rule="AP.R16", hint="pass an SBUF tile (P, 1)")
    if index.buffer is not MemoryRegion.sbuf or len(index.shape) < 2:
        raise TileRuleError(
            f"{use}: the index {index.describe()} must be an sbuf tensor (P, 1)", rule="AP.R16", hint="shape (P, 1)"
        )
    if index.dtype not in ("int32", "uint32"):
        raise TileRuleError(f"{use}: the index {index.describe()} must be int32 or uint32", rule="AP.R17")
    refuse_second_index(index, index.dynamic, f"{use}: the index")
    return index


def _whole(value: Any, use: str, hint: str | None = None) -> int:
    if type(value) is int:
        return value
    found = whole(value)
    if found is None:
        raise TileTypeError(f"{use} is {_shown(value)}, not a Python int", rule="LANG.R218", hint=hint)
    return found


def _shown(value: Any) -> str:
    return value.describe() if isinstance(value, Handle) else repr(value)
