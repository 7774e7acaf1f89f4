"""The package `nki`, as kernels import it: `import tilelang.nki` makes `import nki` and its modules mean tilelang.

A `nki` or `neuronxcc` that is already imported or installed is not shadowed: the import then raises ImportError, unless
the environment variable TILELANG_SHADOW_NKI is 1. Importing again is harmless.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from tilelang import _refuse_namesake, beta1, collectives, isa, language
from tilelang.driver import jit, simulate
from tilelang.errors import TileUnsupportedError
from tilelang.nki import compiler, dtype, isa_constants, language_constants, typing

__all__ = [
    "baremetal",
    "benchmark",
    "collectives",
    "compiler",
    "cpu_simulate",
    "dtype",
    "install",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate",
    "simulate_kernel",
    "typing",
]

_refuse_namesake()
cpu_simulate = simulate

_MODULES: dict[str, ModuleType] = {
    "nki": sys.modules[__name__],
    "nki.collectives": collectives,
    "nki.compiler": compiler,
    "nki.dtype": dtype,
    "nki.isa": isa,
    "nki.isa.constants": isa_constants,
    "nki.language": language,
    "nki.language.constants": language_constants,
    "nki.typing": typing,
    **beta1.modules(typing),
}


def _removed(name: str, replacement: str) -> Callable[..., NoReturn]:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise TileUnsupportedError(f"nki.{name} was removed from NKI", hint=replacement)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Removed from NKI: raises NotImplementedError. {replacement[0].upper()}{replacement[1:]}."
    return function


baremetal = _removed("baremetal", "decorate with nki.jit and call the kernel with NumPy arrays")
benchmark = _removed("benchmark", "decorate with nki.jit; tilelang profile estimates device times")
profile = _removed("profile", "decorate with nki.jit; tilelang profile estimates device times")
simulate_kernel = _removed("simulate_kernel", "call nki.simulate(kernel)(*args)")


def _foreign(name: str) -> str | None:
    """Where a package `name` that is not this one comes from; None when there is none."""
    module = sys.modules.get(name)
    if module is not None:
        ours = module is _MODULES.get(name)
        return None if ours else f"imported from {getattr(module, '__file__', None) or 'memory'}"
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    # A directory without __init__.py that happens to bear the name is no package of kernels.
    return f"installed at {spec.origin}" if spec is not None and spec.origin is not None else None


def install(force: bool = False) -> None:
    """Make `nki` and its modules mean tilelang in this process.

    Raises ImportError when another `nki` or `neuronxcc` is imported or installed, unless `force` is True or the
    environment variable TILELANG_SHADOW_NKI is 1. The import of this module calls it; call it again to take the names
    back from a package that was imported later.
    """
    if not force and os.environ.get("TILELANG_SHADOW_NKI") != "1":
        for name in ("nki", "neuronxcc"):
            place = _foreign(name)
            if place is not None:
                raise ImportError(
                    f"the package {name!r} is {place}; tilelang.nki does not shadow it. "
                    "Set the environment variable TILELANG_SHADOW_NKI=1 to use tilelang in its place."
                )
    for name in [name for name in sys.modules if name.partition(".")[0] in ("nki", "neuronxcc")]:
        del sys.modules[name]
    sys.modules.update(_MODULES)


vars(isa)["constants"] = isa_constants
vars(language)["constants"] = language_constants
install()
