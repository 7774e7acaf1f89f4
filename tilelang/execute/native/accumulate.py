"""Native bodies of instructions that use the engines' accumulator registers."""

from __future__ import annotations

from tilelang.execute import layout
from tilelang.execute.native.elementwise import apply_slot, read_bits
from tilelang.execute.native.pipe import Pipe
from tilelang.execute.native.template import Lowering, native
from tilelang.isa.activations import affine_steps
from tilelang.isa.enums import reduce_cmd as Cmd
from tilelang.isa.select import FP32_MIN
from tilelang.numerics import alu

__all__ = ["accumulators"]

_ACC, _OUT, _NEGATED = 5, 6, 7


def accumulators(
    pipe: Pipe, file: str, op: str, command: Cmd, source: int, *, initial: str | None = None, negate: bool = False
) -> None:
    """What `command` does to accumulator file `file` with the block in register `source`, and the read-out to
    reduce_res.

    A reduction whose registers no later instruction reads and that has no reduce_res is left out.
    """
    lowering = pipe.lowering
    wanted = lowering.call.is_tile("reduce_res")
    kept = bool(lowering.mode)
    changes = command is not Cmd.idle
    if not wanted and not (changes and kept):
        return
    if initial is not None:
        pipe.vector(_ACC, initial)
    elif command in (Cmd.reset, Cmd.reset_reduce):
        pipe.constant(_ACC, float(alu.identity(op)))
    else:
        pipe.load_lanes(_ACC, file)
    if command not in (Cmd.idle, Cmd.reset):
        pipe.add(layout.accumulate(op, _ACC, source))
    pipe.add(layout.emit(_OUT, _ACC))
    if changes and kept:
        pipe.store_lanes(_OUT, file)
    if wanted:
        if negate:
            pipe.constant(_ACC - 1, -1.0)
            pipe.op("binary.multiply.tv", _NEGATED, _OUT, _ACC - 1)
        pipe.write(_NEGATED if negate else _OUT, "reduce_res")


def _activation(lowering: Lowering, command: Cmd) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "data", "bias", "scale")
    pipe.read(0, "data")
    scales, adds = affine_steps(call.bias, call.scale)
    source = 0
    if scales:
        pipe.vector(3, "scale")
    if adds:
        pipe.vector(4, "bias")
    if scales and adds:
        pipe.op("fma.vv", 1, 0, 3, 4)
        source = 1
    elif scales:
        pipe.op("binary.multiply.tv", 1, 0, 3)
        source = 1
    elif adds:
        pipe.op("binary.add.tv", 1, 0, 4)
        source = 1
    pipe.produce(f"activation.{call.op}", 2, source)
    if call.engine != "gpsimd":
        accumulators(pipe, "act", "add", command, 2)
    pipe.finish()


@native("activation")
def _plain_activation(lowering: Lowering) -> None:
    _activation(lowering, lowering.call.reduce_cmd)


@native("activation_reduce")
def _activation_reduce(lowering: Lowering) -> None:
    _activation(lowering, Cmd.reset_reduce)


@native("exponential")
def _exponential(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "src")
    pipe.read(0, "src")
    pipe.vector(3, "max_value")
    pipe.op("binary.subtract.tv", 1, 0, 3)
    pipe.produce("activation.exp", 2, 1)
    initial = "reduce_init" if call.reduce_cmd is Cmd.load_reduce else None
    accumulators(pipe, "dve", "add", call.reduce_cmd, 2, initial=initial)
    pipe.finish()


@native("activate2")
def _activate2(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "data")
    pipe.read(0, "data")
    source = 0
    if call.op0 != "bypass":
        source = 1
        pipe.vector(3, "imm0")
        if call.op1 != "bypass":
            pipe.vector(4, "imm1")
            form = "" if call.op1 == "add" else ".reverse" if call.reverse1 else ".minus"
            pipe.op(f"fma.vv{form}", 1, 0, 3, 4)
        elif call.reverse0:
            pipe.op(f"binary.{call.op0}.vt", 1, 3, 0)
        else:
            pipe.op(f"binary.{call.op0}.tv", 1, 0, 3)
    if call.op == "prelu":
        pipe.vector(7, "relu_param")
        pipe.produce("activation.prelu.tv", 2, source, 7)
    else:
        pipe.produce(f"activation.{call.op}", 2, source)
    if call.engine != "gpsimd":
        accumulators(pipe, "act", call.reduce_op or "add", call.reduce_cmd, 2)
    pipe.finish()


@native("scalar_tensor_tensor")
def _scalar_tensor_tensor(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "data", "operand1")
    pipe.read(0, "data")
    apply_slot(pipe, 1, 0, 3, call.op0, "operand0", call.reverse0)
    pipe.read(4, "operand1")
    a, b = (4, 1) if call.reverse1 else (1, 4)
    pipe.produce(f"binary.{call.op1}.tt", 2, a, b)
    accumulators(pipe, "dve", call.reduce_op, call.reduce_cmd, 2)
    pipe.finish()


@native("tensor_scalar_reduce")
def _tensor_scalar_reduce(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "data")
    pipe.read(0, "data")
    apply_slot(pipe, 1, 0, 3, call.op0, "operand0", call.reverse0)
    pipe.write(1)
    initial = "reduce_init" if call.reduce_init is not None else None
    accumulators(pipe, "dve", call.reduce_op, call.reduce_cmd, 1, initial=initial, negate=call.reduce_res_negate)
    pipe.finish()


@native("tensor_scalar_cumulative")
def _tensor_scalar_cumulative(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "src")
    pipe.read(0, "src")
    apply_slot(pipe, 1, 0, 3, call.op0, "imm0", False)
    if call.reduce_cmd is Cmd.load_reduce:
        pipe.vector(_ACC, "imm1")
    elif call.reduce_cmd is Cmd.reset_reduce:
        pipe.constant(_ACC, float(alu.identity(call.op1)))
    else:
        pipe.load_lanes(_ACC, "dve")
    pipe.op(f"cumulate.{call.op1}", 2, 1, _ACC)
    pipe.write(2)
    if lowering.mode:
        pipe.add(layout.emit(_OUT, _ACC))
        pipe.store_lanes(_OUT, "dve")
    pipe.finish()


@native("range_select")
def _range_select(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "on_true_tile")
    width = call.F("dst")
    pipe.add(layout.affine(0, [(1, width)], call.range_start, 0)._replace(operands=[]))
    pipe.op("decode.int32", 1, 0, 0)
    pipe.vector(3, "bound0")
    pipe.vector(4, "bound1")
    pipe.op(f"binary.{call.comp_op0}.tv", 0, 1, 3)
    pipe.op(f"binary.{call.comp_op1}.tv", 2, 1, 4)
    pipe.op("binary.logical_and.tt", 1, 0, 2)
    pipe.read(0, "on_true_tile")
    pipe.constant(7, FP32_MIN)
    pipe.op("select.4.tv", 2, 1, 0, 7, 0)
    pipe.write(2)
    accumulators(pipe, "dve", "maximum", call.reduce_cmd, 2)
    pipe.finish()


@native("select_reduce")
def _select_reduce(lowering: Lowering) -> None:
    call = lowering.call
    pipe = Pipe(lowering, "predicate", "on_true")
    read_bits(pipe, 0, "predicate")
    pipe.read(1, "on_true")
    pipe.vector(3, "on_false")
    pipe.op("select.4.tv", 2, 0, 1, 3, int(call.reverse_pred))
    pipe.write(2)
    accumulators(pipe, "dve", "maximum", call.reduce_cmd, 2)
    pipe.finish()
