"""Collectives (language.md section 6): exchange between ranks, each a logical core of its own.

The instructions behind `nki.collectives`. A call meets the calls of all ranks of its group; every source is read before
any destination is written. Reductions are float32, in ascending order of the group, rounded once; integers exactly,
saturated to the dtype (32 bits wrap).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.collective_rules import (
    COMMON,
    GROUPED,
    along,
    divisible,
    memory,
    reduction_op,
    shapes,
    two_dims,
)
from tilelang.isa.collective_rules import collective_dim as dim_in
from tilelang.isa.meeting import Meeting, Party, Place, World
from tilelang.isa.params import INT, OPERATOR, OPTIONAL_OPERATOR, PRIORITY, Param
from tilelang.isa.rules import alias, semantic
from tilelang.isa.spec import Call, Finding, In, InOut, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import alu, casts

__all__ = ["all_gather", "all_reduce", "all_to_all", "collective_permute", "permute_reduce", "reduce_scatter"]

Groups = tuple[tuple[int, ...], ...]


def _rank(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TileTypeError(f"expected a rank id, got {value!r}")
    return int(value.__index__())


def groups_of(value: Any) -> Groups:
    """A replica group, or a list of lists of rank ids, as tuples. Raises TileTypeError or TileValueError (ncc.R9)."""
    lists = getattr(value, "replica_groups", value)
    if not isinstance(lists, (list, tuple)) or not all(isinstance(g, (list, tuple)) and g for g in lists) or not lists:
        raise TileTypeError(f"expected ReplicaGroup([[0, 1], …]), got {value!r}", rule="ncc.R9")
    groups = tuple(tuple(_rank(rank) for rank in group) for group in lists)
    ranks = [rank for group in groups for rank in group]
    if len(set(ranks)) != len(ranks) or min(ranks) < 0:
        raise TileValueError(f"the groups {lists!r} overlap, or hold a negative rank", rule="ncc.R9")
    return groups


def _pairs(value: Any) -> Groups:
    if not isinstance(value, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in value):
        raise TileTypeError(f"expected [(source, target), …], got {value!r}")
    pairs = tuple((_rank(source), _rank(target)) for source, target in value)
    for side in zip(*pairs, strict=True):
        if len(set(side)) != len(side) or min(side) < 0:
            raise TileValueError(f"{value!r}: each source and each target occurs once", rule="ncc.R10")
    return pairs


GROUP = Param("ReplicaGroup", groups_of)
_PAIRS = Param("[(source, target), ...]", _pairs)


# -- who takes part


def _places(ranks: Iterable[int], place: Place, world: World, hbm: bool) -> frozenset[Place]:
    missing = [rank for rank in ranks if rank >= world.ranks]
    if missing:
        hint = "tilelang.launch(kernel, ranks=[arguments of rank 0, arguments of rank 1, …]) runs several ranks"
        raise TileValueError(f"rank {missing[0]} is not running; this launch has {world.ranks}", hint=hint)
    cores = range(world.cores) if hbm else (place.core,)
    return frozenset(Place(rank, core) for rank in ranks for core in cores)


def _group_of(call: Call, place: Place) -> tuple[int, ...]:
    for group in call.replica_group:
        if place.rank in group:
            return tuple(group)
    raise TileValueError(
        f"{call.spec.name}: rank {place.rank} is in no group of {[list(g) for g in call.replica_group]}",
        rule="ncc.R9",
        hint="every rank that makes the call belongs to a group",
    )


def _first(call: Call) -> NkiTensor:
    tensor: NkiTensor = call.dsts[0]
    return tensor


def group_meeting(call: Call, place: Place, world: World) -> Meeting:
    """The ranks of the caller's group; with SBUF operands only cores of the same number."""
    group = _group_of(call, place)
    key: Hashable = (call.spec.name, group, call.values.get("op"))
    return Meeting(key, _places(group, place, world, not _first(call).on_chip))


def _permute_meeting(call: Call, place: Place, world: World) -> Meeting:
    ranks = {rank for pair in call.source_target_pairs for rank in pair}
    members = _places(ranks if place.rank in ranks else (place.rank,), place, world, True)
    return Meeting((call.spec.name, call.source_target_pairs), members)


# -- what is moved


def by_core(parties: list[Party]) -> Iterable[dict[int, Party]]:
    """Parties by rank, for each core number whose destinations are not those of an earlier one."""
    seen: set[tuple[int, ...]] = set()
    for core in sorted({party.place.core for party in parties}):
        found = {p.place.rank: p for p in parties if p.place.core == core}
        where = tuple(tile.view.__array_interface__["data"][0] for p in found.values() for tile in p.dsts)
        if where not in seen:
            seen.add(where)
            yield found


def shaped(tile: Tile) -> NDArray[Any]:
    """A copy of the bits of `tile` in its own shape."""
    return np.array(tile.view)


