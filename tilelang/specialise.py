"""A kernel traced for one signature: what is kept of it, and running it on arrays."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.analysis.initialised import analyse_initialisation
from tilelang.errors import Diagnostic, TileCapacityError, TileWarning, warn_user
from tilelang.ir.program import Program
from tilelang.ir.tensor import NkiTensor
from tilelang.scheduler.placement import Placement, place
from tilelang.trace.binding import HostArray, map_tensors, to_family

__all__ = ["ProgramCache", "Specialisation", "report_capacity", "results", "separate"]


class Specialisation:
    """A kernel traced for one signature: its program, and the executable once it is needed."""

    def __init__(self, program: Program, pinned: list[Any]) -> None:
        self.program = program
        self.pinned = pinned
        self.init = analyse_initialisation(program)
        self.mutated = self.init.written
        self.placement: Placement = place(program, self.init.poison)
        self._native: Any = None
        self.lock = threading.Lock()

    @property
    def native(self) -> Any:
        """The native executable."""
        if self._native is None:
            from tilelang.execute.encode import encode
            from tilelang.execute.runtime import Executable as NativeExecutable

            with self.lock:
                if self._native is None:
                    encoded = encode(self.program, self.placement, self.init)
                    self._native = NativeExecutable(self.program, encoded, self.mutated)
        return self._native

    def run(self, inputs: list[NDArray[Any]], mode: str | None, threads: int | None) -> dict[int, NDArray[Any]]:
        """Execute in native or reference mode."""
        if mode == "reference":
            from tilelang.execute.reference import run_reference

            with self.lock:
                return run_reference(self.program, inputs)
        from tilelang.execute.runtime import default_threads

        return self.native.run(inputs, threads or default_threads())


class ProgramCache:
    """The specialisations of one kernel function, the latest `LIMIT` of them."""

    LIMIT = 512

    def __init__(self) -> None:
        self.programs: dict[Any, Specialisation] = {}
        self._changed: set[int] = set()

    def add(self, key: tuple[Any, ...], found: Specialisation) -> None:
        """Keep `found`."""
        self.programs[key] = found
        while len(self.programs) > self.LIMIT:
            self.programs.pop(next(iter(self.programs)), None)

    def key(self, arguments: list[Any], captured: list[Any]) -> tuple[Any, ...]:
        """The key of a call, from descriptions of its arguments and of what the function closes over."""
        return *arguments, tuple(None if i in self._changed else item for i, item in enumerate(captured))

    def note_changes(self, before: list[Any], after: list[Any]) -> None:
        """What tracing itself changes (a list of calls, a counter) is an effect of the kernel, no part of its key."""
        self._changed |= {i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}


_HARD_LIMIT = 16 << 20  # bytes per partition: what is emulated at most, so that a slip does not exhaust the host


def report_capacity(found: Specialisation, strict: bool) -> None:
    """Warn (strict: raise) when live tiles exceed a memory of the target."""
    device = found.program.device
    limits = {"sbuf": device.sbuf_usable_bytes, "psum": device.psum_bytes}
    for region, limit in limits.items():
        need, live = found.placement.peak[region]
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


def separate(arrays: list[NDArray[Any]], found: Specialisation) -> None:
    """Replace written inputs that share memory with another argument by copies."""
    for i, tensor in enumerate(found.program.inputs):
        if tensor.storage.index in found.mutated and any(
            np.may_share_memory(arrays[i], other) for j, other in enumerate(arrays) if i != j
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
