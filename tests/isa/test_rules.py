"""Every rule that a call can violate: one call that trips it and one that just does not, and the message of the first.

Rows are data in `rows_*.py`. A row is (instruction, rule, operand, limit, changes that trip, changes that
do not[, target of the first, target of the second]): both calls are `BASE[instruction]` with those arguments replaced.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilelang.isa.checking import check_call
from tilelang.isa.spec import REGISTRY, Call

BASE: dict[str, dict[str, Any]] = {}
ROWS: list[tuple[Any, ...]] = []
for _path in sorted(Path(__file__).parent.glob("rows_*.py")):
    _module = runpy.run_path(str(_path))
    BASE |= _module["BASE"]
    ROWS += _module["ROWS"]


def _identifier(instruction: str, rule: str) -> str:
    return rule if "." in rule else f"{instruction}.{rule}"


def _label(row: tuple[Any, ...]) -> str:
    return f"{_identifier(*row[:2])}-{row[0]}-{row[2]}"


@pytest.mark.parametrize("name", BASE)
def test_base_call_is_legal(name: str, diagnose: Callable[..., Any]) -> None:
    for target in ("trn1", "trn2", "trn3"):
        if int(target[3]) + 1 >= REGISTRY[name].since:
            errors, warnings = diagnose(name, target, **BASE[name])
            assert [d.render() for d in errors + warnings] == []


@pytest.mark.parametrize("row", ROWS, ids=_label)
def test_rule(row: tuple[Any, ...], diagnose: Callable[..., Any]) -> None:
    name, rule, operand, limit, bad, good, *targets = row
    bad_target, good_target = targets if targets else ("trn2", "trn2")
    identifier = _identifier(name, rule)

    errors, warnings = diagnose(name, bad_target, **{**BASE[name], **bad})
    expected_in = warnings if any(r.warn and r.id == rule and not errors for r in REGISTRY[name].rules) else errors
    found = [d for d in expected_in if d.rule == identifier and (d.operand == operand or operand is None)]
    assert found, [d.render() for d in errors + warnings]
    text = found[0].render()
    assert operand is None or operand in text
    assert limit in text

    errors, warnings = diagnose(name, good_target, **{**BASE[name], **good})
    assert [d.render() for d in errors + warnings] == []


# Predicates that no call reaches, because making such a tensor already raises; by instruction and rule.
UNREACHABLE = {("tensor_copy", "R6"): "AP.R12"}


@pytest.mark.parametrize("name", BASE)
def test_every_test_of_a_rule_has_a_row(name: str, call: Callable[..., Call]) -> None:
    """Not only every rule ID: each predicate of the record finds something in some row."""
    silent = {
        i: f"{r.id}: {r.text}"
        for i, r in enumerate(REGISTRY[name].rules)
        if r.kind == "violable" and (name, r.id) not in UNREACHABLE
    }
    for row in ROWS:
        if row[0] == name:
            bound = call(name, row[6] if len(row) > 6 else "trn2", **{**BASE[name], **row[4]})
            silent = {i: text for i, text in silent.items() if not REGISTRY[name].rules[i].test(bound)}
    assert list(silent.values()) == []


def test_findings_name_the_call(call: Callable[..., Call]) -> None:
    """Each finding names its instruction, a note describes the operand, and the target is told."""
    bound = call("reciprocal", "trn2", dst="sbuf float32[4,9]", data="sbuf float32[4,8]")
    errors, _ = check_call(bound)
    assert [d.rule for d in errors] == ["reciprocal.R1"]
    text = errors[0].render()
    for part in (
        "data has 8 elements per partition",
        "dst has 9",
        "(4, 8) against (4, 9)",
        "trn2",
        "sbuf float32[4, 8]",
    ):
        assert part in text
