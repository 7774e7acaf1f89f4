"""The sequencer: control flow, registers, barriers, dynamic entries, errors, signals, fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import carray, types
from numpy.typing import NDArray

from tests.execute.programs import (
    IMM,
    REG,
    STATUS,
    append,
    assemble,
    count,
    entry,
    f32_pointer,
    fail,
    for_loop,
    log_register,
    logged,
    neighbours,
    rec,
    run,
    store,
    while_loop,
    work,
)
from tilelang.dtypes import FORMATS
from tilelang.execute import _sequencer as seq

THREADS = (1, 2, 4)
ROOT = Path(__file__).parents[2]

ROW = types.void(types.int64, types.int64, types.int64)


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
        0,
        1,
        (IMM, lower),
        (REG, 3),
        step,
        log_register(memory, 0),
        rec(seq.MOVE, 0, IMM, 99, 64),
        rec(seq.MOVE, 3, IMM, -7, 64),
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
@pytest.mark.parametrize(
    "value", [0, 1, -1, 127, 128, -129, 255, 256, 40000, -40000, 70000, 2**31, 2**32 - 1, 2**32 + 5, -(2**40)]
)
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


FLOATS = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    3.49,
    -2.51,
    2.0**31,
    -(2.0**31),
    -(2.0**31) - 256,
    1e30,
    -1e30,
    np.inf,
    -np.inf,
    np.nan,
]
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
    carray(f32_pointer(destination), items)[0] = carray(f32_pointer(source), items)[0] * np.float32(2)


@numba.cfunc(ROW)
def float_to_half(source, destination, items):  # type: ignore[no-untyped-def]
    """The inverse of `half_to_float`."""
    carray(f32_pointer(destination), items)[0] = carray(f32_pointer(source), items)[0] * np.float32(0.5)


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
    items = [
        rec(seq.LOAD, 1, source.ctypes.data, code),
        rec(seq.MOVE, 2, REG, 1),
        rec(seq.STORE, target.ctypes.data, 14, REG, 2),
    ]
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
        program = assemble(
            for_loop(0, 1, (IMM, 0), (IMM, 200), 1, rec(count, memory.ctypes.data, 1, flags=seq.BARRIER))
        )
        for _ in range(50):
            codes.append(seq.run(program, status, 4, nthreads))

    codes: list[int] = []
    memories = [np.zeros(512, np.int64) for _ in range(4)]
    workers = [
        threading.Thread(target=loop, args=(m, np.zeros(8, np.int64), 1 + i % 2)) for i, m in enumerate(memories)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert codes == [seq.FINE] * 200
    assert [m[0] for m in memories] == [10000] * 4
    assert [m[8] for m in memories] == [0, 10000] * 2


# ---- dynamic entries ----


@pytest.mark.parametrize("threads", THREADS)
def test_dynamic_entry_adds_register_times_multiplier(memory: NDArray[np.int64], threads: int) -> None:
    body = rec(
        count, memory.ctypes.data, 1, dynamic=(entry(0, 8, 0, 4, multiplier=4096), entry(0, 9, 0, 9, multiplier=10))
    )
    loop = for_loop(0, 1, (IMM, 0), (IMM, 4), 1, body)
    assert run(loop, threads=threads) == seq.FINE
    assert memory[:2048:512].tolist() == [1, 11, 21, 31]
    assert memory[8 * (threads - 1) : 2048 : 512].tolist() == [1, 11, 21, 31]


@pytest.mark.parametrize("fmt", [*INTEGERS, "float32"])
def test_dynamic_entry_reads_memory(memory: NDArray[np.int64], fmt: str) -> None:
    offset = np.array([3], fmt)
    body = rec(count, memory.ctypes.data, 1, dynamic=([1, offset.ctypes.data, FORMATS[fmt].code, 4096, 8, 0, 4, 0],))
    assert run(body) == seq.FINE
    assert memory[:2048:512].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("threads", THREADS)
def test_value_out_of_range_skips_the_record(memory: NDArray[np.int64], threads: int) -> None:
    body = rec(count, memory.ctypes.data, 1, flags=seq.BARRIER, dynamic=(entry(0, 9, 2, 5, skip=1),))
    assert run(for_loop(0, 1, (IMM, 0), (IMM, 8), 1, body), threads=threads) == seq.FINE
    assert memory[0] == (1 + 2) + (1 + 3) + (1 + 4)


@pytest.mark.parametrize("threads", THREADS)
def test_value_out_of_range_stops_the_run(memory: NDArray[np.int64], threads: int) -> None:
    body = rec(
        append, memory.ctypes.data, 1, flags=seq.BARRIER, index=42, dynamic=(entry(5, 8, 0, 1), entry(0, 9, 0, 3))
    )
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
    items = [
        rec(count, memory.ctypes.data, 1),
        rec(fail, 0, 9, index=3),
        rec(count, memory.ctypes.data, 100, flags=seq.BARRIER),
    ]
    assert run(*items, threads=threads) == seq.INDEX
    assert STATUS[:3].tolist() == [seq.INDEX, 3, 9]
    assert memory[: 8 * threads : 8].tolist() == [1] * threads
    assert run(rec(count, memory.ctypes.data, 1), threads=threads) == seq.FINE
    assert STATUS.tolist() == [0] * 8


@pytest.mark.parametrize("threads", THREADS)
def test_first_error_in_program_order_is_reported(memory: NDArray[np.int64], threads: int) -> None:
    # Thread t reports in row t; all threads reach instruction 10 at different times, some are far ahead at 11.
    items = [
        rec(work, memory.ctypes.data, 1),
        rec(fail, 0, 1, flags=seq.FALLIBLE, index=10),
        rec(fail, 0, 2, flags=seq.FALLIBLE, index=11),
    ]
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


# ---- pauses ----


@pytest.mark.parametrize("threads", THREADS)
def test_a_meet_pauses_and_goes_on_with_its_registers(memory: NDArray[np.int64], threads: int) -> None:
    work = rec(count, memory.ctypes.data, 1)
    program = assemble(rec(seq.MOVE, 1, IMM, 41, 32), for_loop(0, 2, (IMM, 0), (IMM, 3), 1, rec(seq.MEET), work), work)
    registers, start = np.zeros(4, np.int64), 0
    for i in range(3):
        assert seq.run(program, STATUS, 4, threads, registers, start) == seq.MEETING
        assert registers[:2].tolist() == [i, 41] and memory[0] == i
        start = int(STATUS[2])
    assert seq.run(program, STATUS, 4, threads, registers, start) == seq.FINE
    assert memory[: 8 * threads : 8].tolist() == [4] * threads


def test_where_a_run_goes_on_is_checked() -> None:
    with pytest.raises(ValueError, match="registers has 3 items"):
        seq.run(assemble(), STATUS, 4, 1, np.zeros(3, np.int64))
    for start in (-1, 1000):
        with pytest.raises(ValueError, match="no record"):
            seq.run(assemble(), STATUS, 0, 1, None, start)


# ---- processes ----


def _python(code: str, act: Callable[[subprocess.Popen[str]], None] | None = None) -> str:
    """Runs `code`, which starts from the names of `programs`, and gives its output."""
    # A job in the background may have been started with SIGINT ignored.
    setup = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    setup += "from tests.execute.programs import *\n"
    # Python 3.12 on warns of forks in processes with threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", setup + code]
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
