"""Records of the DMA engines (`csrc/dma.pyx`): word numbers and builders. Pure Python; no extension needed.

| word | of copy | of indirect and fill, where different |
|---|---|---|
| 8 MODE | who moves what: `EVEN`, `BY_DST`, `BY_SRC`, `SERIAL` | |
| 9 FIRST | first physical partition of the side that MODE names | |
| 10 ROWS | partitions of that side | |
| 11 ROW_ITEMS | items per partition | |
| 12 DECODE | 0, or row function source bits to float32 | |
| 13 ENCODE | 0, or row function float32 to destination bits | |
| 14 SRC_ITEM, 15 DST_ITEM | item sizes in bytes | |
| 16 DST, 32 SRC | DMA operands | fill: 32 is the bit pattern |
| 48 INDICES | | on-chip operand, the index tile |
| 60 ROW_STRIDE | | bytes between two rows of the indirect operand |
| 61 LIMIT | | an index is valid when 0 <= index < LIMIT |
| 62 SKIP | | 1: rows with invalid indices are left out; 0: status `INDEX`, value, limit and row |
| 63 SCATTER | | 1: the destination is indirect; 0: the source |
| 64 AXIS | | `BY_DST`: dim of both operands that is the partition of dst; -1: the rows are |
| 65 COUNT | | number of rows |
| 66 INDEX_ROWS | | partitions of the index tile, whose columns are read one after the other |
| 67 ROW_DIM | | dim of the direct operand (of 6) that counts the rows; -1: rows are enumerated |

With `BY_DST` (`BY_SRC`) each thread moves the items of the partitions of dst (src) it owns; with `EVEN` an even part,
which belongs to no one; with `SERIAL` thread 0 reads all, then writes in enumeration order, so that operands may
overlap and the last write wins. A row function is `void f(int64 src, int64 dst, int64 n)` on n adjacent items.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilelang.dtypes import FORMATS
from tilelang.execute.layout import H_LENGTH, HEADER_WORDS, operand

__all__ = [
    "BY_DST",
    "BY_SRC",
    "EVEN",
    "SERIAL",
    "DmaRecord",
    "Region",
    "copy",
    "dma_operand",
    "fill",
    "gather",
    "gather_transposed",
    "is_injective",
    "merged",
    "pe_transpose",
    "scatter",
    "transpose",
]

MODE, FIRST, ROWS, ROW_ITEMS, DECODE, ENCODE, SRC_ITEM, DST_ITEM, DST = range(8, 17)
SRC = 32
PATTERN = 32
COPY_WORDS = 48
INDICES = 48
ROW_STRIDE, LIMIT, SKIP, SCATTER, AXIS, COUNT, INDEX_ROWS, ROW_DIM = range(60, 68)
INDIRECT_WORDS = 68
FILL_WORDS = 33

EVEN, BY_DST, BY_SRC, SERIAL = range(4)

MAX_DIMS = 6


class Region(NamedTuple):
    """The layout of one operand: storage format name, shape, strides in bytes, and first physical partition.

    `partition` is None in HBM, and when dim 0 is not the partition of the on-chip tensor.
    """

    format: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    partition: int | None = None

    @property
    def itemsize(self) -> int:
        """Bytes per item."""
        return FORMATS[self.format].itemsize

    def permuted(self, axes: Sequence[int]) -> Region:
        """The region with its dims in the order `axes`."""
        partition = self.partition if axes[0] == 0 else None
        return Region(self.format, tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes), partition)


class DmaRecord(NamedTuple):
    """One record, complete but for addresses and the rest of the header.

    `operands` lists (word, "dst" | "src" | "index") of each operand's address. `engines` lists (word, name) of function
    addresses: "dma.*" come from `_dma.address(name)`, "row_decode.*" and "row_encode.*" from the vector engines.
    """

    words: list[int]
    operands: tuple[tuple[int, str], ...]
    engines: tuple[tuple[int, str], ...]

    @property
    def mode(self) -> int:
        """Who moves what: `EVEN`, `BY_DST`, `BY_SRC` or `SERIAL`."""
        return self.words[MODE]


def dma_operand(region: Region) -> list[int]:
    """The 16 words of a DMA operand; the address is 0. Raises ValueError when more than six dims cannot be merged."""
    shape, strides = region.shape, region.strides
    if len(shape) > MAX_DIMS:
        shape, strides = merged(shape, strides)
        if len(shape) > MAX_DIMS:
            raise ValueError(f"a DMA operand has at most {MAX_DIMS} dims, not {len(shape)}: {shape}")
    pad = MAX_DIMS - len(shape)
    return [0, FORMATS[region.format].code, len(shape), *[1] * pad, *shape, *[0] * pad, *strides, 0]


def merged(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Counts and strides with size-1 dims dropped and neighbours merged where possible."""
    counts: list[int] = []
    steps: list[int] = []
    for n, s in zip(shape, strides):
        if n == 1:
            continue
        if steps and steps[-1] == n * s:
            counts[-1] *= n
            steps[-1] = s
        else:
            counts.append(n)
            steps.append(s)
    return tuple(counts), tuple(steps)


