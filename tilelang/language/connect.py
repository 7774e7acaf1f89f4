"""Connects the IR to the kernel being traced: what scalar operators, `while register`, `t[…] = x`, warnings do."""

from __future__ import annotations

from typing import Any

from tilelang.errors import Diagnostic, TileRuleError, TileTypeError, TileWarning
from tilelang.ir import hooks
from tilelang.ir.context import active_builder, current_builder
from tilelang.ir.scalars import NkiScalar, VirtualRegister, whole
from tilelang.isa.registers import scalar_alu
from tilelang.language.common import deprecated
from tilelang.language.movement import assign

__all__ = ["connect"]

_warn_outside = hooks.warn


def _scalar_op(op: str, left: Any, right: Any) -> NkiScalar:
    dtype = left.dtype if isinstance(left, NkiScalar) else right.dtype
    result: NkiScalar = current_builder().new_scalar(dtype)
    scalar_alu(result, op, left, right)
    return result


def _register_op(op: str, left: Any, right: Any) -> VirtualRegister | None:
    """A new register for sources older than 0.7 (language.md 4.2), with a warning; None when 0.7 holds."""
    builder = active_builder()
    operands = [value if isinstance(value, VirtualRegister) else whole(value) for value in (left, right)]
    if builder is None or builder.nki == "0.7" or None in operands:
        return None
    _warn("registers have no arithmetic in device compilers", "reg.R3", "use an NkiScalar, which has + - *")
    result: VirtualRegister = builder.new_register()
    scalar_alu(result, op, *operands)
    return result


def _register_truth(register: Any) -> bool:
    if active_builder() is None:
        raise TileTypeError(
            "a register has no truth value outside a kernel",
            rule="reg.R3",
            hint="use nl.while_loop(register, body) or a predicated instruction (nisa.tensor_copy_predicated)",
        )
    truth: bool = current_builder().truth(register)
    deprecated("`while register:` was removed in NKI 0.7", "FE.R4", "use nl.while_loop(register, body)")
    return truth


def _warn(message: str, rule: str | None = None, hint: str | None = None) -> None:
    builder = active_builder()
    if builder is None:
        _warn_outside(message, rule, hint)
    elif builder.strict:
        raise TileRuleError(message, rule, hint).at(builder.site(2))
    else:
        builder.report(Diagnostic(message, rule=rule, hint=hint), builder.site(2), TileWarning)


def connect() -> None:
    """Set the hooks of `tilelang.ir.hooks` that belong to the language. Setting them again changes nothing."""
    hooks.scalar_op = _scalar_op
    hooks.register_op = _register_op
    hooks.register_truth = _register_truth
    hooks.assign = assign
    hooks.warn = _warn
