"""Statistics and the eight-element searches of the vector engine (isa.md 12.13 to 12.17)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilelang.isa.accumulators import fold
from tilelang.isa.cost import MIN_II
from tilelang.isa.params import NUMBER
from tilelang.isa.rules import dtypes, free_dims_at_most, needs, on_chip, same_extent, same_partitions, semantic
from tilelang.isa.spec import Call, Finding, In, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import alu

__all__ = ["bn_aggr", "bn_stats", "max8", "nc_find_index8", "nc_match_replace8"]


def _elements(rule: str, name: str, expected: int, what: str) -> Rule:
    def test(call: Call) -> Finding | None:
        if call.F(name) == expected:
            return None
        return Finding(f"{name} has {call.F(name)} elements per partition; it must have {expected}: {what}", name)

    return Rule(rule, f"{name} has {expected} elements per partition", test)


def _searchable(rule: str, name: str) -> Rule:
    def test(call: Call) -> Finding | None:
        low, high = call.device.limits["max8_min_elements"], call.device.limits["max8_max_elements"]
        if low <= call.F(name) <= high:
            return None
        return Finding(f"{name} has {call.F(name)} elements per partition; the limits are {low} to {high}", name)

    return Rule(rule, f"{name} has 8 to 16384 elements per partition", test)


def _bn_stats_size(call: Call) -> Finding | None:
    limit = call.device.limits["bn_stats_fmax"]
    if call.F("data") <= limit:
        return None
    hint = "split it into pieces of nl.tile_size.bn_stats_fmax and join them with nisa.bn_aggr"
    return Finding(f"data has {call.F('data')} elements per partition; at most {limit}", "data", hint)


def _total(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of each row of `values` (P, n), ascending from 0."""
    return fold("add", np.zeros(len(values), np.float32), values)


