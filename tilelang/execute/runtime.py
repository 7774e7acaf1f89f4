"""Memory of the emulated core, and running encoded programs on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import host_dtype
from tilelang.errors import Diagnostic, TileBoundsError, TileError, TileTypeError, TileValueError
from tilelang.execute.assemble import Encoded
from tilelang.execute.layout import E_OFFSET, E_SEGMENT, SCRATCH_ALIGN, SCRATCH_BYTES, STATUS_WORDS
from tilelang.execute.native.template import Space, physical
from tilelang.execute.native.tensor import IDENTITY
from tilelang.execute.precision import widened
from tilelang.ir.program import Instruction, Program
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.indirect import offset_error
from tilelang.isa.selection import segment_error
from tilelang.numerics.random import UNSEEDED
from tilelang.scheduler.placement import Placement

__all__ = ["Executable", "Machine", "default_threads", "machines"]


def default_threads() -> int:
    """Threads of a run: TILELANG_NUM_THREADS, else the cores this process may use."""
    given = os.environ.get("TILELANG_NUM_THREADS")
    if given:
        if not given.isdigit() or not 1 <= int(given) <= 128:
            raise TileValueError(f"TILELANG_NUM_THREADS={given!r}: expected a number from 1 to 128")
        return int(given)
    return min(128, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def address_of(array: NDArray[Any]) -> int:
    """Address of the first byte of `array`."""
    return int(array.__array_interface__["data"][0])


def _aligned(nbytes: int, align: int = 4096) -> NDArray[np.uint8]:
    raw = np.empty(nbytes + align, np.uint8)
    start = -address_of(raw) % align
    return raw[start : start + nbytes]


class Machine:
    """On-chip memories and accumulators of one core, as wide as the widest program that ran; pages are touched only
    when used.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.memories = {"sbuf": _aligned(0), "psum": _aligned(0)}
        self.act = np.zeros(128, np.float32)
        self.dve = np.zeros(128, np.float32)
        self.random = UNSEEDED.copy()
        self.status = np.zeros(STATUS_WORDS, np.int64)
        self.scratch = _aligned(0)
        self.bases: list[int] = []

    def reserve(self, pitches: dict[str, int], threads: int) -> None:
        """Make room for rows of `pitches` bytes and `threads` scratch areas; `bases` are the addresses of the spaces
        below Space.HBM.
        """
        enough = all(self.memories[region].nbytes >= pitch * 128 for region, pitch in pitches.items())
        if enough and self.bases and self.scratch.nbytes >= threads * SCRATCH_BYTES:
            return
        for region, pitch in pitches.items():
            if self.memories[region].nbytes < pitch * 128:
                self.memories[region] = _aligned(pitch * 128)
        if self.scratch.nbytes < threads * SCRATCH_BYTES:
            self.scratch = _aligned(threads * SCRATCH_BYTES, max(SCRATCH_ALIGN, 4096))

        found = [0] * Space.HBM
        found[Space.SBUF] = address_of(self.memories["sbuf"])
        found[Space.PSUM] = address_of(self.memories["psum"])
        found[Space.ACT] = address_of(self.act)
        found[Space.DVE] = address_of(self.dve)
        found[Space.RANDOM] = address_of(self.random)
        found[Space.IDENTITY] = address_of(IDENTITY)
        found[Space.STATUS] = address_of(self.status)
        found[Space.SCRATCH] = address_of(self.scratch)
        self.bases = found


_machines: list[Machine] = []


def machines(count: int) -> list[Machine]:
    """The cores of this process: the first one runs plain programs, all of them launches of several cores."""
    while len(_machines) < count:
        _machines.append(Machine())
    return _machines[:count]


