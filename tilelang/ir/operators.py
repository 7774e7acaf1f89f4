"""Python operators as one call each: a mixin for the objects whose arithmetic happens on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["DeviceOperators"]

T = TypeVar("T")
_Method = Callable[[Any, Any], Any]


def _forward(symbol: str) -> _Method:
    def operator(self: DeviceOperators, other: Any) -> Any:
        return self._operate(symbol, self, other)

    return operator


def _reflected(symbol: str) -> _Method:
    def operator(self: DeviceOperators, other: Any) -> Any:
        return self._operate(symbol, other, self)

    return operator


def _comparison(symbol: str) -> _Method:
    def operator(self: DeviceOperators, other: Any) -> Any:
        return self._compare(symbol, other)

    return operator


class DeviceOperators:
    """Routes every binary operator to `_operate(symbol, left, right)` and every ordering to `_compare(symbol,
    other)`."""

    __slots__ = ()
    # NumPy scalars and arrays on the left leave the operation to the classes here.
    __array_ufunc__ = None

    # Copies of containers (copy.deepcopy, dataclasses.asdict) keep the device object they hold.
    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        return self

    def _operate(self, symbol: str, left: Any, right: Any) -> Any:
        raise NotImplementedError

    def _compare(self, symbol: str, other: Any) -> Any:
        raise NotImplementedError

    __add__, __radd__ = _forward("+"), _reflected("+")
    __sub__, __rsub__ = _forward("-"), _reflected("-")
    __mul__, __rmul__ = _forward("*"), _reflected("*")
    __truediv__, __rtruediv__ = _forward("/"), _reflected("/")
    __floordiv__, __rfloordiv__ = _forward("//"), _reflected("//")
    __mod__, __rmod__ = _forward("%"), _reflected("%")
    __pow__, __rpow__ = _forward("**"), _reflected("**")
    __matmul__, __rmatmul__ = _forward("@"), _reflected("@")
    __lshift__, __rlshift__ = _forward("<<"), _reflected("<<")
    __rshift__, __rrshift__ = _forward(">>"), _reflected(">>")
    __and__, __rand__ = _forward("&"), _reflected("&")
    __or__, __ror__ = _forward("|"), _reflected("|")
    __xor__, __rxor__ = _forward("^"), _reflected("^")
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")
