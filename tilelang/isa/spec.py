"""What an instruction is: one declaration, from which everything else about it is derived.

`@instruction(...)` above a plain NumPy body declares operands, parameters, rules, engines, generations and cost. From
the record come the public
function with its signature and documentation, argument checks, read and write sets, the engine, the cost and the
reference result.
A missing part is an error at import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilelang.dtypes import FORMATS, Format
from tilelang.errors import Diagnostic, TileTypeError, TileValueError
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.enums import engine as Engine
from tilelang.isa.params import Param, finite_int

if TYPE_CHECKING:
    from tilelang.devices import Device
    from tilelang.isa.meeting import Meeting, Place, World

__all__ = [
    "REGISTRY",
    "Call",
    "Finding",
    "In",
    "InOut",
    "InstructionSpec",
    "Operand",
    "Out",
    "Rule",
    "Vec",
    "instruction",
]

Predicate = Callable[["Call"], bool]


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor slot. `reads`/`writes` may depend on the call. `numbers`: a Python number is accepted (vec(P)
    operands).
    """

    reads: bool | Predicate = False
    writes: bool | Predicate = False
    optional: bool = False
    numbers: bool = False
    many: bool = False


def In(*, optional: bool = False, many: bool = False) -> Operand:
    """A tensor that is read."""
    return Operand(reads=True, optional=optional, many=many)


def Out(*, optional: bool = False, many: bool = False) -> Operand:
    """A tensor whose every element is written."""
    return Operand(writes=True, optional=optional, many=many)


def InOut(reads: bool | Predicate = True, writes: bool | Predicate = True, many: bool = False) -> Operand:
    """A tensor that is written, and read first (always, or when `reads(call)`)."""
    return Operand(reads=reads, writes=writes, many=many)


def Vec(*, optional: bool = False, numbers: bool = True, reads: bool | Predicate = True) -> Operand:
    """vec(P): a number or a (P, 1) tile broadcast along the free dimension."""
    return Operand(reads=reads, optional=optional, numbers=numbers)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule's test returns when it is violated: message, the operand at fault, and optionally a more precise
    hint.
    """

    message: str
    operand: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the specification.

    `id` is "R4" (the instruction's own) or a generic one such as "GEN.R5". kind: "violable" (has a test; `warn` makes
    it a warning),
    "semantic" (a statement about values, shown by a value test), "alias" (covered by the rule that `text` names).
    `test(call)` returns None, a message, a Finding, or a list of them.
    """

    id: str
    text: str
    test: Callable[[Call], str | Finding | list[Finding] | None] | None = None
    hint: str | None = None
    operand: str | None = None
    kind: str = "violable"
    warn: bool = False

    def __post_init__(self) -> None:
        if (self.kind == "violable") != (self.test is not None):
            raise TypeError(f"rule {self.id}: a violable rule needs a test, and only that kind has one")


