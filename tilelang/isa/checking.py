"""Running the rules of one call."""

from __future__ import annotations

from collections.abc import Iterable

from tilelang.errors import Diagnostic
from tilelang.isa.rules import GENERIC_RULES
from tilelang.isa.spec import Call, Finding, Rule

__all__ = ["check_call"]


def check_call(call: Call) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(errors, warnings) of `call`: the instruction's own rules first, then the generic ones. One finding per operand
    and rule.
    """
    errors: list[Diagnostic] = []
    warnings: list[Diagnostic] = []
    for rule in (*call.spec.rules, *GENERIC_RULES):
        if rule.test is None:
            continue
        for finding in _findings(rule, call):
            (warnings if rule.warn else errors).append(_diagnostic(rule, finding, call))
    return errors, warnings


def _findings(rule: Rule, call: Call) -> Iterable[Finding]:
    result = rule.test(call) if rule.test else None
    if result is None:
        return ()
    if isinstance(result, str):
        return (Finding(result),)
    return (result,) if isinstance(result, Finding) else result


def _diagnostic(rule: Rule, finding: Finding, call: Call) -> Diagnostic:
    identifier = rule.id if "." in rule.id else f"{call.spec.name}.{rule.id}"
    operand = finding.operand or rule.operand
    base = operand.split("[")[0] if operand else None
    position = call.spec.names.index(base) if base in call.spec.names else None
    notes = []
    if base is not None and call.is_tile(base):
        storage = call.values[base].storage
        where = f", allocated at {storage.site}" if storage.site is not None else ""
        notes.append(f"{base}: {call.describe(base)}{where}")
    return Diagnostic(
        f"{finding.message}" + ("" if call.target in finding.message else f" (target {call.target})"),
        rule=identifier,
        operand=base,
        position=position,
        notes=tuple(notes),
        hint=finding.hint or rule.hint,
    )
