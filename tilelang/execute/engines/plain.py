"""What engine functions on plain records share: their rows, parameters and operands, and reporting an error."""

from __future__ import annotations

from tilelang.execute import layout as at
from tilelang.execute.engines.jit import inline, load_i64, store_i64

__all__ = ["begin", "end", "fail", "operand", "param", "present", "scratch"]


@inline
def begin(record: int, thread: int, threads: int) -> int:
    """The first row that `thread` owns."""
    return max(at.PARTITIONS * thread // threads - load_i64(record, at.PLAIN_FIRST), 0)


@inline
def end(record: int, thread: int, threads: int) -> int:
    """The row after the last one that `thread` owns."""
    limit = at.PARTITIONS * (thread + 1) // threads - load_i64(record, at.PLAIN_FIRST)
    return min(limit, load_i64(record, at.PLAIN_ROWS))


@inline
def param(record: int, number: int) -> int:
    """Parameter `number`."""
    return load_i64(record, at.PLAIN_PARAMS + number)


@inline
def operand(record: int, params: int, number: int) -> int:
    """Address of the words of operand `number` of a record with `params` parameters."""
    return record + 8 * (at.PLAIN_PARAMS + params + at.OPERAND_WORDS * number)


@inline
def present(words: int) -> bool:
    """False for an operand that was not given."""
    return load_i64(words, at.O_ADDRESS) != 0


@inline
def scratch(record: int, thread: int) -> int:
    """Address of the thread's own scratch memory, SCRATCH_BYTES long."""
    return load_i64(record, at.H_SCRATCH) + thread * at.SCRATCH_BYTES


@inline
def fail(record: int, code: int, value: int, limit: int, row: int) -> None:
    """Report an error; the engine returns next. The record must be fallible."""
    status = load_i64(record, at.H_STATUS)
    store_i64(status, 1, load_i64(record, at.H_INDEX))
    store_i64(status, 2, value)
    store_i64(status, 3, limit)
    store_i64(status, 4, row)
    store_i64(status, 0, code)
