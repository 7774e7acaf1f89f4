"""Words of records and micro-ops: the constants that encoder and engines share, and builders of micro-ops.

Plain Python, without numba or the compiled extension. A builder returns a `Uop`: its `words` start with 0 (the
function address, to be filled in from `tilelang.execute.engines.address(uop.name)`) and the length; `operands` lists
`(word offset, name)` of every word whose value the caller supplies or patches: the first of the 12 words of an operand
(its address), or a scalar word.

Registers 0 to 9 hold blocks of rows: float32 or 32-bit integers, or raw items of 1, 2, 4 or 8 bytes. A micro-op never
writes the register it reads. A *column register* holds few columns (1: a scalar per partition) for the whole row: a
port with `columns > 0` fills it at the first block of a row, later blocks use it, so a record uses it for nothing else.
After `view`, a register is the operand's memory, until the next block: what writes the register writes the memory.
Registers `VIEW` and `TEMP` are for the inside of ports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Record header (architecture.md section 2).
H_FN, H_LENGTH, H_FLAGS, H_INDEX, H_STATUS, H_SCRATCH, H_NDYN, H_DYN = range(8)
HEADER_WORDS = 8
FLAG_BARRIER = 1
FLAG_DYNAMIC = 2
STATUS_WORDS = 8
DYNAMIC_WORDS = 8
SCRATCH_BYTES = 4 << 20
SCRATCH_ALIGN = 64

# On-chip operand.
OPERAND_WORDS = 12
O_ADDRESS, O_FORMAT, O_PARTITION_STRIDE, O_NDIM, O_COUNT, O_STRIDE = 0, 1, 2, 3, 4, 8
ADDRESS_STRIDE_DIMS = 4

# Pipeline record, after the header.
PIPE_ROWS, PIPE_PARTITION, PIPE_COLUMNS, PIPE_BLOCK, PIPE_UOPS, PIPE_FIRST, PIPE_SEGMENT, PIPE_ITEM = range(8, 16)
PIPE_WORDS = 16

# Plain record of an engine function of its own, after the header: rows, first physical partition, parameters, operands.
PLAIN_ROWS, PLAIN_FIRST, PLAIN_PARAMS = range(8, 11)
# Sums of the DMA engines: a plain record with 7 parameters, then operands of ADD_WORDS words.
ADD_FIRST, ADD_WORDS = PLAIN_PARAMS + 7, 18
# Status codes of engines: a row outside a tensor; an offset outside the partition; a segment id that is none.
E_ROW, E_OFFSET, E_SEGMENT = 2, 6, 8

# Pipeline geometry. A register holds REGISTER_ITEMS items; whole-row records enlarge it to one row.
PARTITIONS = 128
BLOCK = 256
REGISTER_ITEMS = 2048
REGISTERS = 12
VIEW = 10  # ports bind it to the memory they convert from or to
TEMP = 11  # packed items of ports, always scratch
WHOLE_ROW = -1
MAX_WHOLE_ROW_BYTES = 320 << 10  # of one register; REGISTERS of them, padded, fit in SCRATCH_BYTES

# Pipeline context, int64 words (architecture.md section 3).
C_ROW, C_ROWS, C_COLUMN, C_COLUMNS, C_FIRST, C_LAST, C_TEMP, C_TOTAL, C_REGISTER = range(9)
C_SEGMENT = C_REGISTER + 2 * REGISTERS
CONTEXT_WORDS = 40


class Uop(NamedTuple):
    """One micro-op: function name, words (words[0] is 0), and the word offsets of what the caller supplies."""

    name: str
    words: list[int]
    operands: list[tuple[int, str]]


def operand(
    code: int,
    itemsize: int,
    partition_stride: int,
    dims: list[tuple[int, int]] | tuple[tuple[int, int], ...],
    address: int = 0,
) -> list[int]:
    """The 12 words of an on-chip operand.

    `dims` are the (count, stride in bytes) of the free dims, outermost first. Size-1 dims are dropped and neighbours
    merged where possible. Raises ValueError when more than four remain.
    """
    merged: list[tuple[int, int]] = []
    for count, stride in dims:
        if count == 1:
            continue
        if merged and merged[-1][1] == count * stride:
            merged[-1] = (merged[-1][0] * count, stride)
        else:
            merged.append((count, stride))
    if not merged:
        merged.append((1, itemsize))
    if len(merged) > 4:
        raise ValueError(f"an on-chip operand has at most 4 free dims, not {len(merged)}: {merged}")
    pad = 4 - len(merged)
    counts = [1] * pad + [count for count, _ in merged]
    strides = [0] * pad + [stride for _, stride in merged]
    return [address, code, partition_stride, len(merged), *counts, *strides]


def is_contiguous(words: list[int], itemsize: int) -> bool:
    """Whether each row of the operand is one run of adjacent items."""
    return words[O_NDIM] == 1 and words[O_STRIDE + 3] == itemsize


def float_bits(value: float) -> int:
    """The bits of `value` rounded to float32, as a word; infinite beyond its range."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


