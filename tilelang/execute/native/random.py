"""Native bodies of random numbers. Their state is the file "random": the generators of one lane after the other."""

from __future__ import annotations

from tilelang.execute import layout
from tilelang.execute.native.elementwise import write_integer
from tilelang.execute.native.pipe import Pipe
from tilelang.execute.native.template import Lowering, native
from tilelang.isa.random import generators
from tilelang.numerics import random

__all__: list[str] = []

_LANE = 4 * random.WORDS


def _state(lowering: Lowering) -> tuple[int, str]:
    """How many words of a lane the call uses, and the file they are in."""
    call = lowering.call
    words = generators(call.engine, call.generation)
    return words.stop - words.start, "random.gpsimd" if call.engine == "gpsimd" else "random"


def _draw(pipe: Pipe, register: int) -> None:
    """The next bits of the engine's generators as uint32."""
    words, file = _state(pipe.lowering)
    state = layout.operand(0, 4, _LANE, [(1, 4)])
    pipe.add(layout.uop("draw", register, words // random.GENERATOR, *state, operands=[(4, "operand")]), owner=file)


def _draw_uniform(pipe: Pipe, register: int, scratch: int) -> None:
    _draw(pipe, scratch)
    pipe.op("uniform", register, scratch)


@native("rng")
def _rng(lowering: Lowering) -> None:
    pipe = Pipe(lowering)
    _draw(pipe, 0)
    write_integer(pipe, 0)
    pipe.finish()


@native("rand2")
def _rand2(lowering: Lowering) -> None:
    pipe = Pipe(lowering)
    _draw_uniform(pipe, 1, 0)
    pipe.vector(3, "min")
    pipe.vector(4, "max")
    pipe.op("between", 2, 1, 3, 4)
    pipe.write(2)
    pipe.finish()


@native("dropout")
def _dropout(lowering: Lowering) -> None:
    size = lowering.fmt("dst").itemsize
    pipe = Pipe(lowering, "data")
    _draw_uniform(pipe, 1, 0)
    pipe.vector(3, "prob")
    pipe.op("binary.less.tv", 2, 1, 3)
    pipe.add(*layout.read_items(5, size, lowering.operand("data")), owner="data")
    pipe.add_columns(layout.fill(4, size, 0, columns=1)._replace(operands=[]))
    pipe.op(f"select.{size}.tv", 6, 2, 5, 4, 1)
    pipe.add(*layout.write_items(6, size, lowering.operand("dst")), owner="dst")
    pipe.finish()


@native("set_rng_seed")
def _set_rng_seed(lowering: Lowering) -> None:
    words = [0] * layout.PLAIN_PARAMS
    words[layout.PLAIN_ROWS] = layout.PARTITIONS
    address = len(words)
    words.append(0)
    addresses = [(len(words), lowering.slot("src_seeds"))]
    words += lowering.operand("src_seeds")
    words[layout.H_LENGTH] = len(words)
    cross = frozenset({lowering.slot("src_seeds")})
    lowering.add(words, addresses, [(layout.H_FN, "reseed")], cross=cross, lanes=[(address, "random")], start=0)


@native("rand_set_state")
def _rand_set_state(lowering: Lowering) -> None:
    words, file = _state(lowering)
    pipe = Pipe(lowering, dst="src_seeds")
    pipe.add(*layout.read_items(0, 4, lowering.operand("src_seeds")), owner="src_seeds")
    pipe.add(layout.scatter(0, 4, layout.operand(0, 4, _LANE, [(words, 4)])), owner=file)
    pipe.finish(like="src_seeds")


@native("rand_get_state")
def _rand_get_state(lowering: Lowering) -> None:
    words, file = _state(lowering)
    pipe = Pipe(lowering)
    pipe.add(layout.gather(0, 4, layout.operand(0, 4, _LANE, [(words, 4)])), owner=file)
    pipe.add(*layout.write_items(0, 4, lowering.operand("dst")), owner="dst")
    pipe.finish()
