"""Scalar registers of the sequencers and the device scalars of NKI 0.7 (isa.md 16, nki-0.7.md 2.2)."""

from __future__ import annotations

import numpy as np

from tilelang.errors import TileRuleError, TileTypeError
from tilelang.ir.context import current_builder
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.params import Param
from tilelang.isa.rules import alias, semantic
from tilelang.isa.spec import Call, Finding, In, Out, Rule, instruction
from tilelang.isa.tile import Machine, Tile
from tilelang.numerics import casts

__all__ = [
    "MOVE",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "scalar_alu",
    "scalar_load",
    "scalar_store",
    "width",
    "wrap",
]


def _register(value: object) -> object:
    if isinstance(value, NkiScalar) and value.is_comparison:
        raise TileTypeError("the result of comparing NkiScalars cannot be used", rule="NkiScalar.R3")
    if isinstance(value, (VirtualRegister, NkiScalar)):
        return value
    raise TileTypeError(
        f"expected a register, got {type(value).__name__}", rule="reg.R1", hint="make one with nisa.register_alloc()"
    )


def _immediate(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, NkiTensor):
        raise TileTypeError(
            "expected an int or a register, got a tensor", rule="register_move.R2", hint="use nisa.register_load"
        )
    return _register(value)


REGISTER = Param("register", _register)
SOURCE = Param("int or register", _immediate)
WORD = Param("add, subtract or multiply", lambda value: value)