def uop(name: str, *args: int, operands: list[tuple[int, str]] | None = None) -> Uop:
    """The micro-op `name` with `args` after the address and the length; e.g. `uop("binary.add.tt", dst, a, b)`."""
    return Uop(name, [0, 2 + len(args), *args], operands or [])


# --- ports ------------------------------------------------------------------------------------------------------------


def view(register: int, words: list[int]) -> Uop:
    """Point a register at an operand of contiguous rows: an input that needs no conversion, or an output.

    An output register may be bound so only when the operand overlaps no input of the record.
    """
    return Uop("view", [0, 3 + OPERAND_WORDS, register, *words], [(3, "operand")])


def gather(register: int, itemsize: int, words: list[int], columns: int = 0) -> Uop:
    """Raw items of an operand into a register."""
    return Uop(f"gather.{itemsize}", [0, 4 + OPERAND_WORDS, register, columns, *words], [(4, "operand")])


def scatter(register: int, itemsize: int, words: list[int]) -> Uop:
    """Raw items of a register into an operand; of items that share an address the last wins."""
    return Uop(f"scatter.{itemsize}", [0, 3 + OPERAND_WORDS, register, *words], [(3, "operand")])


def put(register: int, predicate: int, reverse: bool, itemsize: int, words: list[int]) -> Uop:
    """Raw items of a register into an operand, where `predicate` (32-bit items) is not 0, or is 0 when `reverse`."""
    return Uop(f"put.{itemsize}", [0, 5 + OPERAND_WORDS, register, predicate, int(reverse), *words], [(5, "operand")])


def fill(register: int, itemsize: int, bits: int, columns: int = 0) -> Uop:
    """The same raw item everywhere; float32 scalars are `fill(register, 4, float_bits(value), columns=1)`."""
    return Uop(f"fill.{itemsize}", [0, 5, register, columns, bits], [(4, "bits")])


def read(register: int, name: str, itemsize: int, words: list[int], columns: int = 0) -> list[Uop]:
    """An operand of format `name` as float32 (`columns > 0`: into a column register, from the operand's first columns).

    A contiguous float32 operand is not copied: the register is the memory.
    """
    if columns:
        if name == "float32":
            return [gather(register, itemsize, words, columns)]
        return [gather(TEMP, itemsize, words, columns), uop(f"decode.{name}", register, TEMP, columns)]
    contiguous = is_contiguous(words, itemsize)
    if name == "float32":
        return [view(register, words) if contiguous else gather(register, itemsize, words)]
    if contiguous:
        return [view(VIEW, words), uop(f"decode.{name}", register, VIEW, 0)]
    return [gather(TEMP, itemsize, words), uop(f"decode.{name}", register, TEMP, 0)]


def read_bits(register: int, itemsize: int, words: list[int], columns: int = 0) -> list[Uop]:
    """An operand's items (1, 2 or 4 bytes) as zero-extended 32-bit integers: for bitvec operators and predicates."""
    return read_integer(register, f"uint{8 * itemsize}", itemsize, words, columns)


