"""A traced kernel: located instructions, loops and allocations, frozen once tracing ends; prints as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tilelang.errors import Site, TileTypeError
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

__all__ = ["Instruction", "Loop", "Program", "format_program"]


class Instruction:
    """One located instruction; what every `nisa` call returns (public name `nki.isa.NkiInstruction`).

    `plan` is the checked call that all instructions of the same signature share (`tilelang.isa.plan.Plan`);
    `args` are this instruction's own arguments, in the order of the record's parameters.
    """

    __slots__ = ("after", "args", "index", "loops", "name", "plan", "site")

    def __init__(self, plan: Any, args: tuple[Any, ...], site: Site, name: str | None, index: int) -> None:
        self.plan = plan
        self.args = args
        self.site = site
        self.name = name
        self.index = index
        self.after: tuple[Instruction, ...] = ()
        self.loops: tuple[Loop, ...] = ()

    def depends_on(self, *producers: Instruction) -> Instruction:
        """Add the scheduling edge "this runs after `producers`"; returns self. No numerical effect.

        Both ends must share the same dynamic loops, or a producer lies in an enclosing scope (isa.md 7.2).
        """
        for producer in producers:
            if not isinstance(producer, Instruction):
                raise TileTypeError(f"depends_on takes instructions, got {type(producer).__name__}")
            if producer.loops != self.loops[: len(producer.loops)]:
                raise TileTypeError(
                    "depends_on: the producer lies inside a dynamic loop that does not enclose the consumer",
                    hint="both ends must be in the same loop body, or the producer outside it",
                )
        self.after += producers
        return self

    @property
    def opname(self) -> str:
        """Name of the instruction."""
        return str(self.plan.call.spec.name)

    def tiles(self) -> list[NkiTensor]:
        """Tensor operands in the order of `plan.operands`."""
        args = self.args
        return [args[i] if j < 0 else args[i][j] for i, j in self.plan.slots]

    def __repr__(self) -> str:
        return f"<{self.opname} at {self.site}>"


class Loop:
    """A device loop: its body is in the program once.

    kind "fori": counts from `lower` to `upper` (exclusive) by `step`; `register` is what the body sees. kind "while":
    runs while
    `register` is non-zero; `condition` is the register the body computes for the next test.
    """

    __slots__ = ("body", "condition", "kind", "lower", "register", "site", "step", "upper")

    def __init__(
        self,
        kind: str,
        register: VirtualRegister | NkiScalar,
        site: Site,
        lower: Any = 0,
        upper: Any = 0,
        step: int = 1,
    ) -> None:
        self.kind = kind
        self.register = register
        self.site = site
        self.lower = lower
        self.upper = upper
        self.step = step
        self.condition: VirtualRegister | NkiScalar | None = None
        self.body: list[Item] = []

    @property
    def runs_at_least_once(self) -> bool:
        """True when the trip count is known to be positive."""
        return (
            self.kind == "fori"
            and isinstance(self.lower, int)
            and isinstance(self.upper, int)
            and self.lower < self.upper
        )


Item = Instruction | Loop | Storage


@dataclass
class Program:
    """A kernel traced for fixed argument shapes, dtypes, static values and target.

    `items` are instructions, loops and storages (a storage stands where it was allocated); `inputs` the argument
    tensors in binding order;
    `result` the returned structure with NkiTensors as leaves; `lnc` cores run it together, this is the program of
    `core`. `presets`: registers whose start value depends on the rank, with the function that gives it.
    """

    name: str
    device: Any
    precision: str
    items: list[Item]
    storages: list[Storage]
    inputs: list[NkiTensor]
    result: Any
    instructions: int
    registers: int
    lnc: int = 1
    warnings: list[Any] = field(default_factory=list)
    edges: tuple[tuple[str, tuple[str, ...]], ...] = ()
    core: int = 0
    presets: list[tuple[int, Callable[[int], int]]] = field(default_factory=list)

    def __len__(self) -> int:
        return self.instructions

    def walk(self) -> Iterator[Instruction]:
        """Every instruction in program order; loop bodies once."""
        yield from _walk(self.items)

    def __str__(self) -> str:
        return format_program(self)


def _walk(items: list[Item]) -> Iterator[Instruction]:
    for item in items:
        if type(item) is Instruction:
            yield item
        elif type(item) is Loop:
            yield from _walk(item.body)


def format_program(program: Program) -> str:
    """The program as text: one line per instruction with operands, attributes and source location."""
    head = (
        f"program {program.name} target={program.device.name} precision={program.precision} instructions={len(program)}"
    )
    lines = [head]
    _format(program.items, lines, "  ")
    return "\n".join(lines)


def _operand(value: Any) -> str:
    if isinstance(value, NkiTensor):
        label = value.storage.name or f"t{value.storage.index}"
        start = f"+{value.offset}" if value.offset else ""
        return f"%{label}{start}:{value.dtype}{list(value.shape)}"
    if isinstance(value, (VirtualRegister, NkiScalar)):
        return f"r{value.state}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(_operand(v) for v in value) + ")"
    return str(getattr(value, "__name__", getattr(value, "name", value)))


def _format(items: list[Item], lines: list[str], indent: str) -> None:
    for item in items:
        if type(item) is Storage:
            address = f" @{item.address}" if item.address else ""
            lines.append(
                f"{indent}%{item.name or f't{item.index}'} = "
                f"{item.buffer.value} {item.fmt.name}{list(item.shape)}{address}"
            )
        elif type(item) is Loop:
            bounds = f"{_operand(item.lower)}, {_operand(item.upper)}, {item.step}" if item.kind == "fori" else ""
            lines.append(f"{indent}{item.kind} r{item.register.state} ({bounds}) {{")
            _format(item.body, lines, indent + "  ")
            lines.append(f"{indent}}}")
        elif type(item) is Instruction:
            call = item.plan.call
            parts = [
                f"{name}={_operand(value if name in call.spec.operands else call.values[name])}"
                for name, value in zip(call.spec.names, item.args, strict=True)
                if value is not None
            ]
            lines.append(f"{indent}{call.engine}.{call.spec.name}({', '.join(parts)})  # {item.site}")
