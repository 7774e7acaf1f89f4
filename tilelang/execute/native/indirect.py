"""Native bodies of the two halves of tensor indirection."""

from __future__ import annotations

from tilelang.execute import layout
from tilelang.execute.native.template import Lowering, native

__all__: list[str] = []


def _lower(lowering: Lowering, direction: str, moved: str, fixed: str) -> None:
    names = ("dst", "src", "index")
    words = [0] * layout.INDIRECT_DST
    for name in names:
        words += lowering.operand(name)
    dst, tiles = lowering.tensor("dst"), lowering.tensor(fixed)
    words[layout.H_LENGTH] = len(words)
    words[layout.INDIRECT_ROWS], words[layout.INDIRECT_FIRST] = dst.P, dst.start_partition
    words[layout.INDIRECT_COUNT], words[layout.INDIRECT_LIMIT] = tiles.F, lowering.tensor(moved).F
    words[layout.INDIRECT_GROUP] = lowering.call.group
    carriers = (lowering.fmt("dst").carrier.name, lowering.fmt("index").carrier.name)
    places = (layout.INDIRECT_DST, layout.INDIRECT_SRC, layout.INDIRECT_INDEX)
    slots = [lowering.slot(name) for name in names]
    lowering.add(
        words,
        list(zip(places, slots, strict=True)),
        [(layout.H_FN, f"indirect.{direction}." + ".".join(carriers))],
        cross=frozenset((slots[2],)),
        start=dst.start_partition,
        fallible=True,
    )


@native("indirect_gather")
def _gather(lowering: Lowering) -> None:
    _lower(lowering, "gather", "src", "dst")


@native("indirect_scatter")
def _scatter(lowering: Lowering) -> None:
    _lower(lowering, "scatter", "dst", "src")