class Call:
    """One call of an instruction with its arguments bound and normalised: what rules, costs and native bodies look at.

    Parameters are attributes (`call.dst`, `call.op`): operators are names (str), enums members, patterns tuples.
    `device` is the target,
    `generation` 2, 3 or 4, `lnc` the cores of the launch, `engine` the engine that executes the call (str).
    """

    __slots__ = ("device", "engine", "lnc", "spec", "values")

    def __init__(self, spec: InstructionSpec, values: dict[str, Any], device: Device, lnc: int = 1) -> None:
        self.spec = spec
        self.values = values
        self.device = device
        self.lnc = lnc
        self.engine = "unknown"

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def generation(self) -> int:
        """NeuronCore generation of the target: 2, 3 or 4."""
        return int(self.device.generation)

    @property
    def target(self) -> str:
        """Name of the target, for messages."""
        return str(self.device.name)

    def is_tile(self, name: str) -> bool:
        """True when parameter `name` was given a tensor."""
        return isinstance(self.values.get(name), NkiTensor)

    def tiles(self) -> list[tuple[str, NkiTensor]]:
        """(parameter, tensor) of every tensor operand; elements of `many` operands are named `srcs[0]`…"""
        found: list[tuple[str, NkiTensor]] = []
        for name, slot in self.spec.operands.items():
            value = self.values.get(name)
            if slot.many and value is not None:
                found += [(f"{name}[{i}]", item) for i, item in enumerate(value)]
            elif isinstance(value, NkiTensor):
                found.append((name, value))
        return found

    def P(self, name: str) -> int:
        """Partition count of tensor operand `name`."""
        return int(self.values[name].P)

    def F(self, name: str) -> int:
        """Elements per partition of tensor operand `name`."""
        return int(self.values[name].F)

    def dtype(self, name: str) -> str:
        """dtype name of tensor operand `name`."""
        return str(self.values[name].dtype)

    def fmt(self, name: str) -> Format:
        """Format of tensor operand `name`."""
        return FORMATS[self.values[name].dtype]

    def buffer(self, name: str) -> str:
        """Memory of tensor operand `name`: "sbuf", "psum", "private_hbm" or "shared_hbm"."""
        return str(self.values[name].buffer.value)

    def reads(self, name: str) -> bool:
        """Whether the call reads operand `name`."""
        flag = self.spec.operands[name].reads
        return flag(self) if callable(flag) else flag

    def writes(self, name: str) -> bool:
        """Whether the call writes operand `name`."""
        flag = self.spec.operands[name].writes
        return flag(self) if callable(flag) else flag

    def describe(self, name: str) -> str:
        """`sbuf bfloat16[128, 512]`: an operand as messages show it."""
        tensor = self.values[name]
        return f"{tensor.buffer.value} {tensor.dtype}{list(tensor.shape)}"


@dataclass(frozen=True, slots=True)
class InstructionSpec:
    """The record of one instruction (see `instruction` for the fields)."""

    name: str
    body: Callable[..., None]
    operands: Mapping[str, Operand]
    params: Mapping[str, Param]
    rules: tuple[Rule, ...]
    engines: tuple[str, ...]
    choose: Callable[[Call], str] | None
    engine_since: Mapping[str, int]
    since: int
    cost: Callable[[Call], float]
    lanewise: bool
    accuracy: str
    state: tuple[str, ...]
    indirect: tuple[str, ...]
    legacy: tuple[str, ...]
    signature: inspect.Signature
    names: tuple[str, ...] = field(default=())
    uses_machine: bool = False
    simulate_only: bool = False
    meeting: Callable[[Call, Place, World], Meeting] | None = None

    def bind(self, args: Sequence[Any], device: Device, lnc: int = 1) -> Call:
        """The Call for positional `args` (one per parameter except `name`). Raises TileTypeError for arguments of the
        wrong kind.
        """
        values: dict[str, Any] = {}
        for position, (name, value) in enumerate(zip(self.names, args, strict=True)):
            slot = self.operands.get(name)
            try:
                values[name] = self._operand(name, slot, value) if slot else self.params[name].normalise(value)
            except (TileTypeError, TileValueError) as error:
                error.diagnostics = [
                    Diagnostic(f"{self.name}: {name}: {d.message}", d.rule, d.site, name, position, d.notes, d.hint)
                    for d in error.diagnostics
                ]
                raise
        call = Call(self, values, device, lnc)
        call.engine = self._engine(call)
        return call

    def _operand(self, name: str, slot: Operand, value: Any) -> Any:
        if isinstance(value, NkiTensor) or (value is None and slot.optional):
            return value
        if slot.many and isinstance(value, (list, tuple)) and all(isinstance(item, NkiTensor) for item in value):
            if not value:
                raise TileTypeError("expected at least one tensor, got an empty list")
            return tuple(value)
        number = value.item() if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0 else value
        if slot.numbers and isinstance(number, (int, float)) and not isinstance(number, bool):
            return finite_int(number)
        wanted = "a tensor or a number" if slot.numbers else "a list of tensors" if slot.many else "a tensor"
        hint = None
        if type(value).__name__ in ("NkiTileGrid", "NkiBlockGrid"):
            hint = "pass the grid's .data"
        elif type(value).__module__.split(".")[0] in ("numpy", "torch", "jax", "jaxlib"):
            hint = "host arrays enter a kernel as arguments; inside, use nl.shared_constant(array)"
        raise TileTypeError(f"expected {wanted}, got {type(value).__name__}", hint=hint)

    def _engine(self, call: Call) -> str:
        asked = call.values.get("engine", Engine.unknown)
        if asked is not Engine.unknown and len(self.engines) > 1:
            return str(asked.name)
        return self.choose(call) if self.choose else self.engines[0]

    @property
    def doc(self) -> str:
        """Documentation of the instruction."""
        return inspect.getdoc(self.body) or ""


