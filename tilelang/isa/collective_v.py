"""Collectives of variable length (language.md 6.2, nki-0.7.md 2.7): counts and places come from a metadata tensor.

Rows of the metadata, one column a member of the group: 0 elements to send, 1 where they start in `src`, 2 elements
received (written), 3 where they go in `dst` (only with `has_rdispls`; otherwise member k has slot k of n equal ones).
all_gather_v reads column 0 of rows 0 and 1 for everyone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.errors import TileBoundsError
from tilelang.isa.collective import GROUP, Groups, agree, by_core, group_meeting
from tilelang.isa.meeting import Party
from tilelang.isa.params import BOOL, PRIORITY
from tilelang.isa.rules import alias, semantic
from tilelang.isa.spec import Call, Finding, In, InOut, Operand, Rule, instruction
from tilelang.isa.tile import Tile

__all__ = ["exchange_v"]


def _one(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} has {len(call.values[name])} tensors; variable lengths take one", name)
        for name in ("srcs", "dsts")
        if len(call.values[name]) != 1
    ]


def _in_hbm(call: Call) -> Finding | None:
    buffers = {tensor.buffer.value for tensor in (*call.srcs, *call.dsts)}
    if not buffers & {"sbuf", "psum"}:
        return None
    return Finding(f"operands are in {', '.join(sorted(buffers))}; they must be in HBM", "srcs")


def _dtypes(call: Call) -> Finding | None:
    if call.srcs[0].dtype == call.dsts[0].dtype:
        return None
    return Finding(f"dsts is {call.dsts[0].dtype}, srcs {call.srcs[0].dtype}; they must be equal", "dsts")


def _table(call: Call) -> Finding | None:
    tensor = call.metadata_tensor
    rows, size = 4 if call.has_rdispls else 3, len(call.replica_group[0])
    wanted = (1, rows, size) if tensor.buffer.value == "sbuf" else (rows, size)
    if tuple(tensor.shape) == wanted and tensor.dtype == "uint32":
        return None
    return Finding(
        f"metadata_tensor is {tensor.dtype}{list(tensor.shape)}; expected uint32{list(wanted)}", "metadata_tensor"
    )


def _slots(call: Call) -> Finding | None:
    size = len(call.replica_group[0])
    if call.dsts[0].size % size == 0:
        return None
    return Finding(f"dsts has {call.dsts[0].size} elements; a group of {size} needs equal slots", "dsts")


def _displacements(call: Call) -> Finding | None:
    if call.gathers and call.has_rdispls:
        return Finding("has_rdispls is True, which all_gather_v does not take", "has_rdispls")
    return None


@instruction(
    operands=dict(
        srcs=In(many=True),
        dsts=InOut(many=True),
        metadata_tensor=InOut(writes=lambda call: not call.recv_counts_known),
        prepared=Operand(reads=True, optional=True),
    ),
    params=dict(replica_group=GROUP, recv_counts_known=BOOL, has_rdispls=BOOL, gathers=BOOL, priority=PRIORITY),
    engines=("dma",),
    cost=lambda call: 0.0,
    lanewise=False,
    accuracy="exact",
    meeting=group_meeting,
    legacy=(),
    rules=(
        Rule("R1", "one src and one dst", _one),
        Rule("R2", "src and dst in HBM", _in_hbm),
        Rule("R3", "equal dtypes", _dtypes),
        Rule("R4", "shape and dtype of metadata_tensor", _table),
        Rule("R5", "dst has equal slots", _slots),
        Rule("R6", "has_rdispls with all_to_all_v only", _displacements),
        semantic("R7", "counts that overrun src, the slot or dst are errors when they run"),
        alias("R8", "groups do not overlap (ncc.R9, a TileValueError)"),
    ),
)
def exchange_v(
    srcs: list[Tile],
    dsts: list[Tile],
    replica_group: Groups,
    metadata_tensor: Tile,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    gathers: bool = False,
    prepared: Tile | None = None,
    priority: int | None = None,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """Each rank gets, from every member of its group, as many elements as that member's metadata says.

    srcs, dsts: one HBM tensor each, taken flat. metadata_tensor: uint32, (rows, n) in HBM or (1, rows, n) in SBUF; its
    row 2 is written unless `recv_counts_known`. `prepared`: the metadata as it was when the exchange was prepared. The
    rest of each slot keeps its content. Raises TileBoundsError for counts that do not fit. Behind `all_to_all_v`, and
    `all_gather_v` (`gathers`). Source: language.md 6.2.
    """
    agree(parties, tensors=False)
    for found in by_core(parties):
        group = next(g for g in replica_group if next(iter(found)) in g)
        tables = {rank: _metadata(party) for rank, party in found.items()}
        sources = {rank: party.srcs[0].bits().reshape(-1) for rank, party in found.items()}
        for rank in group:
            party = found[rank]
            content = party.dsts[0].bits().reshape(-1)
            counts = [_receive(s, rank, group, tables, sources, content, party) for s in group]
            party.dsts[0].store_bits(content.reshape(party.dsts[0].P, -1))
            if not recv_counts_known:
                rows = np.array(party.metadata_tensor.view).reshape(-1, len(group))
                rows[2] = counts
                party.metadata_tensor.store_bits(rows.reshape(party.metadata_tensor.P, -1))


def _metadata(party: Party) -> NDArray[np.int64]:
    tile = party.metadata_tensor if party.arguments.get("prepared") is None else party.prepared
    size = len(party.replica_group[0])
    return np.array(tile.view).reshape(-1, size).astype(np.int64)


def _receive(
    sender: int,
    receiver: int,
    group: tuple[int, ...],
    tables: dict[int, NDArray[np.int64]],
    sources: dict[int, NDArray[Any]],
    content: NDArray[Any],
    party: Party,
) -> int:
    """Copy what `sender` has for `receiver` into its content; returns the number of elements."""
    column = 0 if party.gathers else group.index(receiver)
    count, start = int(tables[sender][0, column]), int(tables[sender][1, column])
    slot = content.size // len(group)
    place = group.index(sender)
    at, room = slot * place, slot
    if party.has_rdispls:
        at = int(tables[receiver][3, place])
        room = content.size - at
    if start + count > sources[sender].size or count > room:
        message = (
            f"rank {sender} sends {count} elements from {start} on to rank {receiver}: "
            f"its src has {sources[sender].size}, and there is room for {max(room, 0)}"
        )
        raise TileBoundsError(message, rule="exchange_v.R7", hint="check rows 0, 1 and 3 of the metadata")
    content[at : at + count] = sources[sender][start : start + count]
    return count
