"""Pseudo-random numbers of the vector engine and gpsimd (isa.md 15).

Each lane has generators of its own: four for the vector engine of generation 4, one before; one for gpsimd. Every
launch starts from the state that seed 0 gives, so a kernel that seeds nothing repeats.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilelang.isa.cost import MIN_II, gpsimd_cycles
from tilelang.isa.enums import engine as Engine
from tilelang.isa.params import ENGINE
from tilelang.isa.rules import alias, dtypes, on_chip, row_vector, same_extent, semantic
from tilelang.isa.spec import Call, Finding, In, Out, Rule, Vec, instruction
from tilelang.isa.tile import Machine, Tile, vector
from tilelang.numerics import alu, random

__all__ = ["dropout", "generators", "rand2", "rand_get_state", "rand_set_state", "rng", "set_rng_seed"]

_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
_FLOATS = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32")


def generators(engine: str, generation: int) -> slice:
    """The words of a lane that instructions on `engine` draw from."""
    if engine == "gpsimd":
        return random.GPSIMD
    return random.VECTOR if generation >= 4 else slice(0, random.GENERATOR)


def _lanes(machine: Machine, tile: Tile, engine: str) -> NDArray[np.uint32]:
    """The generators of `tile`'s partitions."""
    return machine.random[machine.lanes(tile), generators(engine, machine.generation)]


def _cost_rng(call: Call) -> float:
    return gpsimd_cycles(call.F("dst")) if call.engine == "gpsimd" else max(MIN_II, call.F("dst"))


@instruction(
    operands=dict(dst=Out()),
    params=dict(engine=ENGINE),
    engines=("vector", "gpsimd"),
    engine_since=dict(gpsimd=3),
    cost=_cost_rng,
    accuracy="exact",
    rules=(
        dtypes("R1", "dst", _INTEGERS),
        on_chip("R2", "dst"),
        alias("R3", "engine: vector, or gpsimd from generation 3 (GEN.R10)"),
    ),
)
def rng(dst: Tile, engine: Engine = Engine.vector, name: str | None = None, *, machine: Machine) -> None:
    """Random bits: one 32-bit draw for each element of `dst`, of which the low bits are stored.

    dst: a tile of an integer dtype, on gpsimd in SBUF. The generator is that of the engine and of the partition.
    Engines: vector; gpsimd (generation 3 and newer). Source: isa.md 15.1.
    """
    bits = random.draw(_lanes(machine, dst, engine.name), dst.F)
    dst.store_bits(bits.astype(dst.fmt.carrier))


def _range(call: Call) -> Finding | None:
    if call.is_tile("min") or call.is_tile("max") or call.min < call.max:
        return None
    return Finding(f"min={call.min} is not below max={call.max}", "min")


@instruction(
    operands=dict(dst=Out(), min=Vec(), max=Vec()),
    engines=("vector",),
    since=4,
    cost=lambda call: max(MIN_II, call.F("dst") / 4),
    accuracy="exact rounding of each operator",
    rules=(
        alias("R1", "generation 4 (GEN.R10)"),
        on_chip("R2", "dst"),
        dtypes("R2", "dst", (*_FLOATS, *_INTEGERS)),
        row_vector("R3", "min", "dst", "float32"),
        row_vector("R3", "max", "dst", "float32"),
        Rule("R4", "numbers: min < max", _range),
        semantic("R4", "tiles: min >= max gives what the formula gives"),
    ),
)
def rand2(dst: Tile, min: Tile | float, max: Tile | float, name: str | None = None, *, machine: Machine) -> None:
    """Uniform numbers: `dst = min + (max - min) * u`, u from [0, 1) in steps of 2^-24.

    dst: a tile of any dtype but bool. min, max: numbers or float32 tiles (P, 1). Each operator rounds to float32, then
    `dst.dtype`. Engine: vector, generation 4. Source: isa.md 15.2.
    """
    u = random.uniform(random.draw(_lanes(machine, dst, "vector"), dst.F))
    low, high = vector(min, dst.P), vector(max, dst.P)
    span = alu.BINARY["subtract"](high, low)
    dst.store(alu.BINARY["add"](low, alu.BINARY["multiply"](span, u)))


def _same_dtype(call: Call) -> Finding | None:
    if call.dtype("dst") == call.dtype("data"):
        return None
    return Finding(f"dst is {call.dtype('dst')}, data {call.dtype('data')}; dropout keeps the dtype", "dst")


def _prob_dtype(call: Call) -> Finding | None:
    if not call.is_tile("prob"):
        return None
    if not call.fmt("prob").is_float:
        return Finding(f"prob is {call.dtype('prob')}; it must have a floating-point dtype", "prob")
    if not call.fmt("data").is_float and call.dtype("prob") != "float32":
        return Finding(f"prob is {call.dtype('prob')}; with {call.dtype('data')} data it must be float32", "prob")
    return None


def _probability(call: Call) -> Finding | None:
    if call.is_tile("prob") or 0 <= call.prob <= 1:
        return None
    return Finding(f"prob={call.prob} is no probability: 0 to 1", "prob")