REGISTRY: dict[str, InstructionSpec] = {}


def instruction(
    *,
    operands: Mapping[str, Operand],
    params: Mapping[str, Param] | None = None,
    rules: Sequence[Rule],
    engines: Sequence[str],
    cost: Callable[[Call], float],
    accuracy: str,
    choose: Callable[[Call], str] | None = None,
    engine_since: Mapping[str, int] | None = None,
    since: int = 2,
    lanewise: bool = True,
    state: Sequence[str] = (),
    indirect: Sequence[str] = (),
    legacy: Sequence[str] = ("mask", "dtype"),
    simulate_only: bool = False,
    name: str | None = None,
    meeting: Callable[[Call, Place, World], Meeting] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Declare an instruction; the decorated function is its NumPy body, and its signature is the public one.

    operands: tensor slots by parameter name. params: kinds of all other parameters. rules: every rule of its section.
    engines: names, default first;
    `choose(call)` picks when the caller leaves it open; `engine_since` gives engines that only later generations
    allow. cost: cycles of the engine (DMA: 0, timed by bytes).
    accuracy: "exact" or a statement in ulp. lanewise: row p of the result depends on row p of the inputs only. state:
    accumulator files it uses ("act", "dve").
    indirect: operands that may be `.indirect` views (isa.md 5.5).
    meeting: which cores take part, for instructions of several (isa/meeting.py); the body then takes `parties` too.
    legacy: keywords of older versions that are accepted when harmless. The body takes `machine` as an extra last
    keyword when it uses state.
    """

    def declare(body: Callable[..., None]) -> Callable[..., Any]:
        from tilelang.isa.public import make_public

        label = name or body.__name__
        signature = inspect.signature(body)
        parameters = [p for p in signature.parameters.values() if p.name not in ("machine", "parties")]
        names = tuple(p.name for p in parameters if p.name != "name")
        kinds = dict(params or {})
        missing = [n for n in names if n not in operands and n not in kinds]
        if missing or not inspect.getdoc(body):
            raise TypeError(f"instruction {label}: no kind declared for {missing}, or no docstring")
        spec = InstructionSpec(
            name=label,
            body=body,
            operands=dict(operands),
            params=kinds,
            rules=tuple(rules),
            engines=tuple(engines),
            choose=choose,
            engine_since=dict(engine_since or {}),
            since=since,
            cost=cost,
            lanewise=lanewise,
            accuracy=accuracy,
            state=tuple(state),
            indirect=tuple(indirect),
            legacy=tuple(k for k in legacy if k not in names),
            signature=signature.replace(parameters=parameters),
            names=names,
            uses_machine="machine" in signature.parameters,
            simulate_only=simulate_only,
            meeting=meeting,
        )
        if ("parties" in signature.parameters) != (meeting is not None):
            raise TypeError(f"instruction {label}: `meeting` and the keyword `parties` go together")
        REGISTRY[label] = spec
        return make_public(spec)

    return declare