def wrap(value: int, bits: int = 32) -> int:
    """`value` in two's complement of `bits` bits."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def width(register: VirtualRegister | NkiScalar) -> int:
    """Bits of the value that arithmetic leaves in `register`."""
    return 64 if isinstance(register, NkiScalar) and register.dtype == "int64" else 32


def _one_element(name: str) -> Rule:
    def test(call: Call) -> Finding | None:
        tensor = call.values[name]
        if tensor.size != 1:
            return Finding(
                f"{name} is {tensor.shape}; a register holds one element", name, "index it down to one element"
            )
        if tensor.buffer.value == "psum":
            return Finding(
                f"{name} is in PSUM; registers load from SBUF or HBM", name, "copy it to SBUF with nisa.tensor_copy"
            )
        return None

    return Rule("R2" if name == "src" else "R1", f"{name}: one element in SBUF or HBM", test)


def _width(name: str, rule: str) -> Rule:
    def test(call: Call) -> Finding | None:
        fmt = call.fmt(name)
        if fmt.itemsize > 4 or fmt.kind in ("packed", "scale"):
            return Finding(f"{name} is {fmt.name}; registers are 32 bits and hold integers or float32 values", name)
        return None

    return Rule(rule, f"{name}: at most 4 bytes", test)


def _value(machine: Machine, source: object) -> int:
    return source if isinstance(source, int) else machine.registers.get(source.state, 0)  # type: ignore[attr-defined]


@instruction(
    operands={},
    params=dict(dst=REGISTER, src=SOURCE),
    engines=("sequencer",),
    cost=lambda call: 64.0,
    accuracy="exact",
    rules=(
        alias("R1", "dst is a register that is not frozen (checked by nisa.register_move)"),
        alias("R2", "src is an int or a register (a tensor is a TypeError)"),
        semantic("reg.R4", "a register is read when the consuming instruction executes"),
        semantic("reg.R5", "a register never written reads 0"),
    ),
    name="register_move",
)
def _move(dst: VirtualRegister, src: int | VirtualRegister, *, machine: Machine) -> None:
    """`dst = src`: an int or another register, wrapped to 32 bits. Source: isa.md 16.2."""
    width = 64 if getattr(dst, "dtype", None) == "int64" else 32
    machine.registers[dst.state] = wrap(_value(machine, src), width)


MOVE = _move.spec  # type: ignore[attr-defined]


@instruction(
    operands=dict(src=In()),
    params=dict(dst=REGISTER),
    engines=("sequencer",),
    cost=lambda call: 64.0,
    lanewise=False,
    accuracy="exact; floats are rounded to the nearest int32",
    rules=(alias("R1", "dst is a register that is not frozen"), _one_element("src"), _width("src", "R3")),
    name="register_load",
)
def _load(dst: VirtualRegister, src: Tile, *, machine: Machine) -> None:
    """`dst = src[0]`: one element of SBUF or HBM, sign- or zero-extended. Source: isa.md 16.3."""
    bits = casts.encode(src.f32(), "int32") if src.fmt.is_float else src.bits()
    machine.registers[dst.state] = int(bits.ravel()[0])


@instruction(
    operands=dict(dst=Out()),
    params=dict(src=REGISTER),
    engines=("sequencer",),
    cost=lambda call: 64.0,
    lanewise=False,
    accuracy="exact; narrower integers saturate",
    rules=(_one_element("dst"), alias("R2", "src is a register"), _width("dst", "R3")),
    name="register_store",
)
def _store(dst: Tile, src: VirtualRegister, *, machine: Machine) -> None:
    """`dst[0] = src`, converted to the dtype of `dst`; narrower integers saturate, 32-bit ones keep the bits. Source:
    isa.md 16.4.
    """
    value = _value(machine, src)
    if dst.fmt.is_float:
        dst.store(np.array([value], np.float64).astype(np.float32))
    elif dst.fmt.itemsize < 4:
        low, high = (0, 1) if dst.fmt.kind == "bool" else (np.iinfo(dst.fmt.host).min, np.iinfo(dst.fmt.host).max)
        dst.store_bits(np.array([min(max(value, int(low)), int(high))]).astype(dst.fmt.carrier))
    else:
        dst.store_bits(np.array([value & 0xFFFFFFFF], np.uint32).view(dst.fmt.carrier))


def _not_frozen(register: object, instruction_name: str) -> None:
    if isinstance(register, VirtualRegister) and register.frozen:
        builder = current_builder()
        raise TileRuleError(
            f"{instruction_name}: dst is the induction variable of a loop, which cannot be written",
            rule="reg.R2",
            hint="copy it: r = nisa.register_alloc(); nisa.register_move(r, i)",
        ).at(builder.site(3))


def register_alloc(x: object = None) -> VirtualRegister:
    """A new scalar register: uninitialised (reads 0), or holding the int `x`, or loaded from the one-element tensor
    `x`.

    Raises TileTypeError for other kinds and TileRuleError when an int does not fit 32 bits. Source: isa.md 16.1.
    """
    builder = current_builder()
    if isinstance(x, bool) or not (x is None or isinstance(x, (int, NkiTensor, VirtualRegister))):
        raise TileTypeError(
            f"register_alloc: x must be None, an int or a one-element tensor, got {type(x).__name__}",
            rule="register_alloc.R1",
        ).at(builder.site(2))
    if isinstance(x, int) and not -(2**31) <= x < 2**32:
        raise TileRuleError(f"register_alloc: {x} does not fit 32 bits", rule="register_alloc.R2").at(builder.site(2))
    register: VirtualRegister = builder.new_register()
    if isinstance(x, NkiTensor):
        _load(register, x)
    elif x is not None:
        _move(register, x)
    return register


def register_move(dst: VirtualRegister, src: object = None, imm: int | None = None) -> object:
    """`dst = src` (int or register); `imm` is the older name of `src`. Source: isa.md 16.2."""
    _not_frozen(dst, "register_move")
    return _move(dst, imm if src is None else src)


def register_load(dst: VirtualRegister, src: NkiTensor) -> object:
    """`dst = src[0]` for a one-element tensor in SBUF or HBM. Source: isa.md 16.3."""
    _not_frozen(dst, "register_load")
    return _load(dst, src)


def register_store(dst: NkiTensor, src: VirtualRegister) -> object:
    """`dst[0] = src` for a one-element tensor in SBUF or HBM. Source: isa.md 16.4."""
    return _store(dst, src)


_SCALAR_DTYPES = ("int32", "int64")


def _scalar_dtype(name: str) -> Rule:
    def test(call: Call) -> Finding | None:
        if call.dtype(name) not in _SCALAR_DTYPES or call.values[name].size != 1:
            return Finding(f"{name} is {call.describe(name)}; expected one int32 or int64 element", name)
        if call.buffer(name) == "psum":
            return Finding(f"{name} is in PSUM; expected SBUF or HBM", name)
        return None

    return Rule("R1", f"{name}: 1x1 int32 or int64 in SBUF or HBM", test)


def _same_width(call: Call) -> Finding | None:
    if call.dtype("dst") in _SCALAR_DTYPES and call.dtype("dst") != call.value.dtype:
        return Finding(f"dst is {call.dtype('dst')}, value {call.value.dtype}; widths must be equal", "dst")
    return None


@instruction(
    operands=dict(src=In()),
    params=dict(dst=REGISTER),
    engines=("sequencer",),
    cost=lambda call: 64.0,
    lanewise=False,
    accuracy="exact",
    rules=(_scalar_dtype("src"),),
    name="scalar_load",
)
def _scalar_load(dst: NkiScalar, src: Tile, *, machine: Machine) -> None:
    """A device scalar from a 1x1 int32 or int64 tensor. Source: nki-0.7.md 2.2."""
    machine.registers[dst.state] = int(src.bits().ravel()[0])


def _scalar(value: object) -> object:
    if isinstance(value, NkiScalar):
        return _register(value)
    raise TileTypeError(
        f"expected an NkiScalar, got {type(value).__name__}",
        rule="scalar_store.R2",
        hint="write constants with nisa.memset",
    )


@instruction(
    operands=dict(dst=Out()),
    params=dict(value=Param("NkiScalar", _scalar)),
    engines=("sequencer",),
    cost=lambda call: 64.0,
    lanewise=False,
    accuracy="exact",
    rules=(
        _scalar_dtype("dst"),
        Rule("R1", "dst and value have the same width", _same_width),
        alias("R2", "value is an NkiScalar (anything else is a TypeError)"),
    ),
    name="scalar_store",
)
def _scalar_store(dst: Tile, value: NkiScalar, *, machine: Machine) -> None:
    """Write a device scalar to a 1x1 tensor of the same width. Source: nki-0.7.md 2.2."""
    dst.store_bits(np.array([machine.registers.get(value.state, 0)], np.int64).astype(dst.fmt.carrier))


scalar_store = _scalar_store


def scalar_load(src: NkiTensor) -> NkiScalar:
    """The single element of `src` (1x1, int32 or int64, SBUF or HBM) as an immutable device scalar. Source:
    nki-0.7.md 2.2.
    """
    builder = current_builder()
    result: NkiScalar = builder.new_scalar("int64" if getattr(src, "dtype", "") == "int64" else "int32")
    _scalar_load(result, src)
    return result


@instruction(
    operands={},
    params=dict(dst=REGISTER, op=WORD, a=SOURCE, b=SOURCE),
    engines=("sequencer",),
    cost=lambda call: 64.0,
    accuracy="exact, wrapping",
    rules=(
        alias("NkiScalar.R1", "operands of + - * have the same dtype (checked by the operators)"),
        semantic("NkiScalar.R2", "results wrap in two's complement at 32 or 64 bits"),
        alias("NkiScalar.R3", "comparisons give a value nothing may use"),
        alias("NkiScalar.R6", "an int operand fits the width"),
    ),
    name="scalar_alu",
)
def scalar_alu(dst: NkiScalar, op: str, a: int | NkiScalar, b: int | NkiScalar, *, machine: Machine) -> None:
    """`dst = a op b` on device scalars, wrapping at the width of `dst`: what the operators of NkiScalar (nki-0.7.md
    2.2) and, for older sources, of registers (language.md 4.2) emit.
    """
    left, right = _value(machine, a), _value(machine, b)
    result = {"add": left + right, "subtract": left - right, "multiply": left * right}[op]
    machine.registers[dst.state] = wrap(result, width(dst))
