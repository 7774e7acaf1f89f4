"""The builder: receives instructions, allocations and loops while a kernel function runs, and makes the Program.

With an `executor` (debug mode) each instruction also runs the moment it is emitted, and loops iterate for real.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from math import prod
from typing import Any, Protocol

from tilelang.analysis.aliasing import EXPLICIT_BYTES, Claims
from tilelang.analysis.initialised import created_in_loop
from tilelang.devices import Device
from tilelang.dtypes import format_of
from tilelang.errors import (
    _PACKAGE,
    Diagnostic,
    Site,
    TileBoundsError,
    TileCapacityError,
    TileError,
    TileRuleError,
    TileTypeError,
    TileUnsupportedError,
    TileValueError,
    TileWarning,
)
from tilelang.ir.program import Instruction, Item, Loop
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.checking import check_call
from tilelang.isa.plan import Plan, signature_key
from tilelang.isa.spec import InstructionSpec
from tilelang.trace.indirect import expand
from tilelang.trace.source import check_body, while_of

__all__ = ["Builder", "Executor"]

# Checked calls of straight traces, by (device, strict, cores): new kernels with tile shapes seen before cost no checks.
_PLANS: dict[tuple[str, bool, int], dict[Any, Plan]] = {}
_PLANS_LIMIT = 20_000
_SERIALS = count(1)
_MOST_ELEMENTS = 1 << 32


class Executor(Protocol):
    """What debug mode needs: storage for allocations, running one instruction, registers, and the scope of loop
    bodies.
    """

    claims: Claims
    rank: int

    def allocate(self, storage: Storage) -> None: ...
    def execute(self, instruction: Instruction) -> None: ...
    def register(self, register: Any) -> int: ...
    def assign(self, register: Any, value: int) -> None: ...
    def bind(self, storage: Storage, array: Any) -> None: ...
    def read(self, item: Any) -> Any: ...


class Builder:
    """State of one kernel being traced or executed eagerly."""

    def __init__(
        self,
        device: Device,
        *,
        precision: str = "exact",
        strict: bool = False,
        nki: str = "0.7",
        core: int = 0,
        lnc: int = 1,
        grid: int = 0,
        executor: Executor | None = None,
    ) -> None:
        self.device = device
        self.precision = precision
        self.strict = strict
        self.nki = nki
        self.core = core
        self.lnc = lnc
        self.grid = grid
        self.executor = executor
        self.value_reader = None if executor is None else executor.read
        self.serial = next(_SERIALS)
        self.items: list[Item] = []
        self.storages: list[Storage] = []
        self.count = 0
        self._hbm_bytes = 0
        self.registers = 0
        self.loops: tuple[Loop, ...] = ()
        self.bodies: list[list[Item]] = []
        self.found: list[Diagnostic] = []
        self.pending: Exception | None = None
        self.ordered = 0
        self.at_end: list[Callable[[], None]] = []  # checks when the kernel has returned
        self.presets: list[tuple[int, Callable[[int], int]]] = []
        self.links: dict[str, int] = {}  # shared HBM tensors so far, by name
        self._warned: set[tuple[Any, ...]] = set()
        self._tests: dict[Any, tuple[bool, Site]] = {}  # debug mode: the last outcome of each `while register`
        self._gone: list[range] = []  # debug mode: storages of device loops that have ended, by index
        if executor is None:
            self.plans = _PLANS.setdefault((device.name, strict, lnc), {})
            if len(self.plans) > _PLANS_LIMIT:
                self.plans.clear()
        else:
            self.plans = {}

    # -- instructions -------------------------------------------------------------------------------------------------

    def site(self, depth: int = 2) -> Site:
        """The place in user code that called into this package."""
        frame = sys._getframe(depth)
        code = frame.f_code
        while code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
            frame = frame.f_back
            code = frame.f_code
        return Site(code, frame.f_lasti)

    def emit(self, spec: InstructionSpec, args: tuple[Any, ...], name: str | None = None) -> Instruction:
        """Check and append one instruction. `args` hold one value per parameter of `spec`."""
        site = self.site()
        if self.pending is not None:
            raise self.pending
        if name is not None and not isinstance(name, str):
            raise TileTypeError(f"{spec.name}: name={name!r:.80} must be a str").at(site)
        key, tensors = signature_key(spec, args)
        try:
            plan = self.plans.get(key)
        except TypeError:  # an argument that has no hash
            key, plan = None, None  # type: ignore[assignment]
        if plan is None:
            plan = self._plan(spec, args, key, site)
        if plan.warnings:
            self._warn(plan.warnings, site)
        if plan.indirect:
            return expand(self, plan, args, name)
        instruction = Instruction(plan, args, site, name, self.count)
        self._own(instruction, tensors)
        instruction.loops = self.loops
        self.count += 1
        self.items.append(instruction)
        if self.executor is not None:
            for tensor in instruction.tiles() if self._gone else ():
                self.refuse_gone(tensor, f"{instruction.opname} uses", site)
            self.executor.execute(instruction)
        return instruction

    def _own(self, instruction: Instruction, tensors: list[NkiTensor]) -> None:
        """Raise for tensors and registers that another kernel made: they would mean other memory here."""
        storages = self.storages
        for tensor in tensors:
            storage = tensor.storage
            if storage.index >= len(storages) or storages[storage.index] is not storage:
                raise self._foreign(instruction, tensor.describe())
            if tensor.dynamic is not None and not isinstance(tensor.dynamic.source, NkiTensor):
                self._own_register(instruction, tensor.dynamic.source)
        for position in instruction.plan.registers:
            self._own_register(instruction, instruction.args[position])

    def _own_register(self, instruction: Instruction, register: VirtualRegister | NkiScalar) -> None:
        if register.owner != self.serial:
            raise self._foreign(instruction, f"a {type(register).__name__}")

    @staticmethod
    def _foreign(instruction: Instruction, what: str) -> TileError:
        return TileTypeError(
            f"{instruction.opname} uses {what}, which belongs to another kernel or call",
            rule="LANG.R230",
            hint="create tensors and registers in the kernel that uses them; do not keep them between calls",
        ).at(instruction.site)

    def refuse_gone(self, tensor: NkiTensor, what: str, site: Site | None) -> None:
        """Debug mode: raise when `tensor` or its index belongs to a device loop that has ended (analysis finds it
        when tracing).
        """
        if any(tensor.storage.index in span for span in self._gone) and tensor.storage.kind != "constant":
            raise created_in_loop(what, tensor).at(site)
        if tensor.dynamic is not None and isinstance(tensor.dynamic.source, NkiTensor):
            self.refuse_gone(tensor.dynamic.source, what, site)

    def _plan(self, spec: InstructionSpec, args: tuple[Any, ...], key: Any, site: Site) -> Plan:
        try:
            call = spec.bind(args, self.device, self.lnc)
        except (TileTypeError, TileValueError) as error:
            raise error.at(site) from None
        errors, warns = check_call(call)
        if self.strict:
            errors, warns = errors + warns, []
        if errors:
            raise TileRuleError(errors[0].message, errors[0].rule, diagnostics=errors).at(site)
        for operand, tensor in call.tiles():
            if prod(tensor.shape) > _MOST_ELEMENTS:
                raise TileUnsupportedError(
                    f"{spec.name}: {operand} is {tensor.describe()}; one instruction handles at most 2^32 elements",
                    hint="split it",
                ).at(site)
        plan = Plan(call, warns)
        if key is not None:
            self.plans[key] = plan
        return plan

    def _warn(self, diagnostics: list[Diagnostic], site: Site) -> None:
        for diagnostic in diagnostics:
            seen = (diagnostic.rule, site.code, site.lasti)
            if seen not in self._warned:
                self._warned.add(seen)
                self.report(diagnostic, site)

    def report(self, diagnostic: Diagnostic, site: Site | None = None, category: type[Warning] = TileWarning) -> None:
        """Record a warning and show it once, at the user's line."""
        located = Diagnostic(
            diagnostic.message,
            diagnostic.rule,
            site or diagnostic.site,
            diagnostic.operand,
            diagnostic.position,
            diagnostic.notes,
            diagnostic.hint,
        )
        self.found.append(located)
        if located.site is None:
            warnings.warn(located.render(), category, stacklevel=3)
        else:
            where = located.site.location()
            warnings.warn_explicit(located.render(), category, where.file, where.line)

    # -- tensors ------------------------------------------------------------------------------------------------------

    def allocate(
        self,
        shape: Any,
        dtype: Any,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
        address: tuple[int, int] | None = None,
        kind: str = "local",
    ) -> NkiTensor:
        """A new tensor. `shape` is a tuple of positive ints; contents are undefined."""
        site = self.site(2)
        try:
            storage = Storage(shape, format_of(dtype), buffer, name=name, address=address, site=site, kind=kind)
        except (TileTypeError, TileValueError, TileRuleError) as error:
            raise error.at(site) from None
        if storage.address is not None and storage.address[1] + storage.row_bytes > EXPLICIT_BYTES:
            raise TileBoundsError(
                f"address={storage.address}: {storage.describe()} ends "
                f"at byte {storage.address[1] + storage.row_bytes} "
                f"of its partitions, which have at most {EXPLICIT_BYTES}",
                rule="LANG.R202",
            ).at(site)
        if not storage.on_chip:
            self._reserve_hbm(storage)
        if self.lnc > 1 and buffer is MemoryRegion.shared_hbm and kind == "local":
            self.links[name] = self.links.get(name, 0) + 1
            storage.link = name, self.links[name]
        storage.index = len(self.storages)
        self.storages.append(storage)
        self.items.append(storage)
        if self.executor is not None:
            self.executor.allocate(storage)
        return NkiTensor.over(storage)

    def _reserve_hbm(self, storage: Storage) -> None:
        capacity = int(self.device.table["chip"]["hbm_gib"]) << 30
        self._hbm_bytes += storage.nbytes
        if self._hbm_bytes > capacity:
            raise TileCapacityError(
                f"{storage.describe()}: with it the kernel's tensors in HBM take {self._hbm_bytes / 2**30:.4g} GiB; "
                f"{self.device.name} has {capacity >> 30} GiB"
            ).at(storage.site)

    # -- registers and loops ------------------------------------------------------------------------------------------

    def new_register(self, *, frozen: bool = False) -> VirtualRegister:
        """A fresh scalar register."""
        self.registers += 1
        return VirtualRegister(self.registers - 1, frozen, self.serial)

    def preset(self, value: Callable[[int], int]) -> VirtualRegister:
        """A register with `value(rank)`, which is known when the kernel runs."""
        hidden = self.new_register()
        self.presets.append((hidden.state, value))
        if self.executor is not None:
            self.executor.assign(hidden, value(self.executor.rank))
        register = self.new_register()
        self.move(register, hidden)
        return register

    def new_scalar(self, dtype: str) -> NkiScalar:
        """A fresh immutable device scalar of `dtype` (int32 or int64)."""
        self.registers += 1
        return NkiScalar(self.registers - 1, dtype, owner=self.serial)

    def _open(self, loop: Loop) -> None:
        if self.ordered:
            raise TileTypeError("a dynamic loop inside nl.no_reorder() is not allowed").at(loop.site)
        self.items.append(loop)
        self.bodies.append(self.items)
        self.items = loop.body
        self.loops = (*self.loops, loop)

    def _close(self, loop: Loop) -> None:
        if self.loops[-1] is not loop:
            raise self._left_open(self.loops[-1].site)
        self.items = self.bodies.pop()
        self.loops = self.loops[:-1]

    def _bound(self, value: Any, what: str) -> Any:
        if isinstance(value, (NkiScalar, VirtualRegister)) and value.owner not in (0, self.serial):
            raise TileTypeError(f"{what}: a register of another kernel or call", rule="LANG.R230").at(self.site(3))
        if isinstance(value, NkiScalar):
            if value.dtype != "int32" or value.is_comparison:
                raise TileTypeError(f"{what} must be a 32-bit scalar, got {value.dtype}", rule="fori_loop.R2").at(
                    self.site(3)
                )
            return value
        if isinstance(value, VirtualRegister):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            if not -(2**31) <= value < 2**31:
                raise TileValueError(f"{what} {value} does not fit 32 bits", rule="fori_loop.R2").at(self.site(3))
            return value
        raise TileTypeError(f"{what} must be an int, a register or an NkiScalar, got {type(value).__name__}").at(
            self.site(3)
        )

    def fori_loop(self, lower: Any, upper: Any, body: Callable[[Any], Any], step: int = 1) -> None:
        """`for i in range(lower, upper, step): body(i)` as a device loop; the body is traced once (nki-0.7.md 1.4)."""
        site = self.site(2)
        check_body(body, "fori_loop", "one argument, the index", site)
        lower, upper = self._bound(lower, "lower bound"), self._bound(upper, "upper bound")
        if isinstance(step, bool) or not isinstance(step, int) or step < 1:
            raise TileValueError(f"step must be a positive int, got {step!r}", rule="fori_loop.R4").at(site)
        on_registers = isinstance(lower, VirtualRegister) or isinstance(upper, VirtualRegister)
        index = self.new_register() if on_registers else self.new_scalar("int32")
        if self.executor is not None:
            with self._scope() as again:
                for value in range(self.value(lower), self.value(upper), step):
                    again()
                    self.executor.assign(index, value)
                    self._body(body(index), site)
            return
        loop = Loop("fori", index, site, lower, upper, step)
        self._open(loop)
        self._body(body(index), site)
        self._close(loop)

    @contextmanager
    def _scope(self) -> Iterator[Callable[[], None]]:
        """Debug mode: around a device loop, whose tensors end with it; call what it yields before each iteration."""
        claims = self.executor.claims  # type: ignore[union-attr]
        mark, first = claims.mark(), len(self.storages)
        try:
            yield lambda: claims.reset(mark)
        finally:
            claims.reset(mark)
            self._gone.append(range(first, len(self.storages)))

    def _body(self, result: Any, site: Site) -> None:
        if result is not None:
            raise TileTypeError(
                f"the body of fori_loop returned {type(result).__name__}; it must return None",
                rule="fori_loop.R5",
                hint="carry results in tensors created before the loop",
            ).at(site)

    def while_loop(self, init: Any, body: Callable[[Any], Any]) -> None:
        """`while r != 0: r = body(r)` as a device loop; the body is traced once and returns the next condition
        register.
        """
        site = self.site(2)
        check_body(body, "while_loop", "one argument, the condition", site)
        init = self._condition(init, site, "while_loop needs a 32-bit register as its condition")
        state = self.new_register() if isinstance(init, VirtualRegister) else self.new_scalar("int32")
        self.move(state, init)
        wanted = "the body of while_loop must return the next condition, a 32-bit register"
        if self.executor is not None:
            with self._scope() as again:
                while self.value(state):
                    again()
                    self.move(state, self._condition(body(state), site, wanted))
            return
        loop = Loop("while", state, site)
        self._open(loop)
        loop.condition = self._condition(body(state), site, wanted)
        self.move(state, loop.condition)
        self._close(loop)

    def _condition(self, value: Any, site: Site, wanted: str) -> Any:
        if isinstance(value, VirtualRegister):
            return value
        if isinstance(value, NkiScalar) and value.dtype == "int32" and not value.is_comparison:
            return value
        kind = "the result of a comparison" if getattr(value, "is_comparison", False) else type(value).__name__
        kind = f"{kind} of int64" if getattr(value, "dtype", None) == "int64" else kind
        raise TileTypeError(f"{wanted}, got {kind}", hint="load it with nisa.register_load").at(site)

    def move(self, target: Any, source: Any) -> None:
        """Register copy."""
        from tilelang.isa.registers import MOVE

        self.emit(MOVE, (target, source))

    def value(self, item: Any) -> int:
        """Debug mode: the value of an int or register."""
        return item if isinstance(item, int) else self.executor.register(item)  # type: ignore[union-attr]

    def dynamic_range(self, start: Any, stop: Any, step: int) -> Iterator[VirtualRegister]:
        """The older loop form: yields one frozen register; closes the loop when the `for` ends."""
        site = self.site(2)
        if not isinstance(step, int) or isinstance(step, bool) or step < 1:
            raise TileValueError(f"step must be a positive int, got {step!r}").at(site)
        start, stop = self._bound(start, "start"), self._bound(stop, "stop")
        index = self.new_register(frozen=True)
        try:
            if self.executor is not None:
                with self._scope() as again:
                    for value in range(self.value(start), self.value(stop), step):
                        again()
                        self.executor.assign(index, value)
                        yield index
                return
            loop = Loop("fori", index, site, start, stop, step)
            self._open(loop)
            yield index
        except GeneratorExit:
            if self.pending is None:
                self.pending = TileTypeError(
                    "break leaves a device loop, which has no early exit",
                    hint="use nl.while_loop with a condition register",
                ).at(site)
            raise
        self._close(loop)

    def truth(self, register: Any) -> bool:
        """`bool(register)`: opens a loop on the test of `while register:`, closes it on the next; anything else is an
        error.
        """
        frame = sys._getframe(2)
        while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
            frame = frame.f_back
        site = Site(frame.f_code, frame.f_lasti)
        statement = while_of(site)
        if not isinstance(register, VirtualRegister) or statement is None:
            raise TileTypeError(
                f"the truth of a {type(register).__name__} is not known while tracing",
                hint="use nl.while_loop, or select with predicated instructions",
            ).at(site)
        if self.executor is not None:
            holds = self.executor.register(register) != 0
            self._tests[(site.code, statement)] = (holds, site)
            return holds
        if self.loops and self.loops[-1].kind == "while" and self.loops[-1].condition is register:
            opened = self.loops[-1].site
            if opened.code is site.code and while_of(opened) == statement:
                self._close(self.loops[-1])
                return False
        loop = Loop("while", register, site)
        loop.condition = register
        self._open(loop)
        return True

    def finish(self) -> None:
        """Called after the kernel returned. Raises when a loop was left open."""
        if self.pending is not None:
            raise self.pending
        if self.loops:
            raise self._left_open(self.loops[-1].site)
        for holds, site in self._tests.values():
            if holds:
                raise self._left_open(site)
        for check in self.at_end:
            check()

    @staticmethod
    def _left_open(site: Site) -> TileError:
        return TileTypeError(
            "a device loop was left before its end (break or return inside its body)",
            hint="use nl.while_loop with a condition register",
        ).at(site)