def _after_fork() -> None:
    """In the child no run is under way, whatever the parent's other threads were doing."""
    for machine in _machines:
        machine.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Executable:
    """An encoded program, ready to run on arrays: `run(inputs)` gives the arrays of the result tensors by storage
    index.
    """

    def __init__(self, program: Program, encoded: Encoded, placement: Placement) -> None:
        self.program = program
        self.encoded = encoded
        self.placement = placement
        self._spaces = int(encoded.spaces.max(initial=0)) + 1
        self._bases: NDArray[np.int64] | None = None
        self._flat = encoded.table
        self._link()
        input_indices = {t.storage.index for t in program.inputs}
        self._buffers = [
            (s.index, s.shape, self._host(s))
            for s in program.storages
            if not s.on_chip and s.kind != "constant" and s.index not in input_indices
        ]
        self._constants = [
            (s.index, widened(s.data, program.precision)) for s in program.storages if s.kind == "constant"
        ]
        self._sizes = [t.size * physical(NkiTensor.over(t.storage), program.precision).itemsize for t in program.inputs]
        self._bitmaps = {
            index: np.zeros((rows, columns), np.uint8) for index, (rows, columns) in encoded.bitmaps.items()
        }
        self._sorted = np.argsort(encoded.spaces, kind="stable")
        ordered = encoded.spaces[self._sorted]
        self._ends = np.searchsorted(ordered, np.arange(self._spaces + 1))

    def _link(self) -> None:
        from tilelang.execute._dma import address as dma_address
        from tilelang.execute.engines import addresses

        functions = self.encoded.functions
        engines = addresses(name for name in functions if not name.startswith("dma."))
        for name, words in functions.items():
            self._flat[words] = engines[name] if name in engines else dma_address(name)

    def _host(self, storage: Storage) -> np.dtype[Any]:
        """The dtype of host arrays for an HBM storage of the program."""
        fmt = physical(NkiTensor.over(storage), self.program.precision)
        return fmt.host if fmt.kind != "packed" else fmt.carrier

    def bind(self, inputs: list[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """The HBM arrays of a run by storage index: `inputs` (C-contiguous, in the order of `program.inputs`),
        constants and fresh ones.
        """
        arrays: dict[int, NDArray[Any]] = {}
        for tensor, array, nbytes in zip(self.program.inputs, inputs, self._sizes, strict=True):
            if array.nbytes != nbytes or not array.flags.c_contiguous:
                raise TileTypeError(f"{tensor.describe()} was traced, the argument is {array.dtype}{list(array.shape)}")
            arrays[tensor.storage.index] = array
        for index, shape, dtype in self._buffers:
            arrays[index] = np.empty(shape, dtype)
        for index, content in self._constants:
            arrays[index] = content
        return arrays

    def run(self, inputs: list[NDArray[Any]], threads: int) -> dict[int, NDArray[Any]]:
        """Execute a program of one core on `inputs`; returns arrays by storage index."""
        from tilelang.execute._sequencer import run as run_program

        arrays = self.bind(inputs)
        machine = machines(1)[0]
        with machine.lock:
            self._relocate(self._addresses(machine, arrays, self._bitmaps, threads))
            code = run_program(self._flat, machine.status, self.encoded.registers, threads)
            if code:
                raise self._error(machine.status)
        return arrays

    def steps(
        self, machine: Machine, arrays: dict[int, NDArray[Any]], threads: int, registers: NDArray[np.int64]
    ) -> Iterator[Instruction]:
        """Execute on `machine`, whose lock the caller holds, and on `arrays`; yields each instruction in which other
        cores take part, and goes on once that has been done. `registers` are the program's, up to date at each yield.
        """
        from tilelang.execute._sequencer import MEETING
        from tilelang.execute._sequencer import run as run_program

        located = {item.index: item for item in self.encoded.instructions if item.plan.spec.meeting is not None}
        bitmaps = {index: np.zeros_like(bitmap) for index, bitmap in self._bitmaps.items()}
        bases = self._addresses(machine, arrays, bitmaps, threads)
        flat = self._flat.copy()
        flat[self.encoded.words] = self.encoded.offsets + bases[self.encoded.spaces]
        start = 0
        while code := run_program(flat, machine.status, self.encoded.registers, threads, registers, start):
            if code != MEETING:
                raise self._error(machine.status)
            start = int(machine.status[2])
            yield located[int(machine.status[1])]

    def _addresses(
        self, machine: Machine, arrays: dict[int, NDArray[Any]], bitmaps: dict[int, NDArray[Any]], threads: int
    ) -> NDArray[np.int64]:
        """The address of every memory space; resets the accumulators of `machine`."""
        machine.reserve(self.encoded.pitches, threads)
        bases = np.zeros(max(self._spaces, Space.HBM), np.int64)
        bases[: Space.HBM] = machine.bases
        for index, array in arrays.items():
            if Space.HBM + index < self._spaces:
                bases[Space.HBM + index] = address_of(array)
        for index, bitmap in bitmaps.items():
            bases[Space.HBM + index] = address_of(bitmap)
        machine.act.fill(0.0)
        machine.dve.fill(0.0)
        machine.random[:] = UNSEEDED
        return bases

    def _relocate(self, bases: NDArray[np.int64]) -> None:
        """Write addresses for `bases`; only words of spaces that moved since the last run are touched."""
        encoded = self.encoded
        moved = np.flatnonzero(bases != self._bases) if self._bases is not None else np.arange(len(bases))
        self._bases = None  # an interrupt on the way leaves words of both
        for space in moved.tolist():
            if space >= self._spaces:
                continue
            chosen = self._sorted[self._ends[space] : self._ends[space + 1]]
            if len(chosen):
                self._flat[encoded.words[chosen]] = encoded.offsets[chosen] + bases[space]
        self._bases = bases

    def _error(self, status: NDArray[np.int64]) -> TileError:
        code, index, value, limit, row = status[:5].tolist()
        instruction = next((i for i in self.encoded.instructions if i.index == index), None)
        where = instruction.opname if instruction else "program"
        if code == 1:
            message = f"{where}: dynamic index {value} is out of range; it must be at least 0 and below {limit}"
            operand = self._dynamic_operand(instruction)
        elif code == 2:
            message = f"{where}: row index {value} at position {row} is out of range; the tensor has {limit} rows"
            operand = self._dynamic_operand(instruction)
        elif code == E_OFFSET:
            found = offset_error(value, row, limit, where)
            return found.at(instruction.site if instruction else None)
        elif code == E_SEGMENT:
            return segment_error(self._segment(instruction, value), row).at(instruction.site if instruction else None)
        else:
            message, operand = f"{where}: the engines stopped with status {code} (value {value})", None
        hint = "pass oob_mode=nisa.oob_mode.skip to leave such rows untouched" if where.startswith("dma") else None
        rule = {1: "AP.R13", 2: "AP.R19"}.get(code)
        diagnostic = Diagnostic(message, rule, instruction.site if instruction else None, operand, hint=hint)
        return TileBoundsError(message, diagnostics=[diagnostic])

    @staticmethod
    def _segment(instruction: Instruction | None, bits: int) -> float:
        """The segment id that `bits`, sign-extended, stand for."""
        is_float = instruction is not None and instruction.plan.call.fmt("segment_ids").is_float
        return float(np.array(bits, np.int64).astype(np.int32).view(np.float32)) if is_float else bits

    @staticmethod
    def _dynamic_operand(instruction: Instruction | None) -> str | None:
        if instruction is None:
            return None
        for name, tensor in zip(instruction.plan.operands, instruction.tiles(), strict=True):
            if tensor.dynamic is not None:
                return str(name)
        return None


def view_of(tensor: NkiTensor, array: NDArray[Any], precision: str) -> NDArray[Any]:
    """The host array that result tensor `tensor` shows: a view of its storage's `array`, contiguous."""
    storage = tensor.storage
    fmt = physical(tensor, precision)
    host = fmt.host if precision == "high" else host_dtype(tensor.dtype)
    flat = array.reshape(-1)
    if flat.dtype != host:
        flat = flat.view(host)
    if tensor.offset == 0 and tensor.size * tensor.itemsize == storage.nbytes and tensor.is_contiguous():
        return flat.reshape(tensor.shape)
    strides = [stride * flat.itemsize for stride in tensor.strides]
    window = np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, strides)
    return np.ascontiguousarray(window)
