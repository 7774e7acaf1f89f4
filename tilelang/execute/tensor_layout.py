"""Record of the TensorE matmul engine: word numbers and the builder. Pure Python; the encoder needs no numba.

    C[m, n] = sum over k, then j, of stationary[k, j, m] * moving[k, j, n]        (j only when `double_row`)

The operands are the 12-word on-chip operands of docs/architecture.md section 2: `stationary` has K partitions and M (or
2 M) free elements, `moving` K partitions and N (or 2 N), `dst` M partitions and N free elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilelang.dtypes import by_code
from tilelang.execute.layout import H_FN, H_LENGTH, HEADER_WORDS, O_COUNT, O_FORMAT, OPERAND_WORDS

__all__ = ["ACCUMULATE", "BY_BITMAP", "OVERWRITE", "TensorRecord", "engine_of", "matmul_record", "reader_of"]

DST = 8
STATIONARY = 20
MOVING = 32
K = 44  # contraction partitions, 1 to 256
M = 45  # rows of dst, 1 to 128
N = 46  # columns of dst, 1 to 8192
MODE = 47  # OVERWRITE, ACCUMULATE or BY_BITMAP
WRITTEN = 48  # address of the written byte of dst element (0, 0); only BY_BITMAP reads it
WRITTEN_PITCH = 49  # bytes from one row of the byte map to the next
PASSES = 50  # products per contraction partition: 2 with double_row, 4 of packed operands, else 1
FIRST = 51  # physical partition of dst row 0; decides which thread owns a row
READ_STATIONARY = 52  # engine address of `reader_of(stationary format)`
READ_MOVING = 53
MATMUL_WORDS = 54
# Microscaling only: the scale operands.
STATIONARY_SCALE = 54
MOVING_SCALE = 66
MX_WORDS = 78

OVERWRITE, ACCUMULATE, BY_BITMAP = 0, 1, 2

MAX_STEPS = 512  # products per output element, K * PASSES; half as many of unpacked operands
MAX_ROWS = 128
MAX_COLUMNS = 8192

# Of both operands and dst; the hardware writes float32 and bfloat16, and other formats in generation 2 transposes only.
FORMAT_NAMES = ("float32", "tfloat32", "bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
PACKED_NAMES = ("float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4")


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """One record, complete but for the addresses of engines and memory.

    `operands` lists (word offset, name) of each 12-word operand, whose first word is its address, and, for `BY_BITMAP`,
    of the address "written". `engines` lists (word offset, engine name): `engine_address(name)` belongs there.
    """

    words: list[int]
    operands: tuple[tuple[int, str], ...]
    engines: tuple[tuple[int, str], ...]


def engine_of(dst_format: str, packed: bool = False) -> str:
    """Name of the engine function that writes `dst_format`; `packed`: of microscaling operands."""
    if dst_format not in FORMAT_NAMES:
        raise ValueError(f"matmul dst format {dst_format!r} is not one of {', '.join(FORMAT_NAMES)}")
    return f"matmul.{'mx.' if packed else ''}{dst_format}"


def reader_of(operand_format: str) -> str:
    """Name of the function that widens operands of `operand_format`."""
    if operand_format not in FORMAT_NAMES + PACKED_NAMES:
        raise ValueError(f"matmul operand format {operand_format!r} is not one of {', '.join(FORMAT_NAMES)}")
    return f"matmul.read.{operand_format}"


def matmul_record(
    dst: Sequence[int],
    stationary: Sequence[int],
    moving: Sequence[int],
    *,
    k: int,
    m: int,
    n: int,
    mode: int,
    first_partition: int = 0,
    double_row: bool = False,
    written: tuple[int, int] | None = None,
    scales: tuple[Sequence[int], Sequence[int]] | None = None,
) -> TensorRecord:
    """The record of one matmul.

    Args:
        dst, stationary, moving: on-chip operands, 12 words each.
        k, m, n: contraction partitions, rows and columns of `dst`.
        mode: `OVERWRITE`, `ACCUMULATE` (one fp32 add to what `dst` holds) or `BY_BITMAP`: an element whose written byte
            is 0 is overwritten and the byte set to 1, any other accumulates.
        first_partition: physical partition of `dst` row 0.
        double_row: two products per contraction partition; the free dims of both inputs are then [2, M] and [2, N].
        written: for `BY_BITMAP`, the address of the byte of `dst` element (0, 0) and the row pitch in bytes. Within a
            row, a byte lies as many bytes from the first as its element lies elements from the first.
        scales: of microscaling operands, the scale operands of stationary and moving.

    Raises ValueError when a size, a format or the mode is outside what the engine computes.
    """
    passes = 2 if double_row else 4 if scales else 1
    width = 2 if double_row else 1
    for name, operand, elements in (
        ("dst", dst, n),
        ("stationary", stationary, width * m),
        ("moving", moving, width * n),
    ):
        if len(operand) != OPERAND_WORDS:
            raise ValueError(f"matmul operand {name} has {len(operand)} words, not {OPERAND_WORDS}")
        free = prod(operand[O_COUNT : O_COUNT + 4])
        if free != elements:
            raise ValueError(f"matmul operand {name} has {free} free elements, not {elements}")
    if not (
        1 <= k * passes <= (MAX_STEPS if scales else MAX_STEPS // 2) and 1 <= m <= MAX_ROWS and 1 <= n <= MAX_COLUMNS
    ):
        raise ValueError(f"matmul size K={k} M={m} N={n} (double_row={double_row}) is outside the engine's range")
    if mode not in (OVERWRITE, ACCUMULATE, BY_BITMAP) or (mode == BY_BITMAP) != (written is not None):
        raise ValueError(
            f"matmul mode {mode} with written={written}: the byte map goes with BY_BITMAP and only with it"
        )
    address, pitch = written or (0, 0)
    words = [0] * HEADER_WORDS + [
        *dst,
        *stationary,
        *moving,
        k,
        m,
        n,
        mode,
        address,
        pitch,
        passes,
        first_partition,
        0,
        0,
    ]
    operands = [(DST, "dst"), (STATIONARY, "stationary"), (MOVING, "moving")]
    if scales is not None:
        words += [*scales[0], *scales[1]]
        operands += [(STATIONARY_SCALE, "stationary_scale"), (MOVING_SCALE, "moving_scale")]
    words[H_LENGTH] = len(words)
    if written is not None:
        operands.append((WRITTEN, "written"))
    engines = (
        (H_FN, engine_of(by_code(dst[O_FORMAT]).name, packed=scales is not None)),
        (READ_STATIONARY, reader_of(by_code(stationary[O_FORMAT]).name)),
        (READ_MOVING, reader_of(by_code(moving[O_FORMAT]).name)),
    )
    return TensorRecord(words, tuple(operands), engines)
