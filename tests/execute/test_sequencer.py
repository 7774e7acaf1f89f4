"""The sequencer: control flow, registers, barriers, dynamic entries, errors, signals, fork."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import carray, types
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS
from tilelang.execute import _sequencer as seq
from tilelang.execute._layout import verify
from tilelang.execute.layout import DYNAMIC_WORDS, H_DYN, H_FLAGS, H_LENGTH, H_NDYN, HEADER_WORDS

Words = list[int]
THREADS = (1, 2, 4)
ROOT = Path(__file__).parents[2]

ENGINE = types.void(types.CPointer(types.int64), types.int64, types.int64)
ROW = types.void(types.int64, types.int64, types.int64)


@numba.extending.intrinsic
def _pointer(context: Any, address: Any) -> Any:
    def generate(cgctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgctx.get_value_type(sig.return_type))

    return types.CPointer(types.int64)(types.int64), generate


@numba.extending.intrinsic
def _f32(context: Any, address: Any) -> Any:
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
    """Adds the cells of all threads of plane value - 1 into the thread's cell of plane value: wrong without a barrier."""
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


@pytest.fixture
def memory() -> NDArray[np.int64]:
    return np.zeros(1 << 15, np.int64)


# ---- control flow ----


@pytest.mark.parametrize("threads", THREADS)
def test_straight_program_runs_once_on_every_thread(memory: NDArray[np.int64], threads: int) -> None:
    assert run(*[rec(count, memory.ctypes.data, 3)] * 100, threads=threads) == seq.FINE
    cells = memory[:: 64 // 8][:8]
    assert cells.tolist() == [300] * threads + [0] * (8 - threads)


@given(lower=st.integers(-5, 5), upper=st.integers(-5, 12), step=st.integers(1, 4), threads=st.sampled_from(THREADS))
def test_loop_counts_like_range(lower: int, upper: int, step: int, threads: int) -> None:
    memory = np.zeros(64, np.int64)
    # The body overwrites the induction register and the bound: neither matters.
    loop = for_loop(
        0, 1, (IMM, lower), (REG, 3), step, log_register(memory, 0), rec(seq.MOVE, 0, IMM, 99, 64), rec(seq.MOVE, 3, IMM, -7, 64)
    )
    assert run(rec(seq.MOVE, 3, IMM, upper, 64), loop, threads=threads) == seq.FINE
    assert logged(memory) == list(range(lower, upper, step))


def test_nested_loops(memory: NDArray[np.int64]) -> None:
    inner = for_loop(3, 4, (REG, 0), (IMM, 4), 2, log_register(memory, 0), log_register(memory, 3))
    assert run(for_loop(0, 1, (IMM, 0), (IMM, 4), 1, inner)) == seq.FINE
    assert logged(memory) == [v for i in range(4) for j in range(i, 4, 2) for v in (i, j)]


def test_loop_bounds_at_the_ends_of_int64(memory: NDArray[np.int64]) -> None:
    top = np.iinfo(np.int64).max
    assert run(for_loop(0, 1, (IMM, top - 3), (IMM, top), 2, log_register(memory, 0))) == seq.FINE
    assert logged(memory) == [top - 3, top - 1]


def test_while_runs_until_zero(memory: NDArray[np.int64]) -> None:
    step = rec(seq.ALU, 5, seq.SUBTRACT, 32, REG, 5, IMM, 1)
    loop = while_loop(5, log_register(memory, 5), step)
    assert run(rec(seq.MOVE, 5, IMM, 3, 32), loop, while_loop(6, log_register(memory, 5))) == seq.FINE
    assert logged(memory) == [3, 2, 1]


def test_registers_start_at_zero_in_every_run(memory: NDArray[np.int64]) -> None:
    for _ in range(2):
        assert run(log_register(memory, 7), rec(seq.MOVE, 7, IMM, 5, 32)) == seq.FINE
    assert logged(memory) == [0, 0]


# ---- registers and memory ----


def _wrap(value: int, width: int) -> int:
    half = 1 << width - 1
    return (value + half) % (2 * half) - half


def store(memory: NDArray[Any], cell: int, register: int, fmt: str = "int64") -> Words:
    return rec(seq.STORE, memory.ctypes.data + cell * memory.itemsize, FORMATS[fmt].code, REG, register, 0)


@given(a=st.integers(-(2**63), 2**63 - 1), b=st.integers(-(2**63), 2**63 - 1), width=st.sampled_from([32, 64]))
def test_alu_and_move_wrap(a: int, b: int, width: int) -> None:
    memory = np.zeros(5, np.int64)
    ops = {seq.ADD: a + b, seq.SUBTRACT: a - b, seq.MULTIPLY: a * b, seq.NEGATE: -a}
    items = [rec(seq.MOVE, 0, IMM, a, 64), rec(seq.MOVE, 3, REG, 0, width), store(memory, 4, 3)]
    for cell, op in enumerate(ops):
        items += [rec(seq.ALU, 1, op, width, REG, 0, IMM, b), store(memory, cell, 1)]
    assert run(*items) == seq.FINE
    assert memory.tolist() == [*(_wrap(v, width) for v in ops.values()), _wrap(a, width)]


INTEGERS = ["int8", "int16", "int32", "uint8", "uint16", "uint32", "int64"]


@pytest.mark.parametrize("fmt", INTEGERS)
def test_load_extends_integers(fmt: str) -> None:
    limits = np.iinfo(fmt)
    for value in (limits.min, limits.max, 0, 1, limits.max // 3):
        source, target = np.array([value], fmt), np.zeros(1, np.int64)
        load = rec(seq.LOAD, 2, source.ctypes.data, FORMATS[fmt].code, 0)
        assert run(load, store(target, 0, 2)) == seq.FINE
        assert target[0] == value


@pytest.mark.parametrize("fmt", INTEGERS)
@pytest.mark.parametrize("value", [0, 1, -1, 127, 128, -129, 255, 256, 40000, -40000, 70000, 2**31, 2**32 - 1, 2**32 + 5, -(2**40)])
def test_store_saturates_narrow_integers_and_wraps_32_bits(fmt: str, value: int) -> None:
    target = np.zeros(3, fmt)
    assert run(rec(seq.MOVE, 2, IMM, value, 64), store(target, 1, 2, fmt), threads=2) == seq.FINE
    limits = np.iinfo(fmt)
    if fmt in ("int32", "uint32"):
        expected = int(np.array([value & 0xFFFFFFFF], np.uint32).view(fmt)[0])
    else:
        expected = min(max(value, limits.min), limits.max)
    assert target.tolist() == [0, expected, 0]


def test_bool_is_zero_or_one() -> None:
    source, target, value = np.array([7], np.uint8), np.zeros(1, np.int64), np.zeros(2, np.uint8)
    load = rec(seq.LOAD, 2, source.ctypes.data, FORMATS["bool"].code, 0)
    assert run(load, store(target, 0, 2), rec(seq.MOVE, 2, IMM, -9, 32), store(value, 1, 2, "bool")) == seq.FINE
    assert target[0] == 1
    assert value.tolist() == [0, 1]


FLOATS = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.49, -2.51, 2.0**31, -(2.0**31), -(2.0**31) - 256, 1e30, -1e30, np.inf, -np.inf, np.nan]
ROUNDED = [0, 0, 0, 2, 2, 0, -2, 3, -3, 2**31 - 1, -(2**31), -(2**31), 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0]


@pytest.mark.parametrize("value, expected", list(zip(FLOATS, ROUNDED, strict=True)))
def test_load_rounds_float32(value: float, expected: int) -> None:
    source, target = np.array([value], np.float32), np.zeros(1, np.int64)
    assert run(rec(seq.LOAD, 2, source.ctypes.data, FORMATS["float32"].code, 0), store(target, 0, 2)) == seq.FINE
    assert target[0] == expected


@pytest.mark.parametrize("value", [0, -1, 2**24 + 1, 2**24 + 3, -(2**31), 2**32 - 1, 2**62 + 1])
def test_store_rounds_to_float32(value: int) -> None:
    target = np.zeros(1, np.float32)
    assert run(rec(seq.MOVE, 2, IMM, value, 64), store(target, 0, 2, "float32")) == seq.FINE
    assert target[0] == np.float32(value)


@numba.cfunc(ROW)
def half_to_float(source, destination, items):  # type: ignore[no-untyped-def]
    """Row function of a format whose bits are half the float."""
    carray(_f32(destination), items)[0] = carray(_f32(source), items)[0] * np.float32(2)


@numba.cfunc(ROW)
def float_to_half(source, destination, items):  # type: ignore[no-untyped-def]
    """The inverse of `half_to_float`."""
    carray(_f32(destination), items)[0] = carray(_f32(source), items)[0] * np.float32(0.5)


def test_load_and_store_through_row_functions() -> None:
    source, target, value = np.array([10.5], np.float32), np.zeros(1, np.float32), np.zeros(1, np.int64)
    load = rec(seq.LOAD, 2, source.ctypes.data, FORMATS["bfloat16"].code, half_to_float.address)
    write = rec(seq.STORE, target.ctypes.data, FORMATS["bfloat16"].code, REG, 2, float_to_half.address)
    assert run(load, store(value, 0, 2), write, threads=2) == seq.FINE
    assert value[0] == 21
    assert target[0] == 10.5


def test_last_words_may_be_left_out() -> None:
    source, target = np.array([7], np.int32), np.zeros(1, np.int64)
    code = FORMATS["int32"].code
    items = [rec(seq.LOAD, 1, source.ctypes.data, code), rec(seq.MOVE, 2, REG, 1), rec(seq.STORE, target.ctypes.data, 14, REG, 2)]
    assert run(*items) == seq.FINE
    assert target[0] == 7


def test_store_of_an_immediate_happens_once() -> None:
    target = np.zeros(1, np.int32)
    write = rec(seq.STORE, target.ctypes.data, FORMATS["int32"].code, IMM, -5, 0, flags=seq.BARRIER)
    assert run(write, threads=4) == seq.FINE
    assert target[0] == -5


# ---- threads ----


@pytest.mark.parametrize("threads", THREADS)
def test_barriers_order_all_threads(memory: NDArray[np.int64], threads: int) -> None:
    planes = 60
    items = [rec(count, memory.ctypes.data, 1)]
    items += [rec(neighbours, memory.ctypes.data, k, flags=seq.BARRIER) for k in range(1, planes)]
    assert run(*items, threads=threads) == seq.FINE
    value = 1
    for k in range(1, planes):
        value = value * threads % 1000003 + 1
        assert memory[512 * k : 512 * k + 8 * threads : 8].tolist() == [value] * threads


def test_barrier_in_a_loop(memory: NDArray[np.int64]) -> None:
    body = rec(append, memory.ctypes.data, 4, flags=seq.BARRIER)
    assert run(for_loop(0, 1, (IMM, 0), (IMM, 5000), 1, body), threads=2) == seq.FINE
    assert logged(memory) == [4] * 5000


def test_python_threads_run_side_by_side() -> None:
    def loop(memory: NDArray[np.int64], status: NDArray[np.int64], nthreads: int) -> None:
        program = assemble(for_loop(0, 1, (IMM, 0), (IMM, 200), 1, rec(count, memory.ctypes.data, 1, flags=seq.BARRIER)))
        for _ in range(50):
            codes.append(seq.run(program, status, 4, nthreads))

    codes: list[int] = []
    memories = [np.zeros(512, np.int64) for _ in range(4)]
    workers = [threading.Thread(target=loop, args=(m, np.zeros(8, np.int64), 1 + i % 2)) for i, m in enumerate(memories)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert codes == [seq.FINE] * 200
    assert [m[0] for m in memories] == [10000] * 4
    assert [m[8] for m in memories] == [0, 10000] * 2


# ---- dynamic entries ----


def entry(source: int, target: int, lo: int, hi: int, multiplier: int = 1, skip: int = 0) -> Words:
    return [0, source, 0, multiplier, target, lo, hi, skip]


@pytest.mark.parametrize("threads", THREADS)
def test_dynamic_entry_adds_register_times_multiplier(memory: NDArray[np.int64], threads: int) -> None:
    body = rec(count, memory.ctypes.data, 1, dynamic=(entry(0, 8, 0, 4, multiplier=4096), entry(0, 9, 0, 9, multiplier=10)))
    loop = for_loop(0, 1, (IMM, 0), (IMM, 4), 1, body)
    assert run(loop, threads=threads) == seq.FINE
    assert memory[: 2048 : 512].tolist() == [1, 11, 21, 31]
    assert memory[8 * (threads - 1) : 2048 : 512].tolist() == [1, 11, 21, 31]


@pytest.mark.parametrize("fmt", [*INTEGERS, "float32"])
def test_dynamic_entry_reads_memory(memory: NDArray[np.int64], fmt: str) -> None:
    offset = np.array([3], fmt)
    body = rec(count, memory.ctypes.data, 1, dynamic=([1, offset.ctypes.data, FORMATS[fmt].code, 4096, 8, 0, 4, 0],))
    assert run(body) == seq.FINE
    assert memory[: 2048 : 512].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("threads", THREADS)
def test_value_out_of_range_skips_the_record(memory: NDArray[np.int64], threads: int) -> None:
    body = rec(count, memory.ctypes.data, 1, flags=seq.BARRIER, dynamic=(entry(0, 9, 2, 5, skip=1),))
    assert run(for_loop(0, 1, (IMM, 0), (IMM, 8), 1, body), threads=threads) == seq.FINE
    assert memory[0] == (1 + 2) + (1 + 3) + (1 + 4)


@pytest.mark.parametrize("threads", THREADS)
def test_value_out_of_range_stops_the_run(memory: NDArray[np.int64], threads: int) -> None:
    body = rec(append, memory.ctypes.data, 1, flags=seq.BARRIER, index=42, dynamic=(entry(5, 8, 0, 1), entry(0, 9, 0, 3)))
    after = rec(append, memory.ctypes.data, -1)
    assert run(for_loop(0, 1, (IMM, 0), (IMM, 8), 1, body), after, threads=threads) == seq.BOUNDS
    assert STATUS[:5].tolist() == [seq.BOUNDS, 42, 3, 3, 1]
    assert logged(memory) == [1, 2, 3]


def test_record_longer_than_the_copy_buffer(memory: NDArray[np.int64]) -> None:
    for padding in (10, 5000, 100):
        memory[0] = 0
        body = rec(count, memory.ctypes.data, 5, *[0] * padding, dynamic=(entry(0, 9, 0, 1),))
        assert run(body, threads=2) == seq.FINE
        assert memory[0] == 5


# ---- errors ----


@pytest.mark.parametrize("threads", THREADS)
def test_engine_error_stops_every_thread(memory: NDArray[np.int64], threads: int) -> None:
    items = [rec(count, memory.ctypes.data, 1), rec(fail, 0, 9, index=3), rec(count, memory.ctypes.data, 100, flags=seq.BARRIER)]
    assert run(*items, threads=threads) == seq.INDEX
    assert STATUS[:3].tolist() == [seq.INDEX, 3, 9]
    assert memory[: 8 * threads : 8].tolist() == [1] * threads
    assert run(rec(count, memory.ctypes.data, 1), threads=threads) == seq.FINE
    assert STATUS.tolist() == [0] * 8


@pytest.mark.parametrize("threads", THREADS)
def test_first_error_in_program_order_is_reported(memory: NDArray[np.int64], threads: int) -> None:
    # Thread t reports in row t; all threads reach instruction 10 at different times, some are far ahead at 11.
    items = [rec(work, memory.ctypes.data, 1), rec(fail, 0, 1, flags=seq.FALLIBLE, index=10), rec(fail, 0, 2, flags=seq.FALLIBLE, index=11)]
    for _ in range(50):
        assert run(*items, threads=threads) == seq.INDEX
        assert STATUS[:5].tolist() == [seq.INDEX, 10, 1, 0, 0]


def test_unknown_opcode_and_format_are_refused_at_run_time() -> None:
    bad = assemble(rec(200, index=6))
    assert seq.run(bad, STATUS, 0, 2) == seq.MALFORMED
    assert STATUS[:3].tolist() == [seq.MALFORMED, 6, 200]
    bad = assemble(rec(seq.LOAD, 0, STATUS.ctypes.data, FORMATS["float16"].code, 0, index=7))
    assert seq.run(bad, STATUS, 1, 1) == seq.MALFORMED
    assert STATUS[:3].tolist() == [seq.MALFORMED, 7, FORMATS["float16"].code]


@pytest.mark.parametrize("threads", [1, 2])
def test_stop_flag_ends_the_run(memory: NDArray[np.int64], threads: int) -> None:
    endless = (rec(seq.MOVE, 0, IMM, 1, 32), while_loop(0, rec(work, memory.ctypes.data, 1, flags=seq.BARRIER)))
    timer = threading.Timer(0.05, STATUS.__setitem__, (7, 1))
    timer.start()
    assert run(*endless, threads=threads) == seq.STOPPED
    timer.join()
    STATUS[7] = 0
    assert run(rec(count, memory.ctypes.data, 0), threads=threads) == seq.FINE


def test_sizes_are_checked() -> None:
    for args in [(np.zeros(4, np.int64), STATUS), (assemble(), STATUS[:4])]:
        with pytest.raises(ValueError, match="too short"):
            seq.run(*args)
    for registers, threads in [(0, 0), (0, 1000), (-1, 1)]:
        with pytest.raises(ValueError, match="nthreads"):
            seq.run(assemble(), STATUS, registers, threads)


# ---- verify ----

ONE = rec(count, 0, 0)
LOOP = (rec(seq.LOOP, 0, 1, IMM, 0, IMM, 4, 1, 28), rec(seq.LOOP_END, 0, 1, 1, 16))


def _broken(words: Words, word: int, value: int) -> Words:
    return [*words[:word], value, *words[word + 1 :]]


MALFORMED: dict[str, tuple[list[Words], str]] = {
    "unknown opcode": ([rec(77)], "unknown opcode"),
    "short record": ([rec(seq.MOVE, 0)], "too short"),
    "long record": ([_broken(ONE, H_LENGTH, 1000)], "too short, or longer"),
    "register": ([rec(seq.MOVE, 9, IMM, 0, 32)], "no such register"),
    "negative register": ([rec(seq.MOVE, 0, REG, -1, 32)], "no such register"),
    "width": ([rec(seq.MOVE, 0, IMM, 0, 16)], "neither 32 nor 64"),
    "alu operation": ([rec(seq.ALU, 0, 4, 32, IMM, 0, IMM, 0)], "unknown operation"),
    "alu width": ([rec(seq.ALU, 0, 0, 8, IMM, 0, IMM, 0)], "neither 32 nor 64"),
    "load format": ([rec(seq.LOAD, 0, 0, 2, 0)], "without numbers"),
    "store format": ([rec(seq.STORE, 0, 15, IMM, 0, 0)], "without numbers"),
    "store register": ([rec(seq.STORE, 0, 9, REG, 4, 0)], "no such register"),
    "state registers": ([rec(seq.LOOP, 0, 3, IMM, 0, IMM, 1, 1, 0)], "state registers"),
    "bound": ([rec(seq.LOOP, 0, 1, REG, 7, IMM, 1, 1, 0)], "bound"),
    "step": ([rec(seq.LOOP, 0, 1, IMM, 0, IMM, 1, 0, 0)], "not positive"),
    "open loop": ([LOOP[0]], "END inside a loop"),
    "end of no loop": ([LOOP[1]], "end of no loop"),
    "wrong end": ([LOOP[0], rec(seq.WHILE_END, 0)], "target differs"),
    "other loop": ([LOOP[0], rec(seq.LOOP_END, 2, 1, 1, 16)], "another loop"),
    "loop target": ([LOOP[0], rec(seq.LOOP_END, 0, 1, 1, 0)], "target differs"),
    "while register": ([rec(seq.WHILE, 4, 0)], "no such register"),
    "deep": ([LOOP[0]] * 65, "nested too deep"),
    "entry register": ([rec(count, 0, 0, dynamic=(entry(4, 8, 0, 1),))], "names no register"),
    "entry target": ([rec(count, 0, 0, dynamic=(entry(0, 10, 0, 1),))], "outside the arguments"),
    "entry header": ([rec(count, 0, 0, dynamic=(entry(0, 4, 0, 1),))], "outside the arguments"),
    "entry kind": ([rec(count, 0, 0, dynamic=([2, 0, 0, 1, 8, 0, 1, 0],))], "unknown kind"),
    "entry format": ([rec(count, 0, 0, dynamic=([1, 0, 3, 1, 8, 0, 1, 0],))], "without numbers"),
    "entries beyond": ([_broken(rec(count, 0, 0, dynamic=(entry(0, 8, 0, 1),)), H_NDYN, 2)], "outside the record"),
    "entry of control": ([rec(seq.MOVE, 0, IMM, 0, 32, dynamic=(entry(0, 8, 0, 1),))], "targets no address"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_verify_names_the_malformed_record(name: str) -> None:
    records, message = MALFORMED[name]
    with pytest.raises(ValueError, match=message):
        verify(assemble(ONE, *records), 4)


def test_verify_counts_records() -> None:
    assert verify(assemble(), 0) == 1
    move = rec(seq.LOAD, 0, 0, 9, 0, dynamic=(entry(0, 9, 0, 1),))
    assert verify(assemble(ONE, for_loop(0, 1, (IMM, 0), (REG, 3), 1, move), while_loop(2, ONE)), 4) == 8
    with pytest.raises(ValueError, match="record 2 at word 20"):
        verify(assemble(ONE, ONE, rec(77)), 4)
    with pytest.raises(ValueError, match="no END"):
        verify(np.array(ONE, np.int64), 0)


# ---- processes ----


def _python(code: str, act: Callable[[subprocess.Popen[str]], None] | None = None) -> str:
    """Runs `code`, which starts from this module's names, and gives its output."""
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_sequencer import *\n"
    command = [sys.executable, "-c", setup + code]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as process:
        assert process.stdout is not None
        if act is not None:
            act(process)
        output = process.stdout.read()
        assert process.wait(timeout=30) == 0, output
    return output


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_an_endless_program(threads: int) -> None:
    code = f"""
memory = np.zeros(4096, np.int64)
endless = (rec(seq.MOVE, 0, IMM, 1, 32), while_loop(0, rec(work, memory.ctypes.data, 1, flags=seq.BARRIER)))
print("ready", flush=True)
try:
    run(*endless, threads={threads})
except KeyboardInterrupt:
    print("interrupted", run(rec(count, memory.ctypes.data, 1), threads={threads}), STATUS.tolist())
"""

    def interrupt(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)

    assert _python(code, interrupt) == f"interrupted 0 {[0] * 8}\n"


def test_pool_survives_fork() -> None:
    code = """
memory = np.zeros(4096, np.int64)
again = lambda: run(rec(count, memory.ctypes.data, 1, flags=seq.BARRIER), rec(count, memory.ctypes.data, 1), threads=2)
assert again() == 0
child = os.fork()
if child == 0:
    os._exit(0 if again() == 0 and again() == 0 and memory[8] == 6 else 1)
assert os.waitpid(child, 0)[1] == 0
assert again() == 0
print(memory[0], memory[8])
"""
    assert _python(code) == "4 4\n"