def reduced(op: str, tiles: list[Tile], dst: Tile) -> NDArray[Any]:
    """`op` over `tiles` in order, as bits of `dst`'s format in the shape of the tiles."""
    fmt = tiles[0].fmt
    if fmt.is_float or dst.fmt.name != fmt.name:
        total = casts.decode(shaped(tiles[0]), fmt.name)
        for tile in tiles[1:]:
            total = alu.BINARY[op](total, casts.decode(shaped(tile), tile.fmt.name))
        return casts.encode(total, dst.fmt.name)
    whole = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}[op]
    wide = shaped(tiles[0]).astype(np.int64)
    for tile in tiles[1:]:
        wide = whole(wide, shaped(tile).astype(np.int64))
    limits = np.iinfo(fmt.carrier)
    return (wide if fmt.itemsize == 4 else np.clip(wide, limits.min, limits.max)).astype(fmt.carrier)


def agree(parties: list[Party], tensors: bool = True) -> None:
    """Raise TileTypeError (ncc.R12) unless all parties made the same call: equal parameters, and with `tensors` equal
    shapes and dtypes."""

    def signature(party: Party) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in party.arguments.items():
            if isinstance(value, (Tile, list)):
                tiles = value if isinstance(value, list) else [value]
                found[name] = [(tile.dtype, tile.shape) for tile in tiles] if tensors else [t.dtype for t in tiles]
            elif name not in ("name", "priority"):
                found[name] = value
        return found

    first = signature(parties[0])
    for party in parties[1:]:
        for name, value in signature(party).items():
            if value != first[name]:
                places = f"{parties[0].place} has {first[name]}, {party.place} {value}"
                hint = "all ranks of a group make the same call"
                raise TileTypeError(f"a collective's {name} differ: {places}", rule="ncc.R12", hint=hint)


def _move(parties: list[Party], result: Callable[[dict[int, Party], int, int], NDArray[Any] | None]) -> None:
    """For each rank and entry i, store `result(parties by rank, rank, i)`; all results are made before any store."""
    agree(parties)
    stores = []
    for found in by_core(parties):
        for rank, party in found.items():
            stores += [(tile, result(found, rank, i)) for i, tile in enumerate(party.dsts)]
    for tile, bits in stores:
        if bits is not None:
            tile.store_bits(bits.reshape(tile.P, tile.F))


def _ordered(found: dict[int, Party], rank: int) -> tuple[int, ...]:
    return next(group for group in found[rank].replica_group if rank in group)


_OPERANDS = dict(srcs=In(many=True), dsts=Out(many=True))


def _collective(**options: Any) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """`instruction` with what collectives share: DMA, no cost of an engine, parties."""
    return instruction(
        operands=options.pop("operands", _OPERANDS),
        engines=("dma",),
        cost=lambda call: 0.0,
        lanewise=False,
        meeting=options.pop("meeting", group_meeting),
        legacy=(),
        **options,
    )


