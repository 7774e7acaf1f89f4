"""Launches of several cores: the programs of all ranks and cores, run together natively or as reference."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilelang.execute.cooperate import Core, cooperate
from tilelang.execute.reference import Memory, ReferenceExecutor, poison_value
from tilelang.execute.runtime import Executable, Machine, machines
from tilelang.ir.program import Program
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.isa.meeting import Place, World

__all__ = ["Code", "Launch", "run_launches"]

Arrays = dict[int, NDArray[Any]]


class Code(Protocol):
    """The program of one core; `shared_poison`: storages shared with the other core that may be read unwritten."""

    program: Program
    shared_poison: set[int]

    @property
    def native(self) -> Executable:
        """Its native executable."""


@dataclass
class Launch:
    """One rank: the code of each of its cores, and its inputs in the order of `program.inputs`."""

    codes: list[Any]  # of Code
    inputs: list[NDArray[Any]]


class NativeMemory(ReferenceExecutor):
    """Operands in the memory of a core that runs natively."""

    def __init__(self, executable: Executable, machine: Machine, arrays: Arrays, registers: NDArray[np.int64]) -> None:
        super().__init__(executable.program.device.generation, executable.program.precision)
        self.executable = executable
        self.native = machine
        self.hbm = arrays
        self.registers = registers

    def memory(self, storage: Storage) -> Memory:
        """Where `storage` lives."""
        if not storage.on_chip:
            return Memory(self.hbm[storage.index].reshape(-1).view(np.uint8), 0, 0)
        region = storage.buffer.value
        pitch = self.executable.encoded.pitches[region]
        partition = 0 if storage.address is None else storage.address[0]
        start = partition * pitch + self.executable.placement.bytes[storage.index]
        return Memory(self.native.memories[region], start, pitch)

    def register(self, register: VirtualRegister | NkiScalar) -> int:
        """Value of a register."""
        return int(self.registers[register.state])


def run_launches(launches: list[Launch], mode: str | None, threads: int) -> list[Arrays]:
    """Run all ranks together; returns the HBM arrays of each rank's first core by storage index."""
    world = World(len(launches), len(launches[0].codes))
    if mode == "reference":
        return _reference(launches, world)
    cores: list[Core] = []
    results = []
    with ExitStack() as stack:
        pool = machines(world.ranks * world.cores)
        for machine in pool:
            stack.enter_context(machine.lock)
        for rank, launch in enumerate(launches):
            shared: dict[Hashable, NDArray[Any]] = {}
            for number, code in enumerate(launch.codes):
                executable = code.native
                arrays = executable.bind(launch.inputs)
                _share(code, arrays, shared)
                if number == 0:
                    results.append(arrays)
                registers = np.zeros(max(1, executable.encoded.registers), np.int64)
                for state, value in code.program.presets:
                    registers[state] = value(rank)
                machine = pool[len(cores)]
                steps = executable.steps(machine, arrays, threads, registers)
                memory = NativeMemory(executable, machine, arrays, registers)
                cores.append(Core(Place(rank, number), memory, steps))
        cooperate(cores, world)
    return results


def _share(code: Code, arrays: Arrays, shared: dict[Hashable, NDArray[Any]]) -> None:
    """Let linked storages of the cores of one rank be one array, poisoned once if any core may read it unwritten."""
    for storage in code.program.storages:
        if storage.link is None or storage.index not in arrays:
            continue
        array = arrays[storage.index] = shared.setdefault(storage.link, arrays[storage.index])
        if storage.index in code.shared_poison:
            flat = array.reshape(-1).view(storage.fmt.carrier if code.program.precision == "exact" else array.dtype)
            flat[...] = poison_value(storage.fmt) if code.program.precision == "exact" else np.nan


def _reference(launches: list[Launch], world: World) -> list[Arrays]:
    cores: list[Core] = []
    first: list[tuple[ReferenceExecutor, Program]] = []
    for rank, launch in enumerate(launches):
        links: dict[Hashable, Memory] = {}
        for number, code in enumerate(launch.codes):
            program = code.program
            executor = ReferenceExecutor(program.device.generation, program.precision, links)
            for tensor, array in zip(program.inputs, launch.inputs, strict=True):
                executor.bind(tensor.storage, array)
            for state, value in program.presets:
                executor.machine.registers[state] = value(rank)
            if number == 0:
                first.append((executor, program))
            cores.append(Core(Place(rank, number), executor, _steps(executor, program)))
    cooperate(cores, world)
    return [executor.arrays(program.storages) for executor, program in first]


def _steps(executor: ReferenceExecutor, program: Program) -> Iterator[Any]:
    yield from executor.steps(program.items)
