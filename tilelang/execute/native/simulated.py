"""Native bodies of the functions that only run here (`tilelang.isa.simulated`)."""

from __future__ import annotations

from tilelang.execute.native.pipe import Pipe
from tilelang.execute.native.template import Lowering, native
from tilelang.numerics import alu

__all__: list[str] = []


@native("simulated_binary")
def _simulated_binary(lowering: Lowering) -> None:
    call = lowering.call
    names = ("data1", "data2")
    pipe = Pipe(lowering, *(name for name in names if call.is_tile(name)))
    kinds = ""
    for register, name in enumerate(names):
        if call.is_tile(name):
            pipe.read(register, name)
            kinds += "t"
        else:
            pipe.vector(register, name)
            kinds += "v"
    pipe.produce(f"binary.{call.op}.{kinds}", 2, 0, 1)
    pipe.finish()


@native("simulated_unary")
def _simulated_unary(lowering: Lowering) -> None:
    op = lowering.call.op
    pipe = Pipe(lowering, "data")
    pipe.read(0, "data")
    pipe.produce(f"{'unary' if op in alu.UNARY else 'activation'}.{op}", 1, 0)
    pipe.finish()