def read_integer(register: int, name: str, itemsize: int, words: list[int], columns: int = 0) -> list[Uop]:
    """An operand of integer format `name` as 32-bit integers, extended by its sign or by zeros."""
    if itemsize == 4:
        if columns == 0 and is_contiguous(words, itemsize):
            return [view(register, words)]
        return [gather(register, itemsize, words, columns)]
    name = "uint8" if name == "bool" else name
    if columns == 0 and is_contiguous(words, itemsize):
        return [view(VIEW, words), uop(f"widen.{name}", register, VIEW, 0)]
    return [gather(TEMP, itemsize, words, columns), uop(f"widen.{name}", register, TEMP, columns)]


def read_items(register: int, itemsize: int, words: list[int]) -> list[Uop]:
    """An operand's raw items: for bit-exact copies, `select` and `put`. Contiguous rows are not copied."""
    return [view(register, words) if is_contiguous(words, itemsize) else gather(register, itemsize, words)]


def write(register: int, name: str, itemsize: int, words: list[int]) -> list[Uop]:
    """Float32 to an operand of format `name`."""
    return _write_through(f"encode.{name}", register, itemsize, words)


def _write_through(name: str, register: int, itemsize: int, words: list[int]) -> list[Uop]:
    if is_contiguous(words, itemsize):
        return [view(VIEW, words), uop(name, VIEW, register)]
    return [uop(name, TEMP, register), scatter(TEMP, itemsize, words)]


def write_integer(register: int, name: str, itemsize: int, words: list[int], saturate: bool = False) -> list[Uop]:
    """32-bit integers to an operand of integer format `name`: the low bits, or with `saturate` the nearest in range.

    Values to saturate are int32. 32-bit destinations take the bits in either case.
    """
    if itemsize == 4:
        return [scatter(register, itemsize, words)]
    if saturate:
        return _write_through(f"saturate.{name}", register, itemsize, words)
    return _write_through(f"narrow.uint{8 * itemsize}", register, itemsize, words)


def write_items(register: int, itemsize: int, words: list[int]) -> list[Uop]:
    """Raw items to an operand."""
    return [scatter(register, itemsize, words)]


# --- operators --------------------------------------------------------------------------------------------------------


def affine(register: int, pattern: list[tuple[int, int]], offset: int, channel_multiplier: int) -> Uop:
    """Int32 values `offset + p * channel_multiplier + sum of step_k * i_k`.

    `p` is the row; `pattern` holds (step, count) pairs, outermost first.
    """
    pad = [(0, 1)] * (ADDRESS_STRIDE_DIMS - len(pattern))
    pairs = [*pad, *pattern]
    counts = [count for _, count in pairs]
    steps = [step for step, _ in pairs]
    return uop("affine", register, offset, channel_multiplier, *counts, *steps, operands=[(3, "offset")])


def scalar(register: int, value: float) -> Uop:
    """A float32 constant as a column register of one scalar per row."""
    return Uop("fill.4", [0, 5, register, 1, float_bits(value)], [(4, "bits")])


def reduction(
    op: str,
    dst: int,
    src: int,
    acc: int,
    inner: int,
    total: int,
    start: int | None,
    integer: str | None = None,
    block: int = 0,
) -> tuple[list[Uop], int]:
    """Reduce each run of `inner` of the `total` columns; result o of a row becomes column o of `dst`.

    `start` is what accumulation starts from, as 32 bits (`float_bits(alu.identity(op))`), or None: the first element.
    `integer` is None for float32, else "int32" or "uint32". `acc` is a register kept for the accumulator, `block` that
    of the record. What follows sees a block of results. Returns (micro-ops, the record's `segment`).
    """
    suffix = f".{integer}" if integer else ""
    infix = "_integer" if integer else ""
    mode = int(start is None)
    bits = start or 0
    if inner < total and (inner <= BLOCK or block == WHOLE_ROW):
        return [uop(f"group{infix}.{op}{suffix}", dst, src, inner, mode, bits)], inner
    return [
        Uop("fill.4", [0, 5, acc, 1, bits], []),
        uop(f"fold{infix}.{op}{suffix}", acc, src, mode),
        uop("emit", dst, acc),
    ], inner


