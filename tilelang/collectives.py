"""`nki.collectives`: exchange between ranks (language.md section 6). Several ranks run with `tilelang.launch`.

A *rank* is one logical core. A kernel that is called on its own is the only rank, number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.context import current_builder
from tilelang.ir.program import Instruction
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.scalars import VirtualRegister
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.collective import (
    all_gather,
    all_reduce,
    all_to_all,
    collective_permute,
    groups_of,
    permute_reduce,
    reduce_scatter,
)
from tilelang.isa.collective_v import exchange_v
from tilelang.isa.dma import dma_copy
from tilelang.language.objects import NKIObject

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_gather_v_prepare",
    "all_gather_v_trigger",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "all_to_all_v_prepare",
    "all_to_all_v_trigger",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
]

_CHANNELS = 4


@dataclass(frozen=True)
class ReplicaGroup(NKIObject):
    """Which ranks exchange with each other: lists of rank ids that do not overlap.

    `ReplicaGroup([[0, 1], [2, 3]])`. Raises TileTypeError or TileValueError (ncc.R9) for other values.
    """

    replica_groups: Any

    def __post_init__(self, *args: Any) -> None:
        object.__setattr__(self, "replica_groups", groups_of(self.replica_groups))

    @property
    def groups(self) -> Any:
        """The groups, as tuples of rank ids."""
        return self.replica_groups


def rank_id(name: str | None = None) -> VirtualRegister:
    """A register with the number of the own rank; 0 outside `tilelang.launch`. Source: language.md 6.2."""
    register: VirtualRegister = current_builder().preset(lambda rank: rank)
    return register


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: Any, channel_id: int = 0, num_channels: int = 1, name: str | None = None
) -> VirtualRegister:
    """A register with the rank whose data is at hand in ring step `iteration_id`: `iteration_id` places back in the
    group, so step 0 gives the own rank.

    iteration_id: an int known while tracing. Raises TileTypeError for others. Source: language.md 6.2.
    """
    if isinstance(iteration_id, bool) or not isinstance(iteration_id, int):
        raise TileTypeError(f"iteration_id is {iteration_id!r}; it must be an int known while tracing")
    groups = groups_of(replica_group)

    def processed(rank: int) -> int:
        group = next((group for group in groups if rank in group), None)
        if group is None:
            raise TileValueError(f"rank {rank} is in no group of {groups}", rule="ncc.R9")
        return group[(group.index(rank) - iteration_id) % len(group)]

    register: VirtualRegister = current_builder().preset(processed)
    return register


def _channels(tensors: Any, what: str, channel_ids: Sequence[int]) -> list[NkiTensor]:
    """One tensor of each channel. Raises TileTypeError or TileValueError (ncc.R11)."""
    nested = isinstance(tensors, (list, tuple)) and all(isinstance(t, (list, tuple)) and len(t) == 1 for t in tensors)
    if not nested:
        raise TileTypeError(f"{what}: expected a list with one list of one tensor for each channel", rule="ncc.R11")
    if list(channel_ids) != list(range(len(tensors))) or len(tensors) > _CHANNELS:
        raise TileValueError(
            f"channel_ids is {list(channel_ids)} for {len(tensors)} channels; "
            f"they count from 0, and there are at most {_CHANNELS}",
            rule="ncc.R11",
        )
    return [channel[0] for channel in tensors]


def collective_permute_implicit(
    srcs_by_channel: Any,
    dsts_by_channel: Any,
    replica_group: Any,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> Instruction:
    """Ring step: the next rank of the group gets my tensors, on each channel. HBM only.

    srcs_by_channel, dsts_by_channel: a list per channel, each with one tensor. The last rank sends to the first.
    Source: language.md 6.2.
    """
    srcs = _channels(srcs_by_channel, "srcs_by_channel", channel_ids)
    dsts = _channels(dsts_by_channel, "dsts_by_channel", channel_ids)
    return permute_reduce(srcs, None, dsts, replica_group, priority=priority, name=name)


def collective_permute_implicit_reduce(
    srcs0_by_channel: Any,
    srcs1_by_channel: Any,
    dsts_by_channel: Any,
    replica_group: Any,
    op: Any,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> Instruction:
    """Ring step with a reduction: the next rank of the group gets `op(srcs0, srcs1)` of mine, on each channel.

    As `collective_permute_implicit`; op: add, minimum or maximum in float32, rounded once. Source: language.md 6.2.
    """
    first = _channels(srcs0_by_channel, "srcs0_by_channel", channel_ids)
    second = _channels(srcs1_by_channel, "srcs1_by_channel", channel_ids)
    dsts = _channels(dsts_by_channel, "dsts_by_channel", channel_ids)
    return permute_reduce(first, second, dsts, replica_group, op, priority, name=name)


def all_to_all_v(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Instruction:
    """Every rank sends each member of its group its own number of elements. See `tilelang.isa.collective_v`.

    Source: language.md 6.2.
    """
    return exchange_v(
        srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, False, None, priority, name=name
    )


def all_gather_v(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Instruction:
    """Every rank sends all members of its group the same elements, as many as column 0 of its metadata says.

    Source: language.md 6.2.
    """
    return exchange_v(
        srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, True, None, priority, name=name
    )


_open: WeakKeyDictionary[Any, tuple[Instruction, tuple[Any, ...], str]] = WeakKeyDictionary()


def _prepare(kind: str, arguments: tuple[Any, ...], name: str | None) -> Instruction:
    """Keep the metadata as it is now; the trigger exchanges by it (ccv.R1)."""
    builder = current_builder()
    if builder in _open:
        raise TileTypeError(
            f"{kind}_v_prepare: {_open[builder][2]}_v_prepare still waits for its trigger", rule="ccv.R3"
        )
    metadata = arguments[3]
    if not isinstance(metadata, NkiTensor):
        raise TileTypeError(f"{kind}_v_prepare: metadata_tensor is {type(metadata).__name__}, not a tensor")
    kept = builder.allocate(tuple(metadata.shape), metadata.dtype, MemoryRegion.private_hbm)
    instruction: Instruction = dma_copy(dst=kept, src=metadata, name=name)
    _open[builder] = instruction, (*arguments, kept), kind
    builder.at_end.append(lambda: _left_open(builder))
    return instruction


def _left_open(builder: Any) -> None:
    if builder in _open:
        instruction, _, kind = _open[builder]
        raise TileTypeError(f"{kind}_v_prepare has no trigger", rule="ccv.R3").at(instruction.site)


def _trigger(kind: str, prepared: Any, name: str | None) -> Instruction:
    builder = current_builder()
    found = _open.get(builder)
    if found is None or found[0] is not prepared or found[2] != kind:
        raise TileTypeError(
            f"{kind}_v_trigger: its argument is not the {kind}_v_prepare that waits",
            rule="ccv.R3",
            hint=f"pass what {kind}_v_prepare returned, once",
        )
    del _open[builder]
    srcs, dsts, group, metadata, known, displaced, priority, kept = found[1]
    gathers = kind == "all_gather"
    return exchange_v(srcs, dsts, group, metadata, known, displaced, gathers, kept, priority, name=name)


def all_to_all_v_prepare(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Instruction:
    """Read the metadata of an `all_to_all_v` now; `all_to_all_v_trigger` moves the data. One at a time (ccv.R3).

    Source: nki-0.7.md 2.7.
    """
    arguments = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
    return _prepare("all_to_all", arguments, name)


def all_to_all_v_trigger(prepare_instr: Instruction, name: str | None = None) -> Instruction:
    """Move the data of the `all_to_all_v_prepare` that returned `prepare_instr`. Source: nki-0.7.md 2.7."""
    return _trigger("all_to_all", prepare_instr, name)


def all_gather_v_prepare(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Instruction:
    """As `all_to_all_v_prepare`, for `all_gather_v`. Source: nki-0.7.md 2.7."""
    arguments = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
    return _prepare("all_gather", arguments, name)


def all_gather_v_trigger(prepare_instr: Instruction, name: str | None = None) -> Instruction:
    """Move the data of the `all_gather_v_prepare` that returned `prepare_instr`. Source: nki-0.7.md 2.7."""
    return _trigger("all_gather", prepare_instr, name)
