"""A kernel traced for one signature: what is kept of it, and running it on arrays."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.analysis.initialised import analyse_initialisation
from tilelang.analysis.tensors import tensors_in
from tilelang.errors import Diagnostic, TileCapacityError, TileTypeError, TileValueError, TileWarning, warn_user
from tilelang.execute.precision import narrowed, widened
from tilelang.ir.program import Program
from tilelang.ir.tensor import NkiTensor
from tilelang.scheduler.placement import Placement, place
from tilelang.trace.binding import HostArray, describe, map_tensors, to_family
from tilelang.trace.surroundings import Surroundings

__all__ = [
    "ProgramCache",
    "Specialisation",
    "bind_arrays",
    "check_shared",
    "finish",
    "report_capacity",
    "require_writable",
    "results",
    "run_ranks",
    "separate",
]


class Code:
    """The program of one core, analysed and placed; encoded once it runs natively.

    `shared_poison`: storages shared with the other core that may be read before they are written.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.init = analyse_initialisation(program)
        linked = {s.index for s in program.storages if s.link is not None}
        self.shared_poison = self.init.poison & linked
        self.init.poison -= linked
        self.placement: Placement = place(program, self.init.poison)
        self.lock = threading.Lock()
        self._native: Any = None

    @property
    def native(self) -> Any:
        """The native executable."""
        if self._native is None:
            from tilelang.execute.encode import encode
            from tilelang.execute.runtime import Executable as NativeExecutable

            with self.lock:
                if self._native is None:
                    encoded = encode(self.program, self.placement, self.init)
                    self._native = NativeExecutable(self.program, encoded, self.placement)
        return self._native


class Specialisation:
    """A kernel traced for one signature: the code of each core. `mutated`: input storages that a core writes."""

    def __init__(self, programs: list[Program]) -> None:
        self.codes = [Code(program) for program in programs]
        self.mutated = set().union(*(code.init.written for code in self.codes))
        for code in self.codes:
            code.init.written = self.mutated
        self.alone = len(programs) == 1 and not any(i.plan.spec.meeting is not None for i in programs[0].walk())

    @property
    def program(self) -> Program:
        """The program of the first core."""
        return self.codes[0].program

    @property
    def native(self) -> Any:
        """The native executable of the first core."""
        return self.codes[0].native

    def run(self, inputs: list[NDArray[Any]], mode: str | None, threads: int | None) -> dict[int, NDArray[Any]]:
        """Execute in native or reference mode."""
        from tilelang.execute.runtime import default_threads

        if self.alone and mode != "reference":
            return self.native.run(inputs, threads or default_threads())
        from tilelang.execute.crew import Launch, run_launches

        return run_launches([Launch(self.codes, inputs)], mode, threads or default_threads())[0]


class ProgramCache:
    """The specialisations of one kernel function, the latest `LIMIT` of them."""

    LIMIT = 512

    def __init__(self, function: Any) -> None:
        self.programs: dict[Any, Specialisation] = {}
        self.launched = False
        self.surroundings = Surroundings(function, describe)

    def add(self, key: tuple[Any, ...], found: Specialisation) -> None:
        """Keep `found`."""
        self.programs[key] = found
        while len(self.programs) > self.LIMIT:
            self.programs.pop(next(iter(self.programs)), None)


_HARD_LIMIT = 16 << 20  # bytes per partition: what is emulated at most, so that a slip does not exhaust the host


def report_capacity(found: Specialisation, strict: bool) -> None:
    """Warn (strict: raise) when live tiles exceed a memory of the target."""
    device = found.program.device
    limits = {"sbuf": device.sbuf_usable_bytes, "psum": device.psum_bytes}
    for region, limit in limits.items():
        need, live = max((code.placement.peak[region] for code in found.codes), key=lambda peak: peak[0])
        if need <= limit:
            continue
        largest = sorted(live, key=lambda s: -s.row_bytes)[:5]
        notes = tuple(f"{s.row_bytes} bytes: {s.describe()}, allocated at {s.site}" for s in largest)
        diagnostic = Diagnostic(
            f"{need} bytes per partition of {region.upper()} are live at once; {device.name} has {limit}",
            rule=f"DEV.{region}",
            site=largest[0].site,
            notes=notes,
            hint="reuse tiles, or work on smaller ones",
        )
        if strict or need > _HARD_LIMIT:
            raise TileCapacityError(diagnostic.message, diagnostics=[diagnostic])
        warn_user(diagnostic.render(), TileWarning)


