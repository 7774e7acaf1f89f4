"""Native bodies of gathers and scatters along the free dimension."""

from __future__ import annotations

from tilelang.errors import TileUnsupportedError
from tilelang.execute import layout
from tilelang.execute.native.plain import add_plain
from tilelang.execute.native.template import Lowering, native
from tilelang.ir.overlap import DISJOINT, relation

__all__: list[str] = []


def _lower(
    lowering: Lowering, direction: str, moved: str, fixed: str, index: str, count: int, group: int, run: int = 1
) -> None:
    """One record: `count` indices a row, each standing for `run` elements of `moved`."""
    dst, source_tile = lowering.tensor("dst"), lowering.tensor(moved)
    own_rows = direction == "scatter" or dst.start_partition == source_tile.start_partition
    shared = direction == "gather" and relation(dst, source_tile) != DISJOINT
    if (shared and not own_rows) or (direction == "gather" and relation(dst, lowering.tensor(index)) != DISJOINT):
        raise TileUnsupportedError(
            f"{lowering.call.spec.name}: dst shares memory with {index if not shared or own_rows else moved}, "
            "which other rows still need",
            hint="gather into a tile of its own",
        )
    name = f"indirect.{direction}.{lowering.fmt('dst').carrier.name}.{lowering.fmt(index).carrier.name}"
    params = [count, run, group, source_tile.F, int(shared)]
    source = moved if direction == "gather" else fixed
    add_plain(lowering, name, params, ("dst", source, index), cross=(index,), fallible=True)
    if 16 * count * run > layout.SCRATCH_BYTES:
        raise ValueError(f"{count} indices of {run} elements are more than the engine holds")


@native("indirect_gather")
def _gather(lowering: Lowering) -> None:
    _lower(lowering, "gather", "src", "dst", "index", lowering.tensor("dst").F, lowering.call.group)


@native("indirect_scatter")
def _scatter(lowering: Lowering) -> None:
    _lower(lowering, "scatter", "dst", "src", "index", lowering.tensor("src").F, lowering.call.group)


@native("nc_n_gather")
def _n_gather(lowering: Lowering) -> None:
    _lower(lowering, "gather", "data", "dst", "indices", lowering.tensor("dst").F, 1)


@native("local_gather")
def _local_gather(lowering: Lowering) -> None:
    run = lowering.call.num_elem_per_idx
    _lower(lowering, "gather", "src_buffer", "dst", "index", lowering.tensor("dst").F // run, 16, run)
