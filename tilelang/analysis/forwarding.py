"""Copies that need not be made: tiles that are only an image of HBM rows.

A tile that one DMA loads and that only row-wise instructions read is read where it lies in HBM; a tile that one
row-wise instruction
fills and one DMA stores is written there directly. Results are the same bits; a pass over memory is saved for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.analysis.initialised import Initialisation
from tilelang.analysis.regions import box_of, whole
from tilelang.ir.program import Instruction, Item, Loop, Program
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

__all__ = ["Forwarding", "Image", "find_forwarding"]


@dataclass(frozen=True, slots=True)
class Image:
    """Where the rows of a tile lie in HBM: the tensor, bytes from row to row, and the byte of row 0."""

    tensor: NkiTensor
    pitch: int
    start: int


@dataclass
class Forwarding:
    """`images`: on-chip storage index → its place in HBM. `skipped`: indices of DMA instructions that need not run."""

    images: dict[int, Image] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Use:
    """One access: instruction, operand number, and its place (body, position in it)."""

    item: Instruction
    operand: int
    body: int
    position: int


@dataclass
class _Uses:
    storage: Storage
    writes: list[_Use] = field(default_factory=list)
    reads: list[_Use] = field(default_factory=list)
    index: bool = False


def find_forwarding(program: Program, init: Initialisation) -> Forwarding:
    """Find the tiles of `program` that are images of HBM rows."""
    if program.precision != "exact":
        return Forwarding()
    uses: dict[int, _Uses] = {}
    bodies: list[list[Item]] = []
    _collect(program.items, uses, bodies)
    found = Forwarding()
    for entry in uses.values():
        storage = entry.storage
        if not storage.on_chip or storage.address is not None or storage.index in init.poison or entry.index:
            continue
        if len(entry.writes) != 1 or not entry.reads:
            continue
        if not _loaded(entry, init, found):
            _stored(entry, init, bodies, found)
    return found


def _collect(items: list[Item], uses: dict[int, _Uses], bodies: list[list[Item]]) -> None:
    body = len(bodies)
    bodies.append(items)
    for position, item in enumerate(items):
        if type(item) is Loop:
            _collect(item.body, uses, bodies)
        elif type(item) is Instruction:
            plan = item.plan
            for operand, tensor in enumerate(item.tiles()):
                entry = _entry(uses, tensor.storage)
                use = _Use(item, operand, body, position)
                if plan.writes[operand]:
                    entry.writes.append(use)
                if plan.reads[operand]:
                    entry.reads.append(use)
                if tensor.dynamic is not None:
                    entry.index = True
                    if isinstance(tensor.dynamic.source, NkiTensor):
                        _entry(uses, tensor.dynamic.source.storage).index = True


def _entry(uses: dict[int, _Uses], storage: Storage) -> _Uses:
    entry = uses.get(storage.index)
    if entry is None:
        entry = uses[storage.index] = _Uses(storage)
    return entry


def _image(hbm: NkiTensor, tile: NkiTensor) -> Image | None:
    """`hbm` as the place of all of `tile`'s storage, when each row is one run of the same dtype."""
    storage = tile.storage
    if hbm.on_chip or hbm.dynamic is not None or hbm.dtype != tile.dtype or tile.dtype != storage.fmt.name:
        return None
    if box_of(tile) != whole(storage) or hbm.shape[0] != tile.P or len(hbm.shape) < 2 or not tile.is_contiguous():
        return None
    pattern = hbm.free_pattern()
    if pattern not in ([(tile.F, 1)], []) or (not pattern and tile.F != 1):
        return None
    pitch = hbm.strides[0] * hbm.itemsize
    if hbm.strides[0] < tile.F and tile.P > 1:
        return None
    return Image(hbm, pitch, hbm.offset * hbm.itemsize)


def _rowwise(use: _Use) -> bool:
    return bool(use.item.plan.call.spec.lanewise) and use.item.plan.call.engine != "sequencer"


def _loaded(entry: _Uses, init: Initialisation, found: Forwarding) -> bool:
    load = entry.writes[0]
    if load.item.opname != "dma_copy" or not all(_rowwise(use) for use in entry.reads):
        return False
    dst, src = load.item.tiles()
    if src.storage.kind not in ("input", "constant") or src.storage.index in init.written:
        return False
    image = _image(src, dst)
    if image is None:
        return False
    found.images[entry.storage.index] = image
    found.skipped.add(load.item.index)
    return True


def _stored(entry: _Uses, init: Initialisation, bodies: list[list[Item]], found: Forwarding) -> None:
    if len(entry.reads) != 1:
        return
    fill, store = entry.writes[0], entry.reads[0]
    if store.item.opname != "dma_copy" or not _rowwise(fill) or fill.body != store.body:
        return
    if fill.item.plan.reads[fill.operand] or fill.item.plan.operands[fill.operand] != "dst":
        return
    dst, src = store.item.tiles()
    tile = fill.item.tiles()[fill.operand]
    if dst.storage.kind == "input" or src.storage is not entry.storage or box_of(tile) != whole(entry.storage):
        return
    image = _image(dst, src)
    if image is None or src.key != NkiTensor.over(entry.storage).key:
        return
    between = bodies[fill.body][fill.position : store.position]
    if any(type(item) is Loop or (type(item) is Instruction and item.plan.spec.meeting) for item in between):
        return
    target = dst.storage.index
    if target in init.poison and dst.storage in between:
        return
    if any(t.storage.index == target for item in between if type(item) is Instruction for t in item.tiles()):
        return
    found.images[entry.storage.index] = image
    found.skipped.add(store.item.index)
