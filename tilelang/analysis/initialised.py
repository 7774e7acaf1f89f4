"""Which storages may be read before they are written, and how each matmul accumulates.

Fresh memory is poisoned (NaN, 4 in integers) so that such reads show; storages proven written before every read need
no poison. The same walk decides
`accumulate=None`: first write of an element overwrites, later ones add.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.analysis.aliasing import share_memory
from tilelang.analysis.regions import Coverage, box_of, whole
from tilelang.analysis.tensors import tensors_in
from tilelang.errors import TileTypeError, TileUnsupportedError
from tilelang.ir.program import Instruction, Item, Loop, Program
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.enums import oob_mode

__all__ = ["ACCUMULATE", "BITMAP", "OVERWRITE", "Initialisation", "analyse_initialisation", "created_in_loop"]

OVERWRITE, ACCUMULATE, BITMAP = 0, 1, 2


@dataclass
class Initialisation:
    """`poison`: storages to fill with poison where they are allocated (indices). `modes`: instruction index →
    accumulation mode of its matmul.
    `bitmaps`: PSUM storages whose written elements must be tracked while running. `written`: input storages that are
    written. `first_bad_read`: storage → instruction.
    """

    poison: set[int] = field(default_factory=set)
    modes: dict[int, int] = field(default_factory=dict)
    bitmaps: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    first_bad_read: dict[int, Instruction] = field(default_factory=dict)


def analyse_initialisation(program: Program) -> Initialisation:
    """Walk `program` once (loop bodies once) and return what it proves."""
    walk = _Walk(program)
    walk.body(program.items)
    for tensor in tensors_in(program.result):
        storage = tensor.storage
        state = walk.coverage.get(storage.index)
        if state is None:
            raise created_in_loop("the kernel returns", tensor).at(storage.site)
        if not state.covers(whole(storage)):
            walk.found.poison.add(storage.index)
    for index in walk.found.bitmaps & walk.reinterpreted.keys():
        raise TileUnsupportedError(
            "accumulate=None is decided while the program runs for this PSUM tile, which is not possible for views of "
            "another element size",
            hint="pass accumulate=True or accumulate=False to the matmuls into it",
        ).at(walk.reinterpreted[index].site)
    walk.found.poison |= share_memory(program.storages)
    return walk.found


def created_in_loop(what: str, tensor: NkiTensor) -> TileTypeError:
    """The error for a tensor of a loop body that is used after the loop."""
    return TileTypeError(
        f"{what} {tensor.describe()}, which was created inside a device loop that has ended",
        rule="fori_loop.R5",
        hint="create the tensor before the loop",
    )


class _Walk:
    def __init__(self, program: Program) -> None:
        self.found = Initialisation()
        self.coverage: dict[int, Coverage] = {}
        self.depth = 0
        self.reinterpreted: dict[int, Instruction] = {}  # storage → a write through a view of another element size
        self.born: dict[int, int] = {}  # storage → loops around its allocation
        for storage in program.storages:
            if storage.kind in ("input", "constant"):
                state = Coverage()
                state.add(whole(storage))
                self.coverage[storage.index] = state

    def body(self, items: list[Item]) -> None:
        for item in items:
            kind = type(item)
            if kind is Instruction:
                self.instruction(item)  # type: ignore[arg-type]
            elif kind is Storage:
                if item.kind not in ("input", "constant"):  # type: ignore[union-attr]
                    self.coverage[item.index] = Coverage()  # type: ignore[union-attr]
                    self.born[item.index] = self.depth  # type: ignore[union-attr]
            else:
                self.loop(item)  # type: ignore[arg-type]

    def loop(self, loop: Loop) -> None:
        before = {index: state.copy() for index, state in self.coverage.items()}
        self.depth += 1
        self.body(loop.body)
        self.depth -= 1
        if not loop.runs_at_least_once:
            for index, state in before.items():
                after = self.coverage[index]
                state.touched += after.written + after.touched
                if after.full is not None:
                    state.touched.append(after.full)
                self.coverage[index] = state
        for index in [i for i in self.coverage if i not in before]:
            del self.coverage[index]

    def state(self, tensor: NkiTensor, instruction: Instruction) -> Coverage:
        try:
            return self.coverage[tensor.storage.index]
        except KeyError:
            raise created_in_loop(f"{instruction.opname} uses", tensor).at(instruction.site) from None

    def instruction(self, item: Instruction) -> None:
        plan = item.plan
        tensors = item.tiles()
        skips = plan.call.values.get("oob_mode") is oob_mode.skip and any(t.dynamic is not None for t in tensors)
        accumulates = "accumulate" in plan.call.values
        for position, tensor in enumerate(tensors):
            dynamic = tensor.dynamic
            if dynamic is not None and isinstance(dynamic.source, NkiTensor):
                self.read(dynamic.source, item)
            if plan.reads[position] and not (accumulates and plan.operands[position] == "dst"):
                self.read(tensor, item)
        for position, tensor in enumerate(tensors):
            if not plan.writes[position]:
                continue
            state = self.state(tensor, item)
            box = box_of(tensor)
            if accumulates:
                self.accumulation(item, tensor, state)
            state.add(box._replace(exact=False) if skips else box)
            if tensor.itemsize != tensor.storage.itemsize:
                self.reinterpreted.setdefault(tensor.storage.index, item)
            if tensor.storage.kind == "input":
                self.found.written.add(tensor.storage.index)

    def read(self, tensor: NkiTensor, item: Instruction) -> None:
        state = self.state(tensor, item)
        if not state.covers(box_of(tensor)):
            self.found.poison.add(tensor.storage.index)
            self.found.first_bad_read.setdefault(tensor.storage.index, item)

    def accumulation(self, item: Instruction, tensor: NkiTensor, state: Coverage) -> None:
        asked = item.plan.call.accumulate
        index = tensor.storage.index
        if asked is not None:
            mode = ACCUMULATE if asked else OVERWRITE
            if asked and not state.covers(box_of(tensor)):
                self.found.poison.add(index)
                self.found.first_bad_read.setdefault(index, item)
        else:
            box = box_of(tensor)
            if state.covers(box):
                mode = ACCUMULATE
            elif state.untouched(box) and self.depth == self.born[index]:
                mode = OVERWRITE
            else:
                mode = BITMAP
                self.found.bitmaps.add(index)
        self.found.modes[item.index] = mode
