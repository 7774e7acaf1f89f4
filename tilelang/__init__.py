"""tilelang: write Trainium kernels with the public NKI names; trace, check and run them on any CPU, bit for bit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelang.driver import compile, jit, launch, simulate

__version__ = "0.1.0"
__all__ = ["__version__", "compile", "jit", "launch", "simulate"]

_LAZY = dict.fromkeys(("compile", "jit", "launch", "simulate"), "tilelang.driver")
_MODULES = ("collectives", "isa", "language", "nki")


def _refuse_namesake() -> None:
    """Raise ImportError when the other project distributed as `tilelang` is installed: both own this package."""
    from pathlib import Path

    for folder in sys.path:
        for info in Path(folder or ".").glob("tilelang-*.dist-info"):
            raise ImportError(
                f"tilelang {info.name.removeprefix('tilelang-').removesuffix('.dist-info')} is installed here: another "
                "project that provides the package `tilelang`, as tilelang-trn does. The two cannot share an "
                "environment: uninstall one (pip uninstall tilelang), or use an environment of its own"
            )


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LAZY and name not in _MODULES:
        raise AttributeError(f"module 'tilelang' has no attribute {name!r}")
    _refuse_namesake()
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    return import_module(f"tilelang.{name}")