def _moments(values: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """[count, mean, sum of squared differences from the mean] of each row, in two passes; zeros without columns."""
    rows, count = values.shape
    if count == 0:
        return [np.zeros(rows, np.float32)] * 3
    n = np.full(rows, count, np.float32)
    mean = alu.BINARY["divide"](_total(values), n)
    distance = alu.BINARY["subtract"](values, mean[:, None])
    return [n, mean, _total(alu.UNARY["square"](distance))]


@instruction(
    operands=dict(dst=Out(), data=In()),
    engines=("vector",),
    cost=lambda call: max(MIN_II, call.F("data")),
    accuracy="exact rounding of each step: two passes, ascending",
    rules=(
        on_chip("R1", "dst", "data"),
        same_partitions("R1", "dst", "data"),
        Rule("R2", "at most 512 elements per partition of data", _bn_stats_size),
        _elements("R3", "dst", 6, "count, mean, count * variance of the even and of the odd elements"),
    ),
)
def bn_stats(dst: Tile, data: Tile, name: str | None = None) -> None:
    """Statistics of each row: `dst` (P, 6) = count, mean, sum of (x - mean)^2, of even, then of odd elements.

    data (P, F), F <= 512; even and odd refer to the flattened free index. float32, two passes (mean, then squared
    differences), each in ascending order. No odd element (F = 1): 0, 0, 0. Engine: vector. Source: isa.md 12.13.
    """
    values = data.f32()
    dst.store(np.stack(_moments(values[:, 0::2]) + _moments(values[:, 1::2]), axis=1))


@instruction(
    operands=dict(dst=Out(), data=In()),
    engines=("vector",),
    cost=lambda call: max(MIN_II, 13 * call.F("data") / 3),
    accuracy="exact rounding of each step, ascending",
    rules=(
        on_chip("R1", "dst", "data"),
        same_partitions("R1", "dst", "data"),
        Rule(
            "R2",
            "elements per partition of data: a multiple of 3",
            lambda c: (
                Finding(
                    f"data has {c.F('data')} elements per partition; triples need a multiple of 3",
                    "data",
                    "pass results of nisa.bn_stats",
                )
                if c.F("data") % 3
                else None
            ),
        ),
        _elements("R3", "dst", 2, "mean and variance"),
    ),
)
def bn_aggr(dst: Tile, data: Tile, name: str | None = None) -> None:
    """Join results of `bn_stats`: `dst` (P, 2) = mean and population variance from the triples of `data` (P, 3 k).

    With triples (n, m, v): mean = sum(n m) / sum(n), variance = (sum(v) + sum(n (m - mean)^2)) / sum(n), sums
    ascending in float32. Nothing counted (sum(n) = 0): NaN. Engine: vector. Source: isa.md 12.14.
    """
    add, subtract, multiply, divide = (alu.BINARY[op] for op in ("add", "subtract", "multiply", "divide"))
    n, m, v = np.moveaxis(data.f32().reshape(data.P, -1, 3), 2, 0)
    count = _total(n)
    mean = divide(_total(multiply(n, m)), count)
    between = _total(multiply(n, alu.UNARY["square"](subtract(m, mean[:, None]))))
    variance = divide(add(_total(v), between), count)
    dst.store(np.stack([mean, variance], axis=1))


@instruction(
    operands=dict(dst=Out(), src=In()),
    engines=("vector",),
    cost=lambda call: call.F("src"),
    accuracy="exact",
    rules=(
        on_chip("R1", "dst", "src"),
        same_partitions("R1", "dst", "src"),
        _searchable("R2", "src"),
        free_dims_at_most("R2", 2, "src"),
        free_dims_at_most("R2", 1, "dst"),
        _elements("R2", "dst", 8, "the 8 largest values"),
    ),
)
def max8(dst: Tile, src: Tile, name: str | None = None) -> None:
    """The 8 largest values of each row of `src` in descending order, duplicates kept, into `dst` (P, 8).

    src: at most 3-D, 8 to 16384 elements per partition, compared as float32. NaN counts as largest; equal values (+0
    and -0) keep their order. Engine: vector. Source: isa.md 12.15.
    """
    values = src.f32()
    nan = np.isnan(values)
    rank = np.lexsort((-np.where(nan, np.float32(0), values), ~nan), axis=1)
    dst.store(np.take_along_axis(values, rank[:, :8], axis=1))


@instruction(
    operands=dict(dst=Out(), data=In(), vals=In()),
    engines=("vector",),
    cost=lambda call: call.F("data"),
    accuracy="exact",
    rules=(
        on_chip("R1", "dst", "data", "vals"),
        same_partitions("R1", "dst", "data", "vals"),
        _searchable("R2", "data"),
        free_dims_at_most("R2", 2, "data", "vals"),
        _elements("R2", "vals", 8, "the values to find"),
        dtypes("R3", "dst", ("uint16", "uint32")),
        _elements("R3", "dst", 8, "one index for each value"),
    ),
)
def nc_find_index8(dst: Tile, data: Tile, vals: Tile, name: str | None = None) -> None:
    """Where in each row of `data` the 8 values of `vals` (P, 8) first occur: `dst` (P, 8), uint16 or uint32.

    data: at most 3-D, 8 to 16384 elements per partition. Values are compared as float32; NaN equals nothing. Walking
    `data` in ascending order, each element goes to the first value it equals that has no index yet, so a value that
    is repeated takes successive occurrences. A value that is not found has all bits set. Engine: vector. Source:
    isa.md 12.16.
    """
    values, wanted = data.f32(), vals.f32()
    found = np.full((data.P, 8), np.iinfo(dst.fmt.carrier).max, dst.fmt.carrier)
    free = np.ones((data.P, 8), bool)
    for f in range(data.F):
        match = free & (wanted == values[:, f : f + 1])
        rows = np.flatnonzero(match.any(axis=1))
        slots = match[rows].argmax(axis=1)
        found[rows, slots] = f
        free[rows, slots] = False
    dst.store_bits(found)


def _index_since(call: Call) -> Finding | None:
    if not call.is_tile("dst_idx") or call.generation >= 3:
        return None
    return Finding(needs(call, "dst_idx", 3), "dst_idx", "find the indices with nisa.nc_find_index8")


def _index_size(call: Call) -> Finding | None:
    if not call.is_tile("dst_idx") or call.F("dst_idx") == 8:
        return None
    return Finding(f"dst_idx has {call.F('dst_idx')} elements per partition; it must have 8", "dst_idx")


def _replaceable(call: Call) -> Finding | None:
    limit = call.device.limits["max8_max_elements"]
    if call.F("data") <= limit:
        return None
    return Finding(f"data has {call.F('data')} elements per partition; at most {limit}", "data")


@instruction(
    operands=dict(dst=Out(), data=In(), vals=In(), dst_idx=Out(optional=True)),
    params=dict(imm=NUMBER),
    engines=("vector",),
    cost=lambda call: max(MIN_II, call.F("data")),
    accuracy="exact",
    rules=(
        on_chip("R1", "dst", "data", "vals", "dst_idx"),
        same_partitions("R1", "dst", "data", "vals", "dst_idx"),
        same_extent("R1", "data", "dst"),
        Rule("R2", "at most 16384 elements per partition of data", _replaceable),
        _elements("R2", "vals", 8, "the values to replace"),
        semantic("R3", "imm is a Python number, taken as float32"),
        dtypes("R4", "dst_idx", ("uint16", "uint32")),
        Rule("R4", "dst_idx has 8 elements", _index_size),
        Rule("R5", "dst_idx needs generation 3 (inferred from production kernels)", _index_since),
    ),
)
def nc_match_replace8(
    dst: Tile, data: Tile, vals: Tile, imm: float, dst_idx: Tile | None = None, name: str | None = None
) -> None:
    """Replace in each row of `data` the first elements that equal the 8 values of `vals` (P, 8) by `imm`, into `dst`.

    Walking `data` in ascending order, each element goes to the highest slot of `vals` it equals (as float32; NaN equals
    nothing) that has no element yet: that element becomes `imm`, all others are copied. `dst_idx` (P, 8), uint16 or
    uint32, generation 3 on: where each slot's element was, all bits set for none. dst may be data; at most 16384
    elements per partition. Engine: vector. Source: isa.md 12.17.
    """
    values, wanted = data.f32(), vals.f32()
    result = values.copy()
    carrier = np.uint32 if dst_idx is None else dst_idx.fmt.carrier
    found = np.full((data.P, 8), np.iinfo(carrier).max, carrier)
    free = np.ones((data.P, 8), bool)
    for f in range(data.F):
        match = free & (wanted == values[:, f : f + 1])
        rows = np.flatnonzero(match.any(axis=1))
        slots = 7 - match[rows, ::-1].argmax(axis=1)
        found[rows, slots] = f
        free[rows, slots] = False
        result[rows, f] = np.float32(imm)
    dst.store(result)
    if dst_idx is not None:
        dst_idx.store_bits(found)
