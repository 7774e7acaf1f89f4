"""Each instruction has a row in the conformance table; the oracles it names exist; docs/conformance.md is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance import table
from tests.conformance.oracles import ELSEWHERE, ORACLES

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs" / "conformance.md"


def test_every_instruction_has_a_row() -> None:
    published = {line.split("|")[1].strip() for line in PUBLISHED.read_text().splitlines() if line.startswith("| ")}
    for name in table.instructions():
        assert name in published, name
        assert (name in ORACLES) != (name in ELSEWHERE), name
        assert name in table.BASE or name in ELSEWHERE, name


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_other_oracles_exist(name: str) -> None:
    assert re.search(rf"\b{name}\b", (ROOT / ELSEWHERE[name]).read_text())


@pytest.mark.slow
def test_the_published_table_is_current() -> None:
    wrong: list[str] = []
    found = table.document(table.instructions(), wrong.append)
    assert wrong == []
    assert PUBLISHED.read_text() == found
