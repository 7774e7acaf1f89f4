"""Device integers: `VirtualRegister` and `NkiScalar`. Their values exist only when the program runs.

Both refuse every use as a Python number, naming the replacement. Operators of `NkiScalar` are emitted through
`hooks.scalar_op`. Sources: isa.md section 16, nki-0.7.md section 2.2, language.md section 4.2.
"""

from __future__ import annotations

from operator import index as as_index
from typing import Any, NoReturn

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir import hooks
from tilelang.ir.operators import DeviceOperators

__all__ = ["NkiScalar", "VirtualRegister", "whole"]

_WIDTHS = {"int32": 32, "int64": 64}
_OPERATIONS = {"+": "add", "-": "subtract", "*": "multiply"}
_CONDITION_HINT = "compute the condition into a tensor (nl.less, nisa.tensor_scalar) and load it into a register"
_TRUTH_HINT = "use nl.while_loop(register, body) or a predicated instruction (nisa.tensor_copy_predicated)"


class VirtualRegister(DeviceOperators):
    """A 32-bit register of the sequencers, read when the consuming instruction runs.

    `state` is the register's number in the kernel `owner`; `frozen` is True for loop induction
    registers, which no instruction may write. Registers may bound and steer device loops and appear as
    `.ap(scalar_offset=)` or as an index; every use as a Python number raises TileTypeError (reg.R3). `==` with
    anything but a number compares identities.
    """

    __slots__ = ("__weakref__", "frozen", "owner", "state")

    def __init__(self, state: Any = None, frozen: bool = False, owner: int = 0) -> None:
        self.state = state
        self.frozen = frozen
        self.owner = owner

    def __bool__(self) -> bool:
        if hooks.register_truth is not None:
            return hooks.register_truth(self)
        raise TileTypeError("a register has no truth value while the kernel is traced", rule="reg.R3", hint=_TRUTH_HINT)

    def __int__(self) -> int:
        _refuse_number("a register", "reg.R3")

    def __index__(self) -> int:
        _refuse_number("a register", "reg.R3")

    def __float__(self) -> float:
        _refuse_number("a register", "reg.R3")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, float, NkiScalar)):
            self._compare("==", other)
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return _render(self, "VirtualRegister(frozen=True)" if self.frozen else "VirtualRegister()")

    def __neg__(self) -> Any:
        return self._operate("-", 0, self)

    def _operate(self, symbol: str, left: Any, right: Any) -> Any:
        if symbol in _OPERATIONS and hooks.register_op is not None:
            result = hooks.register_op(_OPERATIONS[symbol], left, right)
            if result is not None:
                return result
        raise TileTypeError(
            f"operator {symbol} of a register: registers have no arithmetic",
            rule="reg.R3",
            hint="use an NkiScalar (nisa.scalar_load, the argument of an nl.fori_loop body), which has + - *",
        )

    def _compare(self, symbol: str, other: Any) -> NoReturn:
        raise TileTypeError(
            f"comparison {symbol} of a register: its value exists only on the device",
            rule="reg.R3",
            hint=_CONDITION_HINT,
        )


