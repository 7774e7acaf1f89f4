"""What tensors, registers and scalars ask of the layers above: functions that those layers put here.

The IR holds no data and emits no instruction. Each hook is a module attribute, None until a layer sets it (`warn` has a
default), and is looked up at the call. Hooks are set once per process; what depends on the kernel being traced they
read from `tilelang.ir.context`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tilelang.errors import TileWarning
from tilelang.ir.context import active_builder

__all__ = [
    "assign",
    "clamp_slices",
    "reader",
    "register_op",
    "register_truth",
    "scalar_op",
    "tensor_op",
    "value_reader",
    "warn",
]

value_reader: Callable[[Any], Any] | None = None
"""`value_reader(tensor_or_register)`: the NumPy array of a view's current content in its host dtype, or a register's
int; raises TileTypeError in modes where content does not exist yet. For tools; kernels in debug mode have their own."""

assign: Callable[[Any, Any], None] | None = None
"""`assign(view, value)`: what `t[key] = value` means. Set by the language layer."""

tensor_op: Callable[[str, Any, Any], Any] | None = None
"""`tensor_op(symbol, left, right)`: result of an arithmetic operator on tensors. Set by the legacy dialect only."""

scalar_op: Callable[[str, Any, Any], Any] | None = None
"""`scalar_op(op, left, right)`: emits `add`, `subtract` or `multiply` of NkiScalars and ints, returns the new
NkiScalar. Set by the builder."""

register_op: Callable[[str, Any, Any], Any] | None = None
"""`register_op(op, left, right)`: the same for VirtualRegisters, an extension that device compilers refuse; None where
it does not hold (only the rules of versions before 0.7 have it). Set by the language layer."""

register_truth: Callable[[Any], bool] | None = None
"""`register_truth(register)`: truth value of a register, for `while reg:` of older sources. Set by the builder."""

clamp_slices: bool = False
"""True: a slice that ends beyond its dim is cut there with a warning, as NumPy does; False: it is an IndexError."""


def reader() -> Callable[[Any], Any] | None:
    """What shows contents to this thread: the debug executor of the kernel it runs, else `value_reader`."""
    return getattr(active_builder(), "value_reader", None) or value_reader


def _warn(message: str, rule: str | None = None, hint: str | None = None) -> None:
    text = f"{rule}: {message}" if rule else message
    warnings.warn(f"{text}\n  hint: {hint}" if hint else text, TileWarning, stacklevel=3)


warn: Callable[[str, str | None, str | None], None] = _warn
"""`warn(message, rule, hint)`: reports what is legal here and doubtful on a device. The builder adds the source line,
or raises in strict mode."""
