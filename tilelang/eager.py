"""Debug mode: the kernel's function runs like any Python function, and each instruction the moment it is emitted.

Cores of one launch are threads of which one runs at a time, so that their prints and breakpoints never mix.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.devices import Device
from tilelang.execute.cooperate import Core, baton, cooperate, meet_alone
from tilelang.execute.debug import DebugExecutor
from tilelang.execute.precision import narrowed, widened
from tilelang.execute.reference import Memory
from tilelang.ir.program import Program
from tilelang.isa.meeting import Place, World
from tilelang.specialise import check_shared, require_writable, results
from tilelang.trace.binding import HostArray
from tilelang.trace.builder import Builder
from tilelang.trace.call import call_kernel

__all__ = ["DebugLaunch", "run_debug"]


@dataclass
class DebugLaunch:
    """One rank: a kernel's function with its arguments, and how to make the builder of a core."""

    name: str
    function: Callable[..., Any]
    args: Any
    kwargs: Any
    host: list[HostArray]
    device: Device
    precision: str
    degree: int
    builder: Callable[[int, DebugExecutor], Builder]


class _Rank:
    """A launch while it runs: the arrays its cores share, and what they returned.

    `others` are the arguments of other ranks.
    """

    def __init__(self, launch: DebugLaunch, others: list[HostArray]) -> None:
        self.launch = launch
        self.links: dict[Hashable, Memory] = {}
        self.programs: dict[int, tuple[Program, DebugExecutor]] = {}
        host, precision = launch.host, launch.precision
        self.arrays: list[NDArray[Any]] = []
        for i, item in enumerate(host):
            rest = (*host[:i], *host[i + 1 :], *others)
            shared = any(np.may_share_memory(item.array, other.array) for other in rest)
            kept = item.array.copy() if shared or not item.writable else item.array
            self.arrays.append(widened(kept, precision))
        self.before = [
            array.copy() if item.copied or array is not item.array else None
            for item, array in zip(host, self.arrays, strict=True)
        ]

    def executor(self, rank: int) -> DebugExecutor:
        return DebugExecutor(self.launch.device, self.launch.precision, self.links, rank)

    def run(self, core: int, executor: DebugExecutor) -> None:
        launch = self.launch
        builder = launch.builder(core, executor)
        inputs, result = call_kernel(launch.function, builder, launch.args, launch.kwargs, launch.host, self.arrays)
        program = Program(
            launch.name, launch.device, launch.precision, [], builder.storages, inputs, result, builder.count, 0
        )
        self.programs[core] = program, executor

    def finish(self) -> Any:
        """Write changed arguments back; returns the host results."""
        program, executor = self.programs[0]
        for number in range(1, self.launch.degree):
            check_shared(program, self.programs[number][0])
        for tensor, item, array, old in zip(program.inputs, self.launch.host, self.arrays, self.before, strict=True):
            if old is not None and old.tobytes() != array.tobytes():
                require_writable(item, tensor)
                item.write_back(narrowed(array, item.array.dtype))
        return results(program, executor.arrays(program.storages), self.launch.host)


def run_debug(launches: list[DebugLaunch]) -> list[Any]:
    """Run all ranks together; returns each one's results."""
    world = World(len(launches), launches[0].degree)
    ranks = [
        _Rank(launch, [item for other in launches if other is not launch for item in other.host]) for launch in launches
    ]
    if world == World():
        executor = ranks[0].executor(0)
        core = Core(Place(), executor, iter(()))
        executor.meet = lambda item: meet_alone(core, item, world)
        ranks[0].run(0, executor)
    else:
        cooperate([_core(ranks[r], Place(r, c)) for r in range(world.ranks) for c in range(world.cores)], world)
    return [rank.finish() for rank in ranks]


def _core(rank: _Rank, place: Place) -> Core:
    executor = rank.executor(place.rank)

    def run(post: Callable[[Any], None]) -> None:
        executor.meet = post
        rank.run(place.core, executor)

    steps: Iterator[Any] = baton(run)
    return Core(place, executor, steps)
