"""Copies on chip: tensor_copy and memset (isa.md 10.4, 10.5)."""

from __future__ import annotations

from math import isfinite

import numpy as np

from tilelang.dtypes import FORMATS
from tilelang.isa.cost import MIN_II, copy_rate, gpsimd_cycles
from tilelang.isa.enums import engine as Engine
from tilelang.isa.params import ENGINE, NUMBER
from tilelang.isa.rules import alias, free_dims_at_most, on_chip, same_extent, semantic
from tilelang.isa.spec import Call, Finding, In, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import casts

__all__ = ["constant_bits", "memset", "tensor_copy"]


def _copy_cost(call: Call) -> float:
    n = call.F("dst")
    if call.engine == "gpsimd":
        return gpsimd_cycles(n)
    if any(tensor.dynamic is not None for _, tensor in call.tiles()):
        return max(600, n)
    if call.engine == "scalar":
        fast = call.generation >= 4 and copy_rate(call, "src") > 1
        return max(MIN_II, n / 2 if fast else n)
    return max(MIN_II, n / copy_rate(call, "src"))


def _packed_copy(call: Call) -> Finding | None:
    if "packed" in (call.fmt("src").kind, call.fmt("dst").kind) and call.dtype("src") != call.dtype("dst"):
        return Finding(f"packed dtypes are copied as they are: src {call.dtype('src')}, dst {call.dtype('dst')}", "dst")
    return None


def _dynamic_partition(call: Call) -> list[Finding]:
    return [
        Finding(
            f"{name} has a dynamic offset on the partition dim", name, "on-chip dynamic offsets move along free dims"
        )
        for name, tensor in call.tiles()
        if tensor.dynamic is not None and tensor.dynamic.kind == "scalar" and tensor.dynamic.dim == 0
    ]


@instruction(
    operands=dict(dst=Out(), src=In()),
    params=dict(engine=ENGINE),
    engines=("vector", "gpsimd", "scalar"),
    engine_since={"scalar": 3},
    cost=_copy_cost,
    accuracy="exact; other dtypes are rounded once",
    indirect=("dst", "src"),
    rules=(
        on_chip("R1", "src", "dst"),
        same_extent("R2", "dst", "src"),
        alias("R3", "engine in {unknown, vector, scalar, gpsimd}; scalar needs generation 3 (GEN.R10, GEN.R11)"),
        Rule("R4", "packed dtypes: same dtype on both sides", _packed_copy),
        alias("R5", "indirect operands (TI.R1, TI.R2)"),
        Rule("R6", "a dynamic scalar_offset moves along a free dim", _dynamic_partition),
    ),
)
def tensor_copy(dst: Tile, src: Tile, engine: Engine = Engine.unknown, name: str | None = None) -> None:
    """Copy `src` into `dst`: bit-exact for equal dtypes, else each value is rounded into `dst.dtype`.

    Both are tiles in SBUF or PSUM with equal partitions and equal elements per partition. Float to integer rounds to
    nearest even and saturates.
    Engines: vector (default), gpsimd (SBUF only), scalar (generation 3 on). Source: isa.md 10.4.
    """
    if dst.dtype == src.dtype:
        dst.store_bits(src.bits())
    else:
        dst.store(src.f32())


def constant_bits(value: float, dtype: str, storage: str) -> int:
    """The bits, as an unsigned int, of `value` in format `storage` after rounding into `dtype`."""
    fmt = FORMATS[dtype]
    if fmt.kind in ("int", "uint", "bool", "packed", "scale"):
        return int(value) & ((1 << (8 * fmt.itemsize)) - 1)
    rounded = casts.encode(np.array([value], np.float32), dtype)
    if storage != dtype:
        rounded = casts.encode(casts.decode(rounded, dtype), storage)
    return int(rounded[0])


def _integer_value(call: Call) -> Finding | None:
    # 0.0 has no bits in any format: production kernels clear tiles of all dtypes with it.
    fmt = call.fmt("dst")
    if fmt.is_integer and not isinstance(call.value, int) and call.value != 0:
        hint = f"write {int(call.value)}" if isfinite(call.value) else f"integers have no {call.value!r}"
        return Finding(f"value {call.value!r} is not an int, but dst is {fmt.name}", "value", hint)
    return None


def _packed_value(call: Call) -> Finding | None:
    if call.fmt("dst").kind in ("packed", "scale") and call.value != 0:
        return Finding(f"value {call.value!r} into packed {call.dtype('dst')}; only 0 can be written", "value")
    return None


def _value_range(call: Call) -> Finding | None:
    fmt = call.fmt("dst")
    if not fmt.is_integer or not isinstance(call.value, int):
        return None
    low, high = (0, 1) if fmt.kind == "bool" else (int(np.iinfo(fmt.host).min), int(np.iinfo(fmt.host).max))
    if not low <= call.value <= high:
        return Finding(f"value {call.value} is outside {fmt.name}, which holds {low} to {high}", "value")
    return None


def _memset_cost(call: Call) -> float:
    n = call.F("dst")
    if call.engine == "gpsimd":
        return gpsimd_cycles(n)
    fast = call.value == 0 and call.dtype("dst") in ("bfloat16", "float16")
    return max(MIN_II, n / 2 if fast else n)


@instruction(
    operands=dict(dst=Out()),
    params=dict(value=NUMBER, engine=ENGINE),
    engines=("vector", "gpsimd"),
    cost=_memset_cost,
    accuracy="exact",
    rules=(
        on_chip("R1", "dst"),
        semantic("R2", "value is a number known while tracing (a register or tile is a TypeError)"),
        Rule("R3", "integer dst: value is an int or 0.0", _integer_value),
        Rule("R4", "packed dst: value is 0", _packed_value),
        alias("R5", "engine in {unknown, vector, gpsimd} (GEN.R11)"),
        Rule("R6", "an int value lies in the range of dst", _value_range),
        free_dims_at_most("R7", 4, "dst"),
    ),
)
def memset(dst: Tile, value: float, engine: Engine = Engine.unknown, name: str | None = None) -> None:
    """Write the constant `value`, rounded into `dst.dtype`, to every element of `dst` (SBUF or PSUM).

    Engines: vector (default), gpsimd (SBUF only). Source: isa.md 10.5.
    """
    bits = constant_bits(value, dst.dtype, dst.fmt.name)
    unsigned = np.array([bits], dtype=f"uint{8 * dst.fmt.itemsize}")
    dst.store_bits(unsigned.view(dst.fmt.carrier))
