"""What the tests of field reports share."""

from __future__ import annotations

import pytest

from tests.language.reports import MODES


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Each mode in turn."""
    return str(request.param)
