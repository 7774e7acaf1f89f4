"""Hand-built programs of the sequencer: records, loops, small engines, and a status block they share."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import carray, types
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS
from tilelang.execute import _sequencer as seq
from tilelang.execute._layout import verify
from tilelang.execute.layout import DYNAMIC_WORDS, H_DYN, H_FLAGS, H_LENGTH, H_NDYN, HEADER_WORDS

Words = list[int]

ENGINE = types.void(types.CPointer(types.int64), types.int64, types.int64)


@numba.extending.intrinsic
def _pointer(context: Any, address: Any) -> Any:
    def generate(cgctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgctx.get_value_type(sig.return_type))

    return types.CPointer(types.int64)(types.int64), generate


@numba.extending.intrinsic
def f32_pointer(context: Any, address: Any) -> Any:
    def generate(cgctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgctx.get_value_type(sig.return_type))

    return types.CPointer(types.float32)(types.int64), generate


# Engines of these tests; their records hold [8] address, [9] value.


@numba.cfunc(ENGINE)
def count(record, thread, nthreads):  # type: ignore[no-untyped-def]
    """Adds value to the thread's own cell, 64 bytes apart."""
    cell = carray(_pointer(record[8] + 64 * thread), 1)
    cell[0] += record[9]


@numba.cfunc(ENGINE)
def append(record, thread, nthreads):  # type: ignore[no-untyped-def]
    """Thread 0 writes value behind the list at address, whose first word is its length."""
    if thread == 0:
        length = carray(_pointer(record[8]), 1)
        length[0] += 1
        carray(_pointer(record[8] + 8 * length[0]), 1)[0] = record[9]


@numba.cfunc(ENGINE)
def neighbours(record, thread, nthreads):  # type: ignore[no-untyped-def]
    """Adds all threads' cells of plane value - 1 into the thread's cell of plane value: wrong without a barrier."""
    total = 0
    for t in range(nthreads):
        total += carray(_pointer(record[8] + 4096 * (record[9] - 1) + 64 * t), 1)[0]
    carray(_pointer(record[8] + 4096 * record[9] + 64 * thread), 1)[0] = total % 1000003 + 1


@numba.cfunc(ENGINE)
def fail(record, thread, nthreads):  # type: ignore[no-untyped-def]
    """Reports code 2 with value and the thread as row."""
    status = carray(_pointer(record[4]), 8)
    status[1] = record[3]
    status[2] = record[9]
    status[4] = thread
    status[0] = 2


@numba.cfunc(ENGINE)
def work(record, thread, nthreads):  # type: ignore[no-untyped-def]
    """Busy for some microseconds times value."""
    cell = carray(_pointer(record[8] + 64 * thread), 1)
    for i in range(record[9] * 2000):
        cell[0] = cell[0] * 6364136223846793005 + i


def rec(fn: Any, *args: int, flags: int = 0, index: int = 0, dynamic: tuple[Words, ...] = ()) -> Words:
    """One record; `fn` is an opcode or a compiled engine."""
    words = [fn if isinstance(fn, int) else fn.address, 0, flags, index, STATUS.ctypes.data, 0, 0, 0, *args]
    if dynamic:
        words[H_FLAGS] |= seq.DYNAMIC
        words[H_NDYN], words[H_DYN] = len(dynamic), len(words)
        for entry in dynamic:
            assert len(entry) == DYNAMIC_WORDS
            words += entry
    words[H_LENGTH] = len(words)
    return words


IMM, REG = seq.IMMEDIATE, seq.REGISTER
END = [seq.END, HEADER_WORDS, 0, 0, 0, 0, 0, 0]
STATUS = np.zeros(8, np.int64)


class Loop:
    """A loop in a list of records; `assemble` fills in the targets."""

    def __init__(self, head: Words, tail: Words, *body: Any) -> None:
        self.head, self.tail, self.body = head, tail, body


def for_loop(register: int, state: int, lower: tuple[int, int], upper: tuple[int, int], step: int, *body: Any) -> Loop:
    head = rec(seq.LOOP, register, state, *lower, *upper, step, 0)
    return Loop(head, rec(seq.LOOP_END, register, state, step, 0), *body)


def while_loop(register: int, *body: Any) -> Loop:
    return Loop(rec(seq.WHILE, register, 0), rec(seq.WHILE_END, 0), *body)


def assemble(*items: Any) -> NDArray[np.int64]:
    words: Words = []

    def emit(item: Any) -> None:
        if not isinstance(item, Loop):
            words.extend(item)
            return
        start = len(words)
        words.extend(item.head)
        body = len(words)
        for part in item.body:
            emit(part)
        words.extend(item.tail)
        words[body - 1] = len(words)
        words[-1] = body if item.head[0] == seq.LOOP else start

    for item in (*items, END):
        emit(item)
    return np.array(words, np.int64)


def run(*items: Any, registers: int = 16, threads: int = 1) -> int:
    program = assemble(*items)
    verify(program, registers)
    return int(seq.run(program, STATUS, registers, threads))


def log_register(memory: NDArray[Any], register: int) -> Words:
    """Appends the register to the list in `memory`."""
    limit = np.iinfo(np.int64)
    return rec(append, memory.ctypes.data, 0, dynamic=([0, register, 0, 1, 9, limit.min, limit.max, 0],))


def logged(memory: NDArray[Any]) -> list[int]:
    return [int(v) for v in memory[1 : memory[0] + 1]]


def store(memory: NDArray[Any], cell: int, register: int, fmt: str = "int64") -> Words:
    return rec(seq.STORE, memory.ctypes.data + cell * memory.itemsize, FORMATS[fmt].code, REG, register, 0)


def entry(source: int, target: int, lo: int, hi: int, multiplier: int = 1, skip: int = 0) -> Words:
    return [0, source, 0, multiplier, target, lo, hi, skip]
