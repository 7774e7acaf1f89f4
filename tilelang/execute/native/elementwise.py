"""Native bodies of copies and element-wise instructions: micro-op pipelines."""

from __future__ import annotations

from tilelang.execute import layout
from tilelang.execute.native.pipe import Pipe
from tilelang.execute.native.template import Lowering, native
from tilelang.ir.tensor import NkiTensor
from tilelang.isa import arithmetic
from tilelang.isa.copies import constant_bits
from tilelang.isa.elementwise import exact_integers
from tilelang.isa.operators import OPERATORS

__all__ = ["apply_slot", "read_integer", "write_integer"]


def read_integer(pipe: Pipe, register: int, name: str, columns: int = 0) -> None:
    """Integer operand `name` as 32-bit integers, extended by its own sign."""
    fmt = pipe.lowering.fmt(name)
    words = pipe.lowering.operand(name)
    add = pipe.add_columns if columns else pipe.add
    add(*layout.read_integer(register, fmt.name, fmt.itemsize, words, columns), owner=name)


def read_bits(pipe: Pipe, register: int, name: str, columns: int = 0) -> None:
    """Operand `name` as zero-extended raw bits."""
    fmt = pipe.lowering.fmt(name)
    add = pipe.add_columns if columns else pipe.add
    add(*layout.read_bits(register, fmt.itemsize, pipe.lowering.operand(name), columns), owner=name)


def write_integer(pipe: Pipe, register: int, name: str = "dst", *, saturate: bool = False) -> None:
    """32-bit integers into integer operand `name`."""
    fmt = pipe.lowering.fmt(name)
    words = pipe.lowering.operand(name)
    pipe.add(*layout.write_integer(register, fmt.name, fmt.itemsize, words, saturate), owner=name)


@native("tensor_tensor")
def _tensor_tensor(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "data1", "data2")
    bitvec = OPERATORS[call.op].kind == "bitvec"
    if bitvec or exact_integers(call):
        for register, name in enumerate(("data1", "data2")):
            (read_bits if bitvec else read_integer)(pipe, register, name)
        first, second = call.dtype("data1"), call.dtype("data2")
        if not bitvec and first != second:
            pipe.op(f"integer.{call.op}.mixed.{first}.{second}", 2, 0, 1)
        else:
            _integer_op(pipe, call.op, first, 2, 0, 1, lowering.fmt("data1").itemsize, "tt")
        write_integer(pipe, 2)
    else:
        pipe.read(0, "data1")
        pipe.read(1, "data2")
        pipe.produce(f"binary.{call.op}.tt", 2, 0, 1)
    pipe.finish()


def _integer_op(pipe: Pipe, op: str, dtype: str, dst: int, a: int, b: int, size: int, form: str) -> None:
    """One integer operator. Bitvec operators work on zero-extended bits; a shift by the item size or more gives 0
    once the result is cut to size.
    """
    unsigned = OPERATORS[op].kind == "bitvec" or dtype != "int32"
    kind = "uint32" if unsigned else "int32"
    if op == "invert":
        pipe.op(f"integer.invert.{kind}", dst, a)
    else:
        pipe.op(f"integer.{op}.{kind}.{form}", dst, a, b)


@native("tensor_copy")
def _tensor_copy(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "src")
    if call.dtype("dst") == call.dtype("src"):
        size = lowering.fmt("src").itemsize
        pipe.add(*layout.read_items(0, size, lowering.operand("src")), owner="src")
        pipe.add(*layout.write_items(0, size, lowering.operand("dst")), owner="dst")
        pipe.finish(item=max(4, size))
        return
    pipe.read(0, "src")
    pipe.write(0)
    pipe.finish()


@native("memset")
def _memset(lowering: Lowering) -> None:
    call = lowering.call
    fmt = lowering.fmt("dst")
    pipe = Pipe(lowering)
    pipe.bits(0, fmt.itemsize, constant_bits(call.value, call.dtype("dst"), fmt.name))
    pipe.add(*layout.write_items(0, fmt.itemsize, lowering.operand("dst")), owner="dst")
    pipe.finish(item=max(4, fmt.itemsize))


def apply_slot(pipe: Pipe, dst: int, src: int, column: int, op: str, operand: str, reverse: bool) -> None:
    """`dst = op(src, operand)` with a per-partition operand read into register `column`; swapped when `reverse`."""
    if OPERATORS[op].arity == 1:
        pipe.op(f"unary.{op}", dst, src)
        return
    pipe.vector(column, operand)
    pipe.op(f"binary.{op}.vt" if reverse else f"binary.{op}.tv", dst, *((column, src) if reverse else (src, column)))


@native("tensor_scalar")
def _tensor_scalar(lowering: Lowering) -> None:
    call = lowering.call
    slots = [(call.op0, "operand0", call.reverse0)]
    if call.op1 is not None:
        slots.append((call.op1, "operand1", call.reverse1))
    pipe = Pipe(lowering, "data")
    if OPERATORS[call.op0].kind == "bitvec" or arithmetic.exact_integers(call):
        _integer_slots(pipe, slots)
        return
    pipe.read(0, "data")
    for number, (op, operand, reverse) in enumerate(slots):
        last = number == len(slots) - 1
        column = 3 + number
        if OPERATORS[op].arity == 2:
            pipe.vector(column, operand)
        bound = last and pipe.bind(number + 1)
        if OPERATORS[op].arity == 1:
            pipe.op(f"unary.{op}", number + 1, number)
        elif reverse:
            pipe.op(f"binary.{op}.vt", number + 1, column, number)
        else:
            pipe.op(f"binary.{op}.tv", number + 1, number, column)
        if last and not bound:
            pipe.write(number + 1)
    pipe.finish()


def _integer_slots(pipe: Pipe, slots: list[tuple[str, str, bool]]) -> None:
    lowering = pipe.lowering
    size = lowering.fmt("data").itemsize
    bitvec = OPERATORS[slots[0][0]].kind == "bitvec"
    (read_bits if bitvec else read_integer)(pipe, 0, "data")
    for number, (op, operand, reverse) in enumerate(slots):
        column = 3 + number
        if op != "invert":
            value = lowering.call.values[operand]
            if isinstance(value, NkiTensor):
                (read_bits if bitvec else read_integer)(pipe, column, operand, columns=1)
            else:
                pattern = int(value or 0) % (1 << (8 * size))
                pipe.add_columns(layout.fill(column, 4, pattern, columns=1)._replace(operands=[]))
        a, b, form = (column, number, "vt") if reverse else (number, column, "tv")
        _integer_op(pipe, op, lowering.call.dtype("data"), number + 1, a, b, size, form)
        if bitvec and size < 4 and number == 0 and len(slots) > 1 and op in ("invert", "left_shift"):
            # Bits above the item would shift back in.
            pipe.add_columns(layout.fill(7, 4, (1 << (8 * size)) - 1, columns=1)._replace(operands=[]))
            pipe.op("integer.bitwise_and.uint32.tv", 6, 1, 7)
            pipe.op("integer.bitwise_or.uint32.tt", 1, 6, 6)
    write_integer(pipe, len(slots))
    pipe.finish()


@native("reciprocal")
def _reciprocal(lowering: Lowering) -> None:
    pipe = Pipe(lowering, "data")
    pipe.read(0, "data")
    pipe.produce("unary.reciprocal", 1, 0)
    pipe.finish()
