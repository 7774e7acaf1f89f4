"""Registers and device scalars refuse to be Python numbers and emit their arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir import hooks
from tilelang.ir.scalars import NkiScalar, VirtualRegister


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any]]:
    """Operations emitted through `hooks.scalar_op`."""
    log: list[tuple[str, Any, Any]] = []

    def emit(op: str, left: Any, right: Any) -> NkiScalar:
        log.append((op, left, right))
        dtype = left.dtype if isinstance(left, NkiScalar) else right.dtype
        return NkiScalar(len(log), dtype)

    monkeypatch.setattr(hooks, "scalar_op", emit)
    return log


@pytest.mark.parametrize("make", [VirtualRegister, lambda: NkiScalar(0)], ids=["register", "scalar"])
@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (int, "nl.fori_loop"),
        (float, "scalar_offset"),
        (range, "nl.fori_loop"),
        (lambda x: [0, 1][x], "select"),
        (bool, "nl.while_loop"),
        (lambda x: 1 if x else 0, "nl.while_loop"),
    ],
)
def test_not_python_numbers(make: Callable[[], Any], use: Callable[[Any], Any], hint: str) -> None:
    with pytest.raises(TypeError, match=hint) as caught:
        use(make())
    assert caught.value.rule in ("reg.R3", "FE.R3")  # type: ignore[attr-defined]


def test_register_operators_name_the_replacement() -> None:
    register = VirtualRegister(0)
    for compute in (lambda: register + 1, lambda: 2 * register, lambda: -register, lambda: register // 2):
        with pytest.raises(TileTypeError, match="NkiScalar") as caught:
            compute()
        assert caught.value.rule == "reg.R3"
    for compare in (
        lambda: register < 3,
        lambda: register == 3,
        lambda: operator.ge(3, register),
        lambda: register != 0.5,
    ):
        with pytest.raises(TileTypeError, match="comparison"):
            compare()


def test_registers_compare_by_identity_with_other_objects() -> None:
    register, other = VirtualRegister(0), VirtualRegister(0)
    assert register == register and register != other and register != None  # noqa: E711
    assert len({register, other}) == 2 and [other, register].index(register) == 1
    assert VirtualRegister(1, frozen=True).frozen and repr(VirtualRegister(1, True)) == "VirtualRegister(frozen=True)"


def test_register_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    register = VirtualRegister(0)
    monkeypatch.setattr(hooks, "register_truth", lambda asked: asked is register)
    assert bool(register) and not VirtualRegister(0)
    monkeypatch.setattr(hooks, "register_op", lambda op, left, right: (op, left, right))
    assert register * 4 == ("multiply", register, 4) and 1 - register == ("subtract", 1, register)
    assert -register == ("subtract", 0, register)
    with pytest.raises(TileTypeError, match="operator % of a register"):
        _ = register % 4
    monkeypatch.setattr(hooks, "register_op", lambda op, left, right: None)
    with pytest.raises(TileTypeError, match="registers have no arithmetic"):
        _ = register + 4


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_scalar_arithmetic_is_emitted(emitted: list[tuple[str, Any, Any]], dtype: str) -> None:
    a, b = NkiScalar("a", dtype), NkiScalar("b", dtype)
    results = [a + b, a - 1, 2 * a, -a, np.int16(3) + a, a * np.int64(4)]
    assert [op for op, _, _ in emitted] == ["add", "subtract", "multiply", "subtract", "add", "multiply"]
    operands = [(left, right) for _, left, right in emitted]
    expected = [(a, b), (a, 1), (2, a), (0, a), (3, a), (a, 4)]
    assert all(x is y or (type(x) is int and x == y) for p, q in zip(operands, expected) for x, y in zip(p, q))
    assert all(result.dtype == dtype and not result.is_comparison for result in results)


def test_scalar_operand_rules(emitted: list[tuple[str, Any, Any]]) -> None:
    a, wide = NkiScalar(0), NkiScalar(0, "int64")
    with pytest.raises(TileTypeError, match="int32 and int64|int64 and int32") as caught:
        _ = a + wide
    assert caught.value.rule == "NkiScalar.R1"
    with pytest.raises(TileTypeError, match="NkiScalar"):
        _ = a + VirtualRegister(0)
    for right in (1.5, True, "1", None):
        with pytest.raises(TypeError):
            _ = a + right
    for compute in (operator.truediv, operator.floordiv, operator.mod, operator.lshift, operator.and_, pow):
        with pytest.raises(TileTypeError, match="nisa.scalar_load"):
            compute(a, 2)
    assert not emitted


@pytest.mark.parametrize(("dtype", "bits"), [("int32", 32), ("int64", 64)])
def test_constants_must_fit(emitted: list[tuple[str, Any, Any]], dtype: str, bits: int) -> None:
    scalar = NkiScalar(0, dtype)
    top = 2 ** (bits - 1)
    for legal in (top - 1, -top):
        _ = scalar + legal
    for broken in (top, -top - 1):
        with pytest.raises(TileValueError, match=str(broken)) as caught:
            _ = broken - scalar
        assert caught.value.rule == "NkiScalar.R6"
    assert len(emitted) == 2


COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_cannot_be_consumed(
    emitted: list[tuple[str, Any, Any]], compare: Callable[[Any, Any], Any]
) -> None:
    scalar = NkiScalar(0)
    result = compare(scalar, 3)
    assert isinstance(result, NkiScalar) and result.is_comparison and result.dtype == "int32"
    uses = (
        lambda: bool(result),
        lambda: result + 1,
        lambda: scalar + result,
        lambda: compare(result, 1),
        lambda: compare(scalar, result),
        lambda: -result,
        lambda: int(result),
    )
    for use in uses:
        with pytest.raises(TileTypeError):
            use()
    with pytest.raises(TileTypeError, match="comparison") as caught:
        result.require_value("scalar_store")
    assert caught.value.rule == "NkiScalar.R3" and "scalar_store" in str(caught.value)
    with pytest.raises(TileTypeError, match="int64"):
        compare(NkiScalar(0, "int64"), 3)
    assert not emitted


def test_scalars_and_other_objects() -> None:
    scalar = NkiScalar(0)
    assert (scalar == None) is False and (scalar != "x") is True  # noqa: E711
    assert len({scalar, NkiScalar(0)}) == 2
    assert repr(NkiScalar(0, "int64")) == "NkiScalar(int64)" and "comparison" in repr(scalar < 1)
    with pytest.raises(TileTypeError, match="float32"):
        NkiScalar(0, "float32")
    with pytest.raises(TileTypeError, match="inside a kernel"):
        _ = scalar + 1
