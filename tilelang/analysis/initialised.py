"""Which storages may be read before they are written, and how each matmul accumulates.

Fresh memory is poisoned (NaN, 4 in integers) so that such reads show; storages proven written before every read need no poison. The same walk decides
`accumulate=None`: first write of an element overwrites, later ones add.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.analysis.regions import Coverage, box_of, whole
from tilelang.errors import TileTypeError
from tilelang.ir.program import Instruction, Item, Loop, Program
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor

__all__ = ["ACCUMULATE", "BITMAP", "OVERWRITE", "Initialisation", "analyse_initialisation"]

OVERWRITE, ACCUMULATE, BITMAP = 0, 1, 2


@dataclass
class Initialisation:
    """`poison`: storages to fill with poison where they are allocated (indices). `modes`: instruction index → accumulation mode of its matmul.
    `bitmaps`: PSUM storages whose written elements must be tracked while running. `written`: input storages that are written. `first_bad_read`: storage → instruction.
    """

    poison: set[int] = field(default_factory=set)
    modes: dict[int, int] = field(default_factory=dict)
    bitmaps: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    first_bad_read: dict[int, Instruction] = field(default_factory=dict)


def analyse_initialisation(program: Program) -> Initialisation:
    """Walk `program` once (loop bodies once) and return what it proves."""
    walk = _Walk(program)
    walk.body(program.items, repeated=False)
    for tensor in walk.outputs(program.result):
        storage = tensor.storage
        if storage.kind != "input" and not walk.coverage[storage.index].covers(whole(storage)):
            walk.found.poison.add(storage.index)
    return walk.found


class _Walk:
    def __init__(self, program: Program) -> None:
        self.found = Initialisation()
        self.coverage: dict[int, Coverage] = {}
        for storage in program.storages:
            if storage.kind in ("input", "constant"):
                state = Coverage()
                state.add(whole(storage))
                self.coverage[storage.index] = state

    def outputs(self, value: object) -> list[NkiTensor]:
        from tilelang.analysis.tensors import tensors_in

        return tensors_in(value)

    def body(self, items: list[Item], repeated: bool) -> None:
        for item in items:
            kind = type(item)
            if kind is Instruction:
                self.instruction(item, repeated)  # type: ignore[arg-type]
            elif kind is Storage:
                if item.kind not in ("input", "constant"):  # type: ignore[union-attr]
                    self.coverage[item.index] = Coverage()  # type: ignore[union-attr]
            else:
                self.loop(item)  # type: ignore[arg-type]

    def loop(self, loop: Loop) -> None:
        before = {index: state.copy() for index, state in self.coverage.items()}
        self.body(loop.body, repeated=True)
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
            raise TileTypeError(
                f"{instruction.opname} uses {tensor.describe()}, which was created inside a device loop that has ended",
                rule="fori_loop.R5",
                hint="create the tensor before the loop",
            ).at(instruction.site) from None

    def instruction(self, item: Instruction, repeated: bool) -> None:
        plan = item.plan
        tensors = item.tiles()
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
                self.accumulation(item, tensor, state, repeated)
            state.add(box)
            if tensor.storage.kind == "input":
                self.found.written.add(tensor.storage.index)

    def read(self, tensor: NkiTensor, item: Instruction) -> None:
        state = self.state(tensor, item)
        if not state.covers(box_of(tensor)):
            self.found.poison.add(tensor.storage.index)
            self.found.first_bad_read.setdefault(tensor.storage.index, item)

    def accumulation(self, item: Instruction, tensor: NkiTensor, state: Coverage, repeated: bool) -> None:
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
            elif state.untouched(box) and not repeated:
                mode = OVERWRITE
            else:
                mode = BITMAP
                self.found.bitmaps.add(index)
        self.found.modes[item.index] = mode
