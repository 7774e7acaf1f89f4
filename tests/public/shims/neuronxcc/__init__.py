"""The few names of the compiler package that the tests of aws-neuron/nki-library import, over tilelang.

Importing it registers `neuronxcc.nki.typing` and `neuronxcc.starfish.support.dtype`.
"""

from __future__ import annotations

import sys
from types import ModuleType

import neuron_dtypes

from tilelang.nki import typing


def _package(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
    return module


nki = _package(f"{__name__}.nki")
nki.typing = typing  # type: ignore[attr-defined]
sys.modules[f"{__name__}.nki.typing"] = typing
starfish = _package(f"{__name__}.starfish")
starfish.support = _package(f"{__name__}.starfish.support")  # type: ignore[attr-defined]
starfish.support.dtype = neuron_dtypes  # type: ignore[attr-defined]
sys.modules[f"{__name__}.starfish.support.dtype"] = neuron_dtypes
