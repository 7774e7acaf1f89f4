"""Settings of the whole suite: hypothesis profiles, and goldens that change only when asked to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# `ci`: the same examples every time, at any speed. `dev`: new ones each run, with the blob that replays a failure.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites the files under tests/golden that differ."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files that differ")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`golden(text)` compares `text` with tests/golden/<test file>/<test name>.txt; a missing file is a failure."""
    name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_")
    path = GOLDEN / Path(str(request.node.path)).stem / f"{name}.txt"

    def compare(text: str) -> None:
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path.relative_to(GOLDEN.parent)} is missing; --update-golden writes it"
        assert text == path.read_text(encoding="utf-8")

    return compare
