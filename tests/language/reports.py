"""Helpers of the tests of field reports."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilelang import simulate
from tilelang.errors import TileError

MODES = ("native", "reference", "debug")


def refused(kernel: Callable[..., Any], *args: Any, **options: Any) -> str:
    """What the error of `kernel` says, the same in every mode; it points into the file of the caller."""
    texts = []
    for mode in MODES:
        with pytest.raises(TileError) as caught:
            simulate(kernel, mode=mode, **options)(*args)
        texts.append(str(caught.value))
    assert len(set(texts)) == 1, texts
    assert Path(sys._getframe(1).f_code.co_filename).name in texts[0]
    return texts[0]