def accumulate(op: str, acc: int, src: int) -> Uop:
    """Fold the block into the column register `acc`, which a port or `scalar` filled before; `emit` reads it out."""
    return uop(f"fold.{op}", acc, src, 0)


def emit(dst: int, acc: int) -> Uop:
    """Turn the block into the one column `acc` at the end of the row, before that into no columns.

    It comes after the writes of the block.
    """
    return uop("emit", dst, acc)


def scan(op0: str, op1: str, dst: int, a: int, b: int, acc: int, reverse0: bool = False, reverse1: bool = False) -> Uop:
    """`acc = op1(op0(a, acc), b); dst = acc` along the row; a reverse flag swaps the operands of its operator."""
    return uop(f"scan.{op0}.{op1}{'.r0' if reverse0 else ''}{'.r1' if reverse1 else ''}", dst, a, b, acc)


def resize(columns: int) -> Uop:
    """Set the columns of the block after a whole-row micro-op (`max8`, `bn_stats`, …), whose results are fewer."""
    return uop("resize", columns)


# --- records ----------------------------------------------------------------------------------------------------------

# Position of the word `columns` in the ports that fill a register.
_COLUMNS_WORD = {"gather": 3, "fill": 3, "decode": 4, "widen": 4}
_WRITE_NO_REGISTER = frozenset({"scatter", "put", "resize"})
_UPDATE_ACCUMULATOR = frozenset({"fold", "fold_integer"})


def _check_registers(uops: list[Uop], item: int) -> None:
    """Column registers are filled once per row, so nothing else may write them; 8-byte items need the wide pitch."""
    filled: set[int] = set()
    written: set[int] = set()
    for name, words, _ in uops:
        family = name.partition(".")[0]
        register = words[2]
        if register in (VIEW, TEMP) or family in _WRITE_NO_REGISTER:
            continue
        if family in _COLUMNS_WORD and words[_COLUMNS_WORD[family]]:
            if register in filled:
                raise ValueError(f"column register {register} is filled twice in one record, by {name} last")
            filled.add(register)
        elif family not in _UPDATE_ACCUMULATOR:
            written.add(register)
        if family in ("gather", "fill") and name.endswith(".8") and item < 8:
            raise ValueError(f"{name} needs a record with item=8")
    if filled & written:
        raise ValueError(f"registers {sorted(filled & written)} hold columns and blocks in one record")


def pipeline(
    uops: list[Uop], rows: int, partition: int, columns: int, *, block: int = 0, segment: int = 0, item: int = 4
) -> tuple[list[int], list[tuple[int, str]], list[tuple[int, str]]]:
    """The words of a pipeline record, its function fixups, and its operand words.

    `rows` and `columns` are P and F of the walk, `partition` the first physical partition of dst; `block` columns at a
    time (0: the default, WHOLE_ROW: one block per row); `segment` the columns of one result of a long reduction (0: F);
    `item` the row pitch of registers in bytes per column (8 for raw 8-byte items). Returns (words, [(word, engine
    function name)], [(word, operand name)]); of the header only the length is set, the rest is for the encoder.

    Raises ValueError for a whole row that exceeds the scratch memory, and for a column register that is written twice.
    """
    if block == WHOLE_ROW and columns * item > MAX_WHOLE_ROW_BYTES:
        raise ValueError(f"a whole-row record takes at most {MAX_WHOLE_ROW_BYTES // item} columns, not {columns}")
    _check_registers(uops, item)
    if block == WHOLE_ROW and 0 < segment < columns and any(step.name == "emit" for step in uops):
        raise ValueError("a whole-row record reduces its segments with `group`: pass block=WHOLE_ROW to `reduction`")
    words = [0] * PIPE_WORDS
    words[PIPE_ROWS:PIPE_WORDS] = [rows, partition, columns, block, len(uops), PIPE_WORDS, segment, item]
    functions = [(H_FN, "pipeline")]
    operands = []
    for step in uops:
        start = len(words)
        functions.append((start, step.name))
        operands += [(start + offset, name) for offset, name in step.operands]
        words += step.words
    words[H_LENGTH] = len(words)
    return words, functions, operands
