"""Native bodies of reductions, scans, searches, selections and index generators."""

from __future__ import annotations

from math import prod

from tilelang.execute import layout
from tilelang.execute.native.elementwise import read_bits, write_integer
from tilelang.execute.native.pipe import Pipe
from tilelang.execute.native.template import Lowering, native
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.isa.copies import constant_bits
from tilelang.isa.operators import OPERATORS
from tilelang.isa.select import number_bits
from tilelang.numerics import alu

__all__: list[str] = []


@native("tensor_reduce")
def _tensor_reduce(lowering: Lowering) -> None:
    call = lowering.call
    data = lowering.tensor("data")
    rank = len(data.shape)
    reduced = {a % rank for a in call.axis}
    inner = prod(data.shape[rank - len(reduced) :])
    pipe = Pipe(lowering, "data")
    bitvec = OPERATORS[call.op].kind == "bitvec"
    if bitvec:
        read_bits(pipe, 0, "data")
        steps, segment = layout.reduction(call.op, 1, 0, 5, inner, data.F, None, integer="uint32", block=pipe.block)
    else:
        pipe.read(0, "data")
        start = None if call.op == "subtract" else layout.float_bits(float(alu.identity(call.op)))
        steps, segment = layout.reduction(call.op, 1, 0, 5, inner, data.F, start, block=pipe.block)
    pipe.add(*steps)
    if bitvec:
        write_integer(pipe, 1)
    elif call.negate:
        pipe.constant(4, -1.0)
        pipe.op("binary.multiply.tv", 2, 1, 4)
        pipe.write(2)
    else:
        pipe.write(1)
    pipe.finish(like="data", segment=segment)


@native("tensor_tensor_scan")
def _scan(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "data0", "data1")
    pipe.read(0, "data0")
    pipe.read(1, "data1")
    pipe.vector(5, "initial")
    pipe.add(layout.scan(call.op0, call.op1, 2, 0, 1, 5, call.reverse0, call.reverse1))
    pipe.write(2)
    pipe.finish()


def _whole_row(lowering: Lowering, source: str) -> Pipe:
    pipe = Pipe(lowering, source)
    pipe.block = layout.WHOLE_ROW
    pipe.read(0, source)
    return pipe


@native("bn_stats")
def _bn_stats(lowering: Lowering) -> None:
    pipe = _whole_row(lowering, "data")
    pipe.op("bn_stats", 1, 0)
    pipe.add(layout.resize(6))
    pipe.write(1)
    pipe.finish(like="data")


@native("bn_aggr")
def _bn_aggr(lowering: Lowering) -> None:
    pipe = _whole_row(lowering, "data")
    pipe.op("bn_aggr", 1, 0)
    pipe.add(layout.resize(2))
    pipe.write(1)
    pipe.finish(like="data")


@native("max8")
def _max8(lowering: Lowering) -> None:
    pipe = _whole_row(lowering, "src")
    pipe.op("max8", 1, 0)
    pipe.add(layout.resize(8))
    pipe.write(1)
    pipe.finish(like="src")


@native("nc_find_index8")
def _find_index8(lowering: Lowering) -> None:
    pipe = _whole_row(lowering, "data")
    fmt = lowering.fmt("vals")
    pipe.add_columns(*layout.read(1, fmt.name, fmt.itemsize, lowering.operand("vals"), columns=8), owner="vals")
    pipe.op("find_index8", 2, 0, 1)
    pipe.add(layout.resize(8))
    write_integer(pipe, 2)
    pipe.finish(like="data")


@native("nc_match_replace8")
def _match_replace8(lowering: Lowering) -> None:
    call, fmt = lowering.call, lowering.fmt("vals")
    pipe = _whole_row(lowering, "data")
    pipe.add_columns(*layout.read(1, fmt.name, fmt.itemsize, lowering.operand("vals"), columns=8), owner="vals")
    pipe.op("match_replace8", 2, 3, 0, 1, layout.float_bits(float(call.imm)))
    pipe.write(2)
    if call.dst_idx is not None:
        pipe.add(layout.resize(8))
        write_integer(pipe, 3, "dst_idx")
    pipe.finish(like="data")


@native("tensor_copy_predicated")
def _tensor_copy_predicated(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "src", "predicate")
    fmt = lowering.fmt("dst")
    read_bits(pipe, 1, "predicate")
    if call.is_tile("src"):
        pipe.add(*layout.read_items(0, fmt.itemsize, lowering.operand("src")), owner="src")
    else:
        pipe.bits(0, fmt.itemsize, int(number_bits(call.src, fmt).item()) & ((1 << (8 * fmt.itemsize)) - 1))
    pipe.add(layout.put(0, 1, call.reverse_pred, fmt.itemsize, lowering.operand("dst")), owner="dst")
    pipe.finish(item=max(4, fmt.itemsize))


def _affine(pipe: Pipe, register: int, pattern: tuple[tuple[int, int], ...], offset: int, multiplier: int) -> None:
    pipe.add(layout.affine(register, list(pattern), offset, multiplier)._replace(operands=[]))


@native("iota")
def _iota(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering)
    register_offset = isinstance(call.offset, (VirtualRegister, NkiScalar))
    _affine(pipe, 0, call.pattern, 0 if register_offset else call.offset, call.channel_multiplier)
    if call.dtype("dst") in ("int32", "uint32"):
        write_integer(pipe, 0)
    else:
        pipe.op("decode.int32", 1, 0, 0)
        pipe.write(1)
    pipe.finish()
    if register_offset:
        first = lowering.records[-1].words[layout.PIPE_FIRST]
        lowering.records[-1].registers = [(int(first) + 3, "offset")]


@native("affine_select")
def _affine_select(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "on_true_tile")
    fmt = lowering.fmt("dst")
    _affine(pipe, 0, call.pattern, call.offset, call.channel_multiplier)
    pipe.add_columns(layout.fill(3, 4, 0, columns=1)._replace(operands=[]))
    pipe.op(f"integer.{call.cmp_op}.int32.tv", 1, 0, 3)
    if call.dtype("dst") == call.dtype("on_true_tile"):
        size = fmt.itemsize
        bits = constant_bits(call.on_false_value, call.dtype("dst"), fmt.name) if fmt.is_float else _rounded(lowering)
        pipe.add(*layout.read_items(2, size, lowering.operand("on_true_tile")), owner="on_true_tile")
        pipe.add_columns(layout.fill(4, size, bits, columns=1)._replace(operands=[]))
        pipe.op(f"select.{size}.tv", 5, 1, 2, 4, 0)
        pipe.add(*layout.write_items(5, size, lowering.operand("dst")), owner="dst")
    else:
        pipe.read(2, "on_true_tile")
        pipe.constant(4, call.on_false_value)
        pipe.op("select.4.tv", 5, 1, 2, 4, 0)
        pipe.write(5)
    pipe.finish()


def _rounded(lowering: Lowering) -> int:
    """Bits of `on_false_value` rounded into an integer dst."""
    fmt = lowering.fmt("dst")
    return int(number_bits(float(lowering.call.on_false_value), fmt).item()) & ((1 << (8 * fmt.itemsize)) - 1)
