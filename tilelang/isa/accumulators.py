"""Accumulator registers of the scalar and vector engines (isa.md 2.4): rules and meaning of `reduce_*` parameters.

Reductions run ascending along the flattened free index, one float32 rounding a step. Values enter before the cast to
`dst`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.isa.enums import reduce_cmd as Cmd
from tilelang.isa.params import enum_param
from tilelang.isa.spec import Call, Finding, Rule
from tilelang.numerics import alu

__all__ = [
    "REDUCE_CMD",
    "accumulate",
    "files_read",
    "fold",
    "one_of",
    "reduce_commands",
    "reduce_result",
    "register_use",
    "undefined_reductions",
]

REDUCE_CMD = enum_param(Cmd)
_RESETS = (Cmd.reset, Cmd.reset_reduce, Cmd.load_reduce)
_REDUCES = (Cmd.reduce, Cmd.reset_reduce, Cmd.load_reduce)


def one_of(rule: str, name: str, *allowed: str | None, hint: str | None = None) -> Rule:
    """Operator parameter `name` is one of `allowed`."""

    def test(call: Call) -> Finding | None:
        value = call.values[name]
        if value in allowed:
            return None
        return Finding(f"{name}={value} is not available here; allowed: {', '.join(map(str, allowed))}", name, hint)

    return Rule(rule, f"{name} in {', '.join(map(str, allowed))}", test)


def reduce_commands(rule: str, *allowed: Cmd) -> Rule:
    """ACC.R3: `reduce_cmd` is one of `allowed`."""
    names = ", ".join(member.name for member in allowed)

    def test(call: Call) -> Finding | None:
        if call.reduce_cmd in allowed:
            return None
        return Finding(f"reduce_cmd={call.reduce_cmd.name} is not available here; allowed: {names}", "reduce_cmd")

    return Rule(rule, f"reduce_cmd in {names} (ACC.R3)", test)


def reduce_result(rule: str, like: str, floating: bool = False) -> Rule:
    """ACC.R5: `reduce_res` is None or on chip, one element for each partition of `like`; `floating`: a float dtype."""

    def test(call: Call) -> Finding | None:
        if not call.is_tile("reduce_res"):
            return None
        if call.buffer("reduce_res") not in ("sbuf", "psum"):
            return Finding(f"reduce_res is in {call.buffer('reduce_res')}; it must be in SBUF or PSUM", "reduce_res")
        if call.P("reduce_res") != call.P(like) or call.F("reduce_res") != 1:
            shape = tuple(call.reduce_res.shape)
            return Finding(
                f"reduce_res has shape {shape}; the reduction leaves one element per partition: ({call.P(like)}, 1)",
                "reduce_res",
            )
        if floating and not call.fmt("reduce_res").is_float:
            return Finding(
                f"reduce_res is {call.dtype('reduce_res')}; it must have a floating-point dtype", "reduce_res"
            )
        return None

    return Rule(rule, f"reduce_res: None or ({like} partitions, 1) in SBUF or PSUM (ACC.R5)", test)


def register_use(call: Call) -> tuple[bool, bool]:
    """(reads, writes): whether `call` depends on what earlier instructions left in the registers, and changes it."""
    command = call.values.get("reduce_cmd", Cmd.reset_reduce)
    read_out = call.values.get("reduce_res") is not None
    return command is Cmd.reduce or (command is Cmd.idle and read_out), command is not Cmd.idle


def files_read(calls: Iterable[Call]) -> set[str]:
    """Accumulator files whose content some call takes over from an earlier one."""
    return {file for call in calls if register_use(call)[0] for file in call.spec.state}


def undefined_reductions(calls: Iterable[Call]) -> list[tuple[int, Finding]]:
    """ACC.R1, a warning: (position, finding) of each call, in program order, that continues a lost vector reduction.

    The registers are undefined when nothing has set them or an `idle` instruction may have clobbered them; and a
    chain is broken when another instruction, perhaps one that reduces by default, started its own reduction in
    between.
    """
    found = []
    owner, reason = "", "no instruction has set them"
    replaced: set[str] = set()
    for position, call in enumerate(calls):
        if "dve" not in call.spec.state:
            continue
        name = call.spec.name
        if call.reduce_cmd is Cmd.idle:
            owner, reason = "", f"{name} with reduce_cmd=idle may have changed them"
            continue
        if call.reduce_cmd is Cmd.reduce:
            why = reason if not owner else f"{owner} has started its own reduction" if name in replaced else None
            if why is not None:
                message = f"reduce_cmd=reduce continues from accumulators that do not hold its reduction: {why}"
                hint = "start the reduction with reduce_cmd.reset_reduce"
                found.append((position, Finding(message, "reduce_cmd", hint)))
        elif owner not in ("", name):
            replaced.add(owner)
        replaced.discard(name)
        owner = name
    return found


def fold(op: str, start: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`start` combined with `values` (…, n) along the last axis, in ascending order."""
    combine = alu.BINARY[op]
    total = start
    for f in range(values.shape[-1]):
        total = combine(total, values[..., f])
    return total


def accumulate(
    registers: NDArray[np.float32],
    op: str,
    values: NDArray[np.float32],
    command: Cmd,
    initial: NDArray[Any] | None = None,
) -> None:
    """What `command` does to `registers` (P,), a view of the register file, given results `values` (P, F)."""
    if command in _RESETS:
        registers[:] = alu.identity(op) if initial is None else initial
    if command in _REDUCES:
        registers[:] = fold(op, registers.copy(), values)