def separate(arrays: list[NDArray[Any]], found: Specialisation, others: Sequence[NDArray[Any]] = ()) -> None:
    """Replace written inputs that share memory with another argument, or with one of `others`, by copies."""
    for i, tensor in enumerate(found.program.inputs):
        if tensor.storage.index in found.mutated and any(
            np.may_share_memory(arrays[i], other) for other in (*arrays[:i], *arrays[i + 1 :], *others)
        ):
            arrays[i] = arrays[i].copy()


def results(program: Program, arrays: dict[int, NDArray[Any]], host: list[HostArray]) -> Any:
    """The returned structure with host arrays as leaves, in the family of the arguments."""
    from tilelang.execute.runtime import view_of

    families = {h.family for h in host}
    family = next((name for name in ("torch", "jax") if name in families), "numpy")
    originals = {t.storage.index: h for t, h in zip(program.inputs, host, strict=True)}

    def convert(tensor: NkiTensor) -> Any:
        given = originals.get(tensor.storage.index)
        if given is not None and tensor.key == NkiTensor.over(tensor.storage).key and tensor.offset == 0:
            return given.original if given.family != "jax" else to_family(given.array, "jax")
        result = view_of(tensor, arrays[tensor.storage.index], program.precision)
        if tensor.storage.kind != "local" and np.may_share_memory(result, arrays[tensor.storage.index]):
            result = result.copy()
        return to_family(result, family)

    return map_tensors(program.result, convert)


def bind_arrays(
    found: Specialisation, host: list[HostArray], others: Sequence[NDArray[Any]] = ()
) -> list[NDArray[Any]]:
    """The arrays that a run gets for `host`: widened, and where they are written apart from each other and from the
    arguments `others` of other ranks.
    """
    arrays = [item.array for item in host]
    if found.mutated:
        for tensor, item in zip(found.program.inputs, host, strict=True):
            if tensor.storage.index in found.mutated:
                require_writable(item, tensor)
        separate(arrays, found, others)
    return [widened(array, "high") for array in arrays] if found.program.precision == "high" else arrays


def finish(found: Specialisation, host: list[HostArray], arrays: list[NDArray[Any]], content: Any) -> Any:
    """Write changed arguments back, and make the results of a run that left `content`."""
    inputs = found.program.inputs
    for tensor, item, array in zip(inputs, host, arrays, strict=True) if found.mutated else ():
        if tensor.storage.index in found.mutated and (item.copied or array is not item.array):
            item.write_back(narrowed(array, item.array.dtype))
    return results(found.program, content, host)


def run_ranks(
    found: list[Specialisation], host: list[list[HostArray]], mode: str | None, threads: int | None
) -> list[Any]:
    """Run one specialisation a rank together; returns each rank's results."""
    from tilelang.execute.crew import Launch, run_launches
    from tilelang.execute.runtime import default_threads

    degrees = {len(each.codes) for each in found}
    assert len(degrees) == 1, "one launch has one degree"
    arrays = [
        bind_arrays(each, items, [i.array for j, other in enumerate(host) if j != rank for i in other])
        for rank, (each, items) in enumerate(zip(found, host, strict=True))
    ]
    launches = [Launch(each.codes, given) for each, given in zip(found, arrays, strict=True)]
    contents = run_launches(launches, mode, threads or default_threads())
    return [finish(*rank) for rank in zip(found, host, arrays, contents, strict=True)]


def require_writable(item: HostArray, tensor: NkiTensor) -> None:
    """Raise when a kernel has written a read-only argument."""
    if not item.writable:
        raise TileValueError(
            f"the kernel writes its argument {tensor.describe()}, which is read-only", hint="pass a copy of the array"
        )


def check_shared(first: Program, second: Program) -> None:
    """The two cores of a launch agree on shared tensors and on results. Raises TileTypeError (LNC.R4)."""
    links = {s.link: s for s in first.storages if s.link is not None}
    for storage in second.storages:
        other = links.get(storage.link) if storage.link is not None else None
        if other is not None and (other.shape, other.fmt) != (storage.shape, storage.fmt):
            message = f"core 0 allocates {other.describe()}, core 1 {storage.describe()} for one shared tensor"
            hint = "give tensors that only one core has a name of their own"
            raise TileTypeError(message, rule="LNC.R4", hint=hint).at(storage.site)
    results = [[(t.key, t.offset, t.storage.link) for t in tensors_in(p.result)] for p in (first, second)]
    if results[0] != results[1]:
        raise TileTypeError(
            "the two cores of the launch return different tensors",
            rule="LNC.R4",
            hint="return the same shared_hbm tensors on both cores",
        )