class NkiScalar(DeviceOperators):
    """One device integer, immutable: `+`, `-`, `*` and unary `-` give new scalars that wrap at the width of `dtype`.

    `state` is its number in the kernel `owner`; `dtype` is "int32" (default) or "int64"; `is_comparison` marks the
    result of a comparison, which nothing may consume (NkiScalar.R3). Operands are ints that fit the width or scalars of
    the same dtype. Kernels get scalars from `nisa.scalar_load` and `nl.fori_loop`; they do not build them.
    """

    __slots__ = ("__weakref__", "dtype", "is_comparison", "owner", "state")

    def __init__(self, state: Any, dtype: Any = None, is_comparison: bool = False, owner: int = 0) -> None:
        name = "int32" if dtype is None else str(dtype)
        if name not in _WIDTHS:
            raise TileTypeError(f"{name} is not a scalar dtype; scalars are int32 or int64", rule="scalar_load.R1")
        self.state = state
        self.owner = owner
        self.dtype = name
        self.is_comparison = is_comparison

    def require_value(self, use: str) -> NkiScalar:
        """This scalar, to be consumed by `use`. Raises TileTypeError for the result of a comparison."""
        if self.is_comparison:
            raise TileTypeError(
                f"{use} takes an integer, not the result of a scalar comparison, which nothing may consume",
                rule="NkiScalar.R3",
                hint=_CONDITION_HINT,
            )
        return self

    def __bool__(self) -> bool:
        self.require_value("a truth test")
        raise TileTypeError(
            "a device scalar has no truth value while the kernel is traced", rule="FE.R3", hint=_TRUTH_HINT
        )

    def __int__(self) -> int:
        _refuse_number("a device scalar", "FE.R3")

    def __index__(self) -> int:
        _refuse_number("a device scalar", "FE.R3")

    def __float__(self) -> float:
        _refuse_number("a device scalar", "FE.R3")

    # The documented results of == and != are scalars, not bools.
    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return _render(self, f"NkiScalar({self.dtype}{', comparison' if self.is_comparison else ''})")

    def __neg__(self) -> NkiScalar:
        return self._operate("-", 0, self)

    def _operate(self, symbol: str, left: Any, right: Any) -> Any:
        if symbol not in _OPERATIONS:
            raise TileTypeError(
                f"operator {symbol} of a device scalar is not available; scalars have + - * and unary -",
                rule="NkiScalar.R1",
                hint="compute it in a tensor and load the result with nisa.scalar_load",
            )
        use = f"operator {symbol}"
        operands = [self._operand(use, operand) for operand in (left, right)]
        if any(operand is NotImplemented for operand in operands):
            return NotImplemented
        if hooks.scalar_op is None:
            raise TileTypeError(f"{use} of device scalars works only inside a kernel", rule="NkiScalar.R1")
        return hooks.scalar_op(_OPERATIONS[symbol], *operands)

    def _compare(self, symbol: str, other: Any) -> Any:
        operand = self._operand(f"comparison {symbol}", other)
        self.require_value(f"comparison {symbol}")
        if operand is NotImplemented:
            return NotImplemented
        if self.dtype == "int64":
            raise TileTypeError(
                f"comparison {symbol} of int64 scalars is not available", rule="NkiScalar.R3", hint=_CONDITION_HINT
            )
        return NkiScalar((symbol, self, operand), self.dtype, is_comparison=True)

    def _operand(self, use: str, operand: Any) -> Any:
        """`operand` as a scalar of this dtype or an int that fits it; NotImplemented for other kinds."""
        if isinstance(operand, NkiScalar):
            operand.require_value(use)
            if operand.dtype != self.dtype:
                raise TileTypeError(
                    f"{use} between scalars of {self.dtype} and {operand.dtype}",
                    rule="NkiScalar.R1",
                    hint="load both with the same dtype",
                )
            return operand
        value = whole(operand)
        if value is None:
            return NotImplemented
        top = 1 << (_WIDTHS[self.dtype] - 1)
        if not -top <= value < top:
            raise TileValueError(f"{use}: {value} does not fit {self.dtype} ({-top}..{top - 1})", rule="NkiScalar.R6")
        return value


def _refuse_number(what: str, rule: str) -> NoReturn:
    raise TileTypeError(
        f"{what} is not a Python number: its value exists only on the device",
        rule=rule,
        hint="loop with nl.fori_loop(lower, upper, body) instead of range(); "
        "address with t.ap(..., scalar_offset=value) or t.select(dim, value) instead of int()",
    )


def _render(value: Any, plain: str) -> str:
    reader = hooks.reader()
    return plain if reader is None else f"{plain} = {reader(value)}"


def whole(value: Any) -> int | None:
    """`value` as an int; None for what is no integer known while tracing (bool, floats, arrays, registers, …)."""
    if isinstance(value, (bool, type, VirtualRegister, NkiScalar)):
        return None
    try:
        return as_index(value)
    except TypeError:
        return None