def _same(call: Call, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    return shape


# -- the instructions


@_collective(
    params=dict(replica_group=GROUP, op=OPERATOR, priority=PRIORITY),
    accuracy="float32 in ascending order of the group, rounded once; integers exact",
    rules=(*GROUPED, memory("sbuf"), shapes(_same, "equal shapes"), Rule("R10", "op", reduction_op)),
)
def all_reduce(
    srcs: list[Tile],
    dsts: list[Tile],
    replica_group: Groups,
    op: str,
    priority: int | None = None,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """Every rank's `dsts[i]` = `op` over the `srcs[i]` of its group. op: add, minimum or maximum; HBM or SBUF.

    Source: language.md 6.2.
    """
    _move(parties, lambda found, rank, i: _total(found, rank, i, op))


def _total(found: dict[int, Party], rank: int, i: int, op: str) -> NDArray[Any]:
    tiles = [found[member].srcs[i] for member in _ordered(found, rank)]
    return reduced(op, tiles, found[rank].dsts[i])


@_collective(
    params=dict(replica_group=GROUP, collective_dim=INT, priority=PRIORITY),
    accuracy="exact",
    rules=(
        *GROUPED,
        memory("sbuf"),
        shapes(lambda call, s, n: along(s, call.collective_dim, n * s[call.collective_dim]), "n times as long"),
        dim_in((0,), (0, 1)),
        Rule("R10", "2-D tensors in SBUF", two_dims),
    ),
)
def all_gather(
    srcs: list[Tile],
    dsts: list[Tile],
    replica_group: Groups,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """Every rank's `dsts[i]` = the `srcs[i]` of its group in order, joined along `collective_dim` (0; in SBUF 0 or 1).

    Source: language.md 6.2.
    """

    def joined(found: dict[int, Party], rank: int, i: int) -> NDArray[Any]:
        return np.concatenate([shaped(found[m].srcs[i]) for m in _ordered(found, rank)], axis=collective_dim)

    _move(parties, joined)


def _chunk(bits: NDArray[Any], position: int, size: int) -> NDArray[Any]:
    length = bits.shape[0] // size
    return bits[position * length : (position + 1) * length]


@_collective(
    params=dict(replica_group=GROUP, collective_dim=INT, op=OPERATOR, priority=PRIORITY),
    accuracy="float32 in ascending order of the group, rounded once; integers exact",
    rules=(
        *GROUPED,
        memory("sbuf"),
        shapes(lambda call, s, n: along(s, 0, s[0] // n) if s[0] % n == 0 else None, "a part of n"),
        dim_in((0,), (0,)),
        Rule("R10", "op", reduction_op),
        Rule("R11", "length divisible by the group", divisible),
    ),
)
def reduce_scatter(
    srcs: list[Tile],
    dsts: list[Tile],
    replica_group: Groups,
    collective_dim: int,
    op: str,
    priority: int | None = None,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """Rank number k of a group of n gets part k of n of `op` over the group's `srcs[i]`, along dim 0. HBM or SBUF.

    Source: language.md 6.2.
    """

    def part(found: dict[int, Party], rank: int, i: int) -> NDArray[Any]:
        group = _ordered(found, rank)
        return _chunk(_total(found, rank, i, op), group.index(rank), len(group))

    _move(parties, part)


@_collective(
    params=dict(replica_group=GROUP, collective_dim=INT, priority=PRIORITY),
    accuracy="exact",
    rules=(
        *GROUPED,
        memory(),
        shapes(_same, "equal shapes"),
        dim_in((0,), (0,)),
        Rule("R11", "length divisible by the group", divisible),
    ),
)
def all_to_all(
    srcs: list[Tile],
    dsts: list[Tile],
    replica_group: Groups,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """Part k of rank number j's `dsts[i]` = part j of rank number k's `srcs[i]`, along dim 0. HBM only.

    Source: language.md 6.2.
    """

    def parts(found: dict[int, Party], rank: int, i: int) -> NDArray[Any]:
        group = _ordered(found, rank)
        mine = group.index(rank)
        return np.concatenate([_chunk(shaped(found[m].srcs[i]), mine, len(group)) for m in group])

    _move(parties, parts)


def _one_tensor(call: Call) -> Finding | None:
    if len(call.srcs) == 1:
        return None
    return Finding(f"srcs has {len(call.srcs)} tensors; collective_permute takes one", "srcs")


@_collective(
    operands=dict(srcs=In(many=True), dsts=InOut(many=True)),  # a rank that is no target keeps its dsts
    params=dict(source_target_pairs=_PAIRS, priority=PRIORITY),
    accuracy="exact",
    meeting=_permute_meeting,
    rules=(
        *COMMON,
        memory(),
        shapes(_same, "equal shapes"),
        Rule("R5", "one tensor a list", _one_tensor),
        alias("R6", "each source and each target once (ncc.R10, a TileValueError)"),
    ),
)
def collective_permute(
    srcs: list[Tile],
    dsts: list[Tile],
    source_target_pairs: Groups,
    priority: int | None = None,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """For each pair (s, t): rank t's `dsts[0]` = rank s's `srcs[0]`; ranks that are no target keep theirs. HBM only.

    Source: language.md 6.2.
    """
    source = {target: rank for rank, target in source_target_pairs}

    def sent(found: dict[int, Party], rank: int, i: int) -> NDArray[Any] | None:
        return shaped(found[source[rank]].srcs[i]) if rank in source else None

    _move(parties, sent)


@_collective(
    operands=dict(srcs=In(many=True), others=In(many=True, optional=True), dsts=Out(many=True)),
    params=dict(replica_group=GROUP, op=OPTIONAL_OPERATOR, priority=PRIORITY),
    accuracy="exact; with op one operation in float32, rounded once",
    rules=(*GROUPED, memory(), shapes(_same, "equal shapes"), semantic("R10", "next(r) is the next in the group")),
)
def permute_reduce(
    srcs: list[Tile],
    others: list[Tile] | None,
    dsts: list[Tile],
    replica_group: Groups,
    op: str | None = None,
    priority: int | None = None,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """Ring step: rank number k + 1 of the group gets rank number k's `srcs[i]`, or `op(srcs[i], others[i])` of it.

    One entry a channel; the last rank sends to the first. HBM only. Behind `collective_permute_implicit` and
    `collective_permute_implicit_reduce`. Source: language.md 6.2.
    """

    def sent(found: dict[int, Party], rank: int, i: int) -> NDArray[Any]:
        group = _ordered(found, rank)
        party = found[group[group.index(rank) - 1]]
        if op is None:
            return shaped(party.srcs[i])
        return reduced(op, [party.srcs[i], party.others[i]], found[rank].dsts[i])

    _move(parties, sent)