def is_injective(region: Region) -> bool:
    """Whether no two elements of the region share a byte (sufficient: strides nest)."""
    reach = region.itemsize
    for step, n in sorted((abs(s), n) for n, s in zip(region.shape, region.strides) if n > 1):
        if step < reach:
            return False
        reach += step * (n - 1)
    return True


def _head(length: int, dst: Region, src: Region, mode: int) -> list[int]:
    """Words 0 to 15. Rows are those of the side that `mode` names."""
    side = src if mode == BY_SRC else dst
    rows = side.shape[0] if side.shape else 1
    words = [0] * HEADER_WORDS
    words[H_LENGTH] = length
    words += [mode, side.partition or 0, rows, prod(side.shape[1:]), 0, 0, src.itemsize, dst.itemsize]
    return words


def _engines(function: str, dst: Region, src: Region) -> tuple[tuple[int, str], ...]:
    if dst.format == src.format:
        return ((0, function),)
    return ((0, function), (DECODE, f"row_decode.{src.format}"), (ENCODE, f"row_encode.{dst.format}"))


def copy(dst: Region, src: Region, overlap: bool = False) -> DmaRecord:
    """`dst[k] = src[k]` for all k in row-major order of either shape.

    Formats that agree move bits, others are cast through float32. `overlap` says that operands may
    share memory: the whole source is then read first, by thread 0. Raises ValueError when element counts differ.
    """
    if prod(dst.shape) != prod(src.shape):
        raise ValueError(f"dst {dst.shape} and src {src.shape} differ in element count")
    if overlap or not is_injective(dst):
        mode = SERIAL
    elif dst.partition is not None:
        mode = BY_DST
    elif src.partition is not None:
        mode = BY_SRC
    else:
        mode = EVEN
    words = [*_head(COPY_WORDS, dst, src, mode), *dma_operand(dst), *dma_operand(src)]
    return DmaRecord(words, ((DST, "dst"), (SRC, "src")), _engines("dma.copy", dst, src))


def transpose(dst: Region, src: Region, axes: Sequence[int], overlap: bool = False) -> DmaRecord:
    """`dst = transpose(src, axes)`: a copy that enumerates the source in the order of dst."""
    return copy(dst, src.permuted(axes), overlap)


def pe_transpose(dst: Region, data: Region, overlap: bool = False) -> DmaRecord:
    """`dst[f, p] = data[p, f]` of on-chip tensors, free dims flattened (nc_transpose).

    Formats of equal item size move bits; 8-bit items are zero-extended into 16-bit ones; else the value is cast.
    """
    source = data.permuted([*range(1, len(data.shape)), 0])
    record = copy(dst, source, overlap)
    if dst.itemsize == data.itemsize:
        return record._replace(engines=((0, "dma.copy"),))
    if (data.itemsize, dst.itemsize) == (1, 2):
        return record._replace(engines=((0, "dma.copy"), (DECODE, "dma.widen"), (ENCODE, "dma.halve")))
    return record


