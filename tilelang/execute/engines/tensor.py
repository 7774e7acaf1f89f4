"""TensorE engine: one matmul record, and the readers that widen its operands (record: `execute/tensor_layout.py`).

A thread widens its slice of the stationary operand and, chunk by chunk, the moving one into float32 scratch rows padded
with zeros, then computes the rows of dst that it owns in register tiles. Whole tiles of a plain float32 dst leave the
registers directly; any other tile passes through a small buffer.

Numerics: see `tensor_kernel`; then, to accumulate, one float32 addition, and for a dst of another format one rounding.
NaN results are 0x7FC00000, or the positive quiet NaN of the format of dst.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import FORMATS, by_code
from tilelang.execute import tensor_layout as at
from tilelang.execute.engines.jit import LOAD, STORE, call, inline, load_f32, load_i64, store_f32, store_i64
from tilelang.execute.engines.tensor_kernel import Blocking, host_blocking, make_tile_product
from tilelang.execute.layout import (
    H_SCRATCH,
    O_ADDRESS,
    O_COUNT,
    O_FORMAT,
    O_PARTITION_STRIDE,
    O_STRIDE,
    PARTITIONS,
    SCRATCH_BYTES,
)
from tilelang.numerics import fma, mx
from tilelang.numerics.casts import DECODE, ENCODE, quiet
from tilelang.numerics.prim import as_f64, as_u8, as_u32, bits_f32, select

__all__ = ["source"]

_TILE_SHAPE = host_blocking()
_ROWS = _TILE_SHAPE.rows
_LANES = _TILE_SHAPE.lanes
_COLUMNS = _TILE_SHAPE.vectors * _LANES
_CHUNK = 256 // _COLUMNS * _COLUMNS  # columns of moving widened at a time: 128 rows of them stay in a 256 KiB cache

# Widening costs as much as some four rows of results, and speeds each row up by 8 %: rows of scratch are dense in
# memory, unlike those of SBUF.
_FEW_ROWS = 48

# Scratch of one thread, bytes. Pitches are odd multiples of 64: the rows a tile walks spread over all cache sets.
_A_PITCH = 4 * (at.MAX_ROWS + 16)
_B_PITCH = 4 * (256 + 16)
_TILE_PITCH = 4 * _COLUMNS
_A = 0
_B = _A + at.MAX_STEPS * _A_PITCH
_TILE = _B + at.MAX_STEPS * _B_PITCH
_A_TABLE = _TILE + _ROWS * _TILE_PITCH
_B_TABLE = _A_TABLE + 8 * 2 * at.MAX_ROWS
_DST_TABLE = _B_TABLE + 8 * 2 * at.MAX_COLUMNS
_A_SCALES = _DST_TABLE + 8 * at.MAX_COLUMNS
_B_SCALES = _A_SCALES + 8 * at.MAX_ROWS
_JOB = _B_SCALES + 8 * at.MAX_COLUMNS

# Job of a reader: int64 words; from _PASS on only readers of packed operands use them. Without scales _SCALES is 0.
_SOURCE, _SOURCE_PITCH, _TARGET_PITCH, _STEPS, _TABLE, _RUN, _FIRST, _COUNT, _PADDED = range(9)
_PASS, _SCALES, _SCALES_PITCH, _SCALES_TABLE = range(9, 13)
_SEGMENT = 8  # shorter runs of adjacent columns are read element by element

_ITEMSIZES = tuple(by_code(code).itemsize for code in range(len(FORMATS)))

_product_f32 = make_tile_product(_TILE_SHAPE)
_product_narrow = make_tile_product(Blocking(_ROWS, 1, _LANES))
_product_bf16 = make_tile_product(_TILE_SHAPE, widen=True)
_FLOAT32, _BFLOAT16 = FORMATS["float32"].code, FORMATS["bfloat16"].code
_load_u8, _store_u8 = LOAD["uint8"], STORE["uint8"]
_round_tfloat32 = ENCODE["tfloat32"]
_joint_scale, _add_product = mx.joint_scale, fma.add_product
_PACKED = 4  # elements of a packed item


@inline
def _adjacent(operand: int) -> int:
    """How many columns, from any multiple of that number on, lie side by side in memory."""
    run = 1
    for d in range(3, -1, -1):
        if load_i64(operand, O_COUNT + d) != 1:
            if load_i64(operand, O_STRIDE + d) != run * _ITEMSIZES[load_i64(operand, O_FORMAT)]:
                break
            run *= load_i64(operand, O_COUNT + d)
    return run


@inline
def _column_table(operand: int, table: int) -> int:
    """Write the byte offset of each column to `table` and return it; 0, and nothing written, if all are adjacent."""
    n0, n1 = load_i64(operand, O_COUNT), load_i64(operand, O_COUNT + 1)
    n2, n3 = load_i64(operand, O_COUNT + 2), load_i64(operand, O_COUNT + 3)
    if _adjacent(operand) == n0 * n1 * n2 * n3:
        return 0
    s0, s1 = load_i64(operand, O_STRIDE), load_i64(operand, O_STRIDE + 1)
    s2, s3 = load_i64(operand, O_STRIDE + 2), load_i64(operand, O_STRIDE + 3)
    column = 0
    for i0 in range(n0):
        for i1 in range(n1):
            for i2 in range(n2):
                start = i0 * s0 + i1 * s1 + i2 * s2
                for i3 in range(n3):
                    store_i64(table, column, start + i3 * s3)
                    column += 1
    return table


@inline
def _describe(job: int, operand: int, table: int, rows: int) -> None:
    """Fill the words of `job` that depend only on the operand."""
    store_i64(job, _SOURCE, load_i64(operand, O_ADDRESS))
    store_i64(job, _SOURCE_PITCH, load_i64(operand, O_PARTITION_STRIDE))
    store_i64(job, _STEPS, rows)
    store_i64(job, _TABLE, _column_table(operand, table))
    store_i64(job, _RUN, _adjacent(operand))


@inline
def _widen(
    reader: int, job: int, first: int, count: int, block: int, target: int, pitch: int, passes: int, stride: int
) -> None:
    """Widen columns [first, first + count), padded to a multiple of `block`, into rows at `target`.

    With several passes, rows alternate between them; each reads columns `stride` further on than the one before.
    """
    store_i64(job, _COUNT, count)
    store_i64(job, _PADDED, (count + block - 1) // block * block)
    store_i64(job, _TARGET_PITCH, pitch * passes)
    for j in range(passes):
        store_i64(job, _FIRST, first + j * stride)
        store_i64(job, _PASS, j)
        call(reader, job, target + j * pitch)


@inline
def _read_tfloat32(bits: Any) -> Any:
    """The value of a tfloat32 operand: its low 13 bits are rounded away, to nearest even."""
    return bits_f32(_round_tfloat32(bits_f32(bits)))


def _make_reader(name: str) -> Callable[[int, int], None]:
    decode = _read_tfloat32 if name == "tfloat32" else DECODE[name]
    load = LOAD[FORMATS[name].carrier.name]
    itemsize = FORMATS[name].itemsize

    def read(job: int, target: int) -> None:
        table, run = load_i64(job, _TABLE), load_i64(job, _RUN)
        first, count, padded = load_i64(job, _FIRST), load_i64(job, _COUNT), load_i64(job, _PADDED)
        for step in range(load_i64(job, _STEPS)):
            row = load_i64(job, _SOURCE) + step * load_i64(job, _SOURCE_PITCH)
            out = target + step * load_i64(job, _TARGET_PITCH)
            if table == 0:
                for j in range(count):
                    store_f32(out, j, decode(load(row + first * itemsize, j)))
            elif run >= _SEGMENT:
                j = 0
                while j < count:
                    stop = min(count, j + run - (first + j) % run)
                    start = row + load_i64(table, first + j)
                    for i in range(stop - j):
                        store_f32(out + 4 * j, i, decode(load(start, i)))
                    j = stop
            else:
                for j in range(count):
                    store_f32(out, j, decode(load(row + load_i64(table, first + j), 0)))
            for j in range(count, padded):
                store_f32(out, j, np.float32(0))

    return read


@inline
def _scales_row(step: int) -> int:
    """Row of the scales of contraction partition `step` (isa.md 11.3)."""
    return 32 * (step // 32) + step % 32 // 8


@inline
def _code(scales: int, pitch: int, table: int, step: int, column: int) -> int:
    """Scale code of column `column` in contraction partition `step`."""
    offset = column
    if table != 0:
        offset = load_i64(table, column)
    return int(_load_u8(scales + _scales_row(step) * pitch + offset, 0))


@inline
def _describe_scales(job: int, operand: int, table: int) -> None:
    """Fill the words of `job` that depend on the scale operand only."""
    store_i64(job, _SCALES, load_i64(operand, O_ADDRESS))
    store_i64(job, _SCALES_PITCH, load_i64(operand, O_PARTITION_STRIDE))
    store_i64(job, _SCALES_TABLE, _column_table(operand, table))


@inline
def _overflows(job: int, steps: int, columns: int) -> bool:
    """True when an element times its scale could exceed float32, though the product with the other need not."""
    scales, pitch, table = load_i64(job, _SCALES), load_i64(job, _SCALES_PITCH), load_i64(job, _SCALES_TABLE)
    found = False
    for step in range(0, steps, 8):
        for column in range(columns):
            code = _code(scales, pitch, table, step, column)
            found = found or (code > mx.LARGEST_SAFE_CODE and code != 255)
    return found


def _make_packed_reader(name: str) -> Callable[[int, int], None]:
    """Element `_PASS` of each packed item times its scale, which is exact (see `_overflows`)."""
    element, width, _ = mx.ELEMENTS[name]
    load = LOAD[FORMATS[name].carrier.name]
    mask = np.uint32((1 << width) - 1)
    decode = mx.e2m1_value if width == 4 else DECODE[element]
    cast = as_u32 if width == 4 else as_u8
    scale_value = mx.scale_value

    def read(job: int, target: int) -> None:
        table, shift = load_i64(job, _TABLE), as_u32(load_i64(job, _PASS) * width)
        scales, pitch, places = load_i64(job, _SCALES), load_i64(job, _SCALES_PITCH), load_i64(job, _SCALES_TABLE)
        first, count, padded = load_i64(job, _FIRST), load_i64(job, _COUNT), load_i64(job, _PADDED)
        for step in range(load_i64(job, _STEPS)):
            row = load_i64(job, _SOURCE) + step * load_i64(job, _SOURCE_PITCH)
            out = target + step * load_i64(job, _TARGET_PITCH)
            for j in range(count):
                if table == 0:
                    bits = load(row, first + j)
                else:
                    bits = load(row + load_i64(table, first + j), 0)
                value = decode(cast((as_u32(bits) >> shift) & mask))
                if scales != 0:
                    value = value * scale_value(as_u32(_code(scales, pitch, places, step, first + j)))
                store_f32(out, j, value)
            for j in range(count, padded):
                store_f32(out, j, np.float32(0))

    return read


@inline
def _exact_products(
    a: int, b: int, c: int, steps: int, rows: int, columns: int, left: int, row: int, right: int, column: int
) -> None:
    """`rows` by `columns` sums of elements in scratch, whose scales `left` and `right` describe."""
    for i in range(rows):
        for j in range(columns):
            total = np.float32(0)
            for step in range(steps):
                first = as_u32(_scale_of(left, step, row + i))
                scale = _joint_scale(first, as_u32(_scale_of(right, step, column + j)))
                for q in range(_PACKED):
                    x = load_f32(a + (_PACKED * step + q) * _A_PITCH, i)
                    y = load_f32(b + (_PACKED * step + q) * _B_PITCH, j)
                    total = _add_product(as_f64(x) * as_f64(y) * scale, total)
            store_f32(c + i * _TILE_PITCH, j, total)


@inline
def _scale_of(job: int, step: int, column: int) -> int:
    scales, pitch, table = load_i64(job, _SCALES), load_i64(job, _SCALES_PITCH), load_i64(job, _SCALES_TABLE)
    return _code(scales, pitch, table, step, column)


def _make_packed_engine(name: str) -> Callable[[int, int, int], None]:
    """The matmul of microscaling operands: the panels are float32, as those of any other format."""
    finish = _make_finish(name)

    def matmul(record: int, thread: int, nthreads: int) -> None:
        m, n, k = load_i64(record, at.M), load_i64(record, at.N), load_i64(record, at.K)
        first = load_i64(record, at.FIRST)
        low = max(PARTITIONS * thread // nthreads - first, 0)
        high = min(PARTITIONS * (thread + 1) // nthreads - first, m)
        if low >= high:
            return
        scratch = load_i64(record, H_SCRATCH) + thread * SCRATCH_BYTES
        left, right = scratch + _JOB, scratch + _JOB + 8 * 16
        _describe(left, record + 8 * at.STATIONARY, scratch + _A_TABLE, k)
        _describe_scales(left, record + 8 * at.STATIONARY_SCALE, scratch + _A_SCALES)
        _describe(right, record + 8 * at.MOVING, scratch + _B_TABLE, k)
        _describe_scales(right, record + 8 * at.MOVING_SCALE, scratch + _B_SCALES)
        table = _column_table(record + 8 * at.DST, scratch + _DST_TABLE)
        exact = _overflows(left, k, m) or _overflows(right, k, n)
        left_scales, right_scales = load_i64(left, _SCALES), load_i64(right, _SCALES)
        if exact:
            store_i64(left, _SCALES, 0)
            store_i64(right, _SCALES, 0)
        reader = load_i64(record, at.READ_STATIONARY)
        _widen(reader, left, low, high - low, _ROWS, scratch + _A, _A_PITCH, _PACKED, 0)
        reader = load_i64(record, at.READ_MOVING)
        for start in range(0, n, _CHUNK):
            stop = min(start + _CHUNK, n)
            if exact:
                store_i64(right, _SCALES, 0)
            _widen(reader, right, start, stop - start, _COLUMNS, scratch + _B, _B_PITCH, _PACKED, 0)
            if exact:
                store_i64(left, _SCALES, left_scales)
                store_i64(right, _SCALES, right_scales)
            for column in range(start, stop, _COLUMNS):
                columns = min(_COLUMNS, stop - column)
                b = scratch + _B + 4 * (column - start)
                for row in range(low, high, _ROWS):
                    rows = min(_ROWS, high - row)
                    a = scratch + _A + 4 * (row - low)
                    tile = scratch + _TILE
                    if exact:
                        _exact_products(a, b, tile, k, rows, columns, left, row, right, column)
                    elif columns <= _LANES:
                        _product_narrow(a, _A_PITCH, b, _B_PITCH, tile, _TILE_PITCH, k * _PACKED, 0)
                    else:
                        _product_f32(a, _A_PITCH, b, _B_PITCH, tile, _TILE_PITCH, k * _PACKED, 0)
                    finish(record, tile, table, row, rows, column, columns)

    return matmul


def _make_finish(name: str) -> Any:
    """Function that moves the tile buffer's `rows` by `columns` into dst at (row, first), in the record's mode."""
    decode, encode = DECODE[name], ENCODE[name]
    load, store = LOAD[FORMATS[name].carrier.name], STORE[FORMATS[name].carrier.name]
    itemsize = FORMATS[name].itemsize

    @inline
    def finish(record: int, tile: int, table: int, row: int, rows: int, first: int, columns: int) -> None:
        mode = load_i64(record, at.MODE)
        for i in range(rows):
            sums = tile + i * _TILE_PITCH
            start = load_i64(record, at.DST) + (row + i) * load_i64(record, at.DST + O_PARTITION_STRIDE)
            written = load_i64(record, at.WRITTEN) + (row + i) * load_i64(record, at.WRITTEN_PITCH)
            if table == 0:
                place, flags = start + first * itemsize, written + first
                if mode == at.OVERWRITE:
                    for j in range(columns):
                        store(place, j, encode(load_f32(sums, j)))
                elif mode == at.ACCUMULATE:
                    for j in range(columns):
                        store(place, j, encode(quiet(decode(load(place, j)) + load_f32(sums, j))))
                else:
                    for j in range(columns):
                        total = quiet(decode(load(place, j)) + load_f32(sums, j))
                        store(place, j, encode(select(_load_u8(flags, j) != 0, total, load_f32(sums, j))))
                        _store_u8(flags, j, 1)
            else:
                for j in range(columns):
                    offset = load_i64(table, first + j)
                    add = mode == at.ACCUMULATE
                    if mode == at.BY_BITMAP:
                        add = _load_u8(written + offset // itemsize, 0) != 0
                        _store_u8(written + offset // itemsize, 0, 1)
                    total = quiet(decode(load(start + offset, 0)) + load_f32(sums, j))
                    store(start + offset, 0, encode(select(add, total, load_f32(sums, j))))

    return finish


def _make_engine(name: str) -> Callable[[int, int, int], None]:
    finish = _make_finish(name)
    is_float32 = name == "float32"

    def matmul(record: int, thread: int, nthreads: int) -> None:
        m, n, k = load_i64(record, at.M), load_i64(record, at.N), load_i64(record, at.K)
        mode, passes, first = load_i64(record, at.MODE), load_i64(record, at.PASSES), load_i64(record, at.FIRST)
        dst, dst_pitch = load_i64(record, at.DST), load_i64(record, at.DST + O_PARTITION_STRIDE)
        low = max(PARTITIONS * thread // nthreads - first, 0)
        high = min(PARTITIONS * (thread + 1) // nthreads - first, m)
        if low >= high:
            return
        scratch = load_i64(record, H_SCRATCH) + thread * SCRATCH_BYTES
        job = scratch + _JOB
        _describe(job, record + 8 * at.STATIONARY, scratch + _A_TABLE, k)
        reader = load_i64(record, at.READ_STATIONARY)
        _widen(reader, job, low, high - low, _ROWS, scratch + _A, _A_PITCH, passes, m)

        moving, moving_pitch = load_i64(record, at.MOVING), load_i64(record, at.MOVING + O_PARTITION_STRIDE)
        moving_code = load_i64(record, at.MOVING + O_FORMAT)
        _describe(job, record + 8 * at.MOVING, scratch + _B_TABLE, k)
        reader = load_i64(record, at.READ_MOVING)
        adjacent = load_i64(job, _TABLE) == 0 and passes == 1
        readable = adjacent and high - low <= _FEW_ROWS and moving_code in (_FLOAT32, _BFLOAT16)
        table = _column_table(record + 8 * at.DST, scratch + _DST_TABLE)
        writable = is_float32 and table == 0 and mode != at.BY_BITMAP
        start, stop = 0, 0  # the columns of moving that are in scratch
        for column in range(0, n, _COLUMNS):
            columns = min(_COLUMNS, n - column)
            in_place = readable and columns == _COLUMNS
            if in_place:
                b, b_pitch = moving + column * _ITEMSIZES[moving_code], moving_pitch
            else:
                if column >= stop:
                    start, stop = column, min(column + _CHUNK, n)
                    _widen(reader, job, start, stop - start, _COLUMNS, scratch + _B, _B_PITCH, passes, n)
                b, b_pitch = scratch + _B + 4 * (column - start), _B_PITCH
            for row in range(low, high, _ROWS):
                rows = min(_ROWS, high - row)
                whole = writable and rows == _ROWS and columns == _COLUMNS
                c, c_pitch, add = scratch + _TILE, _TILE_PITCH, 0
                if whole:
                    c, c_pitch, add = dst + row * dst_pitch + 4 * column, dst_pitch, mode
                a = scratch + _A + 4 * (row - low)
                if in_place and moving_code == _BFLOAT16:
                    _product_bf16(a, _A_PITCH, b, b_pitch, c, c_pitch, k * passes, add)
                elif columns <= _LANES:
                    _product_narrow(a, _A_PITCH, b, b_pitch, c, c_pitch, k * passes, add)
                else:
                    _product_f32(a, _A_PITCH, b, b_pitch, c, c_pitch, k * passes, add)
                if not whole:
                    finish(record, scratch + _TILE, table, row, rows, column, columns)

    return matmul


def source(name: str) -> tuple[Callable[..., None], int]:
    """The Python function behind the engine name `name`, for the compiler, and its number of int64 arguments.

    Names: `matmul.<dst format>` and `matmul.mx.<dst format>`, engine functions, and `matmul.read.<operand format>`,
    which they call with the addresses of a job and of the first output row; see `tensor_layout.engine_of` and
    `reader_of`. Raises KeyError for any other name.
    """
    for format_name in at.PACKED_NAMES:
        if name == at.reader_of(format_name):
            return _make_packed_reader(format_name), 2
    for format_name in at.FORMAT_NAMES:
        if name == at.engine_of(format_name, packed=True):
            return _make_packed_engine(format_name), 3
        if name == at.engine_of(format_name):
            return _make_engine(format_name), 3
        if name == at.reader_of(format_name):
            return _make_reader(format_name), 2
    raise KeyError(f"no tensor engine function {name!r}")