@instruction(
    operands=dict(dst=Out(), data=In(), prob=Vec()),
    engines=("vector",),
    cost=lambda call: max(MIN_II, call.F("data")),
    accuracy="exact",
    rules=(
        on_chip("R1", "dst", "data"),
        same_extent("R1", "dst", "data"),
        Rule("R2", "dst and data have one dtype", _same_dtype),
        row_vector("R3", "prob", "data"),
        Rule("R3", "prob, a tile: float32, any float dtype when data is float", _prob_dtype),
        Rule("R4", "a number prob: 0 to 1", _probability),
        semantic("R4", "tiles: values above 1 drop everything, below 0 and NaN nothing"),
    ),
)
def dropout(dst: Tile, data: Tile, prob: Tile | float, name: str | None = None, *, machine: Machine) -> None:
    """`dst = 0` with probability `prob`, else `data`: where a uniform number from [0, 1) is below `prob`.

    dst, data: tiles of one dtype with equal partition count and equal elements per partition. prob: a number from 0 to
    1 or a tile (P, 1). Survivors are not rescaled; their bits do not change. One draw for each element, from the
    vector engine's generators of the partitions of `dst`. Engine: vector. Source: isa.md 15.3.
    """
    u = random.uniform(random.draw(_lanes(machine, dst, "vector"), dst.F))
    dropped = alu.BINARY["less"](u, vector(prob, data.P)) != 0
    dst.store_bits(np.where(dropped, np.zeros((), dst.fmt.carrier), data.bits()))


def _seed_shape(call: Call) -> Finding | None:
    if (call.P("src_seeds"), call.F("src_seeds")) == (1, 1):
        return None
    return Finding(f"src_seeds has shape {tuple(call.src_seeds.shape)}; one seed for all lanes is (1, 1)", "src_seeds")


@instruction(
    operands=dict(src_seeds=In()),
    engines=("vector",),
    cost=lambda call: MIN_II,
    accuracy="exact",
    lanewise=False,
    rules=(
        on_chip("R1", "src_seeds"),
        Rule("R1", "src_seeds is (1, 1)", _seed_shape),
        dtypes("R2", "src_seeds", ("int32", "uint32", "float32")),
    ),
)
def set_rng_seed(src_seeds: Tile, name: str | None = None, *, machine: Machine) -> None:
    """Seed the vector engine's generators of all 128 lanes from the 32 bits of `src_seeds`.

    src_seeds: a tile (1, 1) of int32, uint32 or float32. Equal seeds give equal later numbers. Engine: vector. Source:
    isa.md 15.4.
    """
    seed = int(src_seeds.bits().view(np.uint32)[0, 0])
    machine.random[:, random.VECTOR] = random.seeded(seed)[:, random.VECTOR]


def _words(name: str) -> Rule:
    def test(call: Call) -> Finding | None:
        wanted = 24 if call.engine == "vector" else 6
        if len(call.values[name].shape) == 2 and call.F(name) == wanted:
            return None
        shape = tuple(call.values[name].shape)
        return Finding(
            f"{name} has shape {shape}; the state of a lane on {call.engine} has {wanted} words",
            name,
            f"shape (P, {wanted})",
        )

    return Rule("R3", f"{name}: (P, 6) for gpsimd, (P, 24) for vector", test)


def _cost_state(name: str) -> Callable[[Call], float]:
    return lambda call: 150 + call.F(name) if call.engine == "gpsimd" else MIN_II


@instruction(
    operands=dict(src_seeds=In()),
    params=dict(engine=ENGINE),
    engines=("gpsimd", "vector"),
    engine_since=dict(vector=4),
    since=3,
    cost=_cost_state("src_seeds"),
    accuracy="exact",
    rules=(
        alias("R1", "generation 3; engine=vector generation 4 (GEN.R10)"),
        on_chip("R2", "src_seeds", buffers=("sbuf",)),
        dtypes("R2", "src_seeds", ("uint32",)),
        _words("src_seeds"),
    ),
)
def rand_set_state(
    src_seeds: Tile, engine: Engine = Engine.gpsimd, name: str | None = None, *, machine: Machine
) -> None:
    """Set the generators of the lanes of `src_seeds`; other lanes keep theirs.

    src_seeds: a uint32 tile in SBUF: (P, 6) for gpsimd, the words x, y, z, w, v, d of the generator; (P, 24) for the
    vector engine of generation 4, four generators after each other. A generator whose x to v are all 0 stays at 0.
    Engines: gpsimd; vector. Generation 3. Source: isa.md 15.5.
    """
    _lanes(machine, src_seeds, engine.name)[:] = src_seeds.bits()


@instruction(
    operands=dict(dst=Out()),
    params=dict(engine=ENGINE),
    engines=("gpsimd", "vector"),
    engine_since=dict(vector=4),
    since=3,
    cost=_cost_state("dst"),
    accuracy="exact",
    rules=(
        alias("R1", "generation 3; engine=vector generation 4 (GEN.R10)"),
        on_chip("R2", "dst"),
        dtypes("R2", "dst", ("uint32",)),
        _words("dst"),
    ),
)
def rand_get_state(dst: Tile, engine: Engine = Engine.gpsimd, name: str | None = None, *, machine: Machine) -> None:
    """The generators of the lanes of `dst`, as `rand_set_state` takes them.

    dst: a uint32 tile: (P, 6) for gpsimd, in SBUF; (P, 24) for the vector engine of generation 4, in SBUF or PSUM.
    Engines: gpsimd; vector. Generation 3. Source: isa.md 15.6.
    """
    dst.store_bits(_lanes(machine, dst, engine.name))