def fill(dst: Region, bits: int) -> DmaRecord:
    """Every item of dst gets `bits` (the low bytes of the item size)."""
    mode = EVEN if dst.partition is None else BY_DST
    pattern = bits & (1 << 8 * dst.itemsize) - 1
    words = [*_head(FILL_WORDS, dst, dst, mode), *dma_operand(dst), pattern - (pattern >> 63 << 64)]
    return DmaRecord(words, ((DST, "dst"),), ((0, "dma.fill"),))


def _indirect(
    dst: Region,
    src: Region,
    index: Region,
    mode: int,
    is_scatter: bool,
    row_stride: int,
    limit: int,
    skip: bool,
    axis: int = -1,
) -> DmaRecord:
    direct, other = (src, dst) if is_scatter else (dst, src)
    count = other.shape[0]
    if prod(dst.shape) != prod(src.shape):
        raise ValueError(f"dst {dst.shape} and src {src.shape} differ in element count")
    if prod(index.shape) < count:
        raise ValueError(f"{count} rows need as many indices, not {prod(index.shape)}")
    for region in (dst, src):
        if len(region.shape) > MAX_DIMS:
            raise ValueError(f"an operand of an indirect DMA has at most {MAX_DIMS} dims: {region.shape}")
    aligned = direct.shape[0] == count
    words = [*_head(INDIRECT_WORDS, dst, src, mode), *dma_operand(dst), *dma_operand(src)]
    free = list(zip(index.shape[1:], index.strides[1:]))
    words += operand(FORMATS[index.format].code, index.itemsize, index.strides[0], free)
    row_dim = MAX_DIMS - len(direct.shape) if aligned else -1
    words += [row_stride, limit, int(skip), int(is_scatter), axis, count, index.shape[0], row_dim]
    return DmaRecord(words, ((DST, "dst"), (SRC, "src"), (INDICES, "index")), _engines("dma.indirect", dst, src))


def gather(dst: Region, src: Region, index: Region, row_stride: int, limit: int, skip: bool = False) -> DmaRecord:
    """Row r of `src` (its dim 0) lies `index[r] * row_stride` bytes after its address; rows fill dst in order.

    `index` is the index tile (P, 1); `limit` the number of rows of the tensor behind src.
    Raises ValueError when counts disagree.
    """
    if not is_injective(dst):
        mode = SERIAL
    elif dst.partition is None:
        mode = EVEN
    else:
        mode = BY_DST if dst.shape[0] == src.shape[0] else SERIAL
    return _indirect(dst, src, index, mode, False, row_stride, limit, skip)


def scatter(dst: Region, src: Region, index: Region, row_stride: int, limit: int, skip: bool = False) -> DmaRecord:
    """Row r of `dst` lies `index[r] * row_stride` bytes after its address; rows are written in order, the last wins.

    Threads share the items of each row, so each reads every partition of src. Raises ValueError when counts disagree.
    """
    inner = Region(dst.format, dst.shape[1:], dst.strides[1:])
    mode = EVEN if is_injective(inner) else SERIAL
    return _indirect(dst, src, index, mode, True, row_stride, limit, skip)


def gather_transposed(
    dst: Region, src: Region, index: Region, axes: Sequence[int], row_stride: int, limit: int, skip: bool = False
) -> DmaRecord:
    """`dst = transpose(g, axes)`, row r of g lying `index[r] * row_stride` bytes after the address of `src`.

    The index tile (R, C) is read column by column. Invalid rows leave their elements of dst alone when `skip`.
    """
    order = sorted(range(len(axes)), key=lambda a: axes[a])
    direct = dst.permuted(order)
    if direct.shape != src.shape:
        raise ValueError(f"dst {dst.shape} is not src {src.shape} transposed by {tuple(axes)}")
    mode = EVEN if dst.partition is None else BY_DST
    if not is_injective(dst):
        mode = SERIAL
    # The partition of dst is the dim `axes[0]` of both operands.
    axis = MAX_DIMS - len(src.shape) + axes[0] if mode == BY_DST and axes[0] else -1
    return _indirect(direct._replace(partition=dst.partition), src, index, mode, False, row_stride, limit, skip, axis)
