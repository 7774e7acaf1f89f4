"""The public function of an instruction, made from its record: right signature, help text, and a call of the current
builder.
"""

from __future__ import annotations

import inspect
import linecache
from typing import TYPE_CHECKING, Any

from tilelang.ir import context

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilelang.isa.spec import InstructionSpec

__all__ = ["make_public"]


def _default(parameter: inspect.Parameter, namespace: dict[str, Any]) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    key = f"_default_{parameter.name}"
    namespace[key] = parameter.default
    return f"{parameter.name}={key}"


def make_public(spec: InstructionSpec) -> Callable[..., Any]:
    """A function with the signature of `spec` that hands its arguments to the builder of the kernel being traced.

    The function is generated, so that Python itself reports missing and unknown arguments and a call costs no binding.
    """
    namespace: dict[str, Any] = {"_spec": spec, "_current": context.current_builder, "_legacy": _accept_legacy}
    parameters = [_default(p, namespace) for p in spec.signature.parameters.values()]
    arguments = ", ".join(spec.names) + ","
    has_name = "name" in spec.signature.parameters
    extra, check = ("", "")
    if spec.legacy:
        extra, check = (", **_old", f"    if _old: _legacy(_spec, _old, {spec.names[0]})\n")
    source = (
        f"def {spec.name}({', '.join(parameters)}{extra}):\n{check}"
        f"    return _current().emit(_spec, ({arguments}), {'name' if has_name else 'None'})\n"
    )
    filename = f"{__file__}:{spec.name}"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    function: Callable[..., Any] = namespace[spec.name]
    function.__doc__ = spec.doc
    function.__module__ = "tilelang.isa"
    function.__qualname__ = spec.name
    function.__signature__ = spec.signature  # type: ignore[attr-defined]
    function.spec = spec  # type: ignore[attr-defined]
    return function


def _accept_legacy(spec: InstructionSpec, given: dict[str, Any], first: Any) -> None:
    """Warn about harmless keywords of older versions; raise TypeError for unknown or meaningful ones."""
    import warnings

    from tilelang.dtypes import format_of
    from tilelang.errors import TileTypeError

    for key, value in given.items():
        if key not in spec.legacy:
            raise TileTypeError(f"{spec.name}() got an unexpected keyword argument {key!r}")
        if key == "dtype" and value is not None:
            format_of(value)
        elif value is not None:
            hint = "slice the operands instead"
            raise TileTypeError(f"{spec.name}() got an unexpected keyword argument {key!r}", hint=hint)
        warnings.warn(
            f"{spec.name}({key}=) was removed from NKI and has no effect; drop it"
            + (": the dtype of dst decides" if key == "dtype" else ""),
            DeprecationWarning,
            stacklevel=3,
        )
