"""tilelang: write Trainium kernels with the public NKI names; trace, check and run them on any CPU, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelang.driver import compile, jit, simulate

__version__ = "0.1.0"
__all__ = ["__version__", "compile", "jit", "simulate"]

_LAZY = {"jit": "tilelang.driver", "simulate": "tilelang.driver", "compile": "tilelang.driver"}
_MODULES = ("language", "isa", "nki")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MODULES:
        return import_module(f"tilelang.{name}")
    raise AttributeError(f"module 'tilelang' has no attribute {name!r}")
