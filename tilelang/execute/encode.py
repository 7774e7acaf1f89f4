"""From a Program to one int64 array: records laid end to end, and where addresses go.

Addresses are known only when a run binds memory, so the array holds offsets, and `Encoded.words/spaces/offsets` say
which word is relative to which
memory space. Records of one signature are filled in together with NumPy, so cost per instruction is small.
"""

from __future__ import annotations

from tilelang.analysis.aliasing import Claims
from tilelang.analysis.forwarding import Forwarding, find_forwarding
from tilelang.analysis.initialised import BITMAP, Initialisation
from tilelang.analysis.regions import box_of
from tilelang.analysis.sync import Access, SyncState, granules
from tilelang.dtypes import FORMATS
from tilelang.errors import TileError, TileUnsupportedError
from tilelang.execute import control, dma_layout, layout
from tilelang.execute.assemble import Encoded, Group, Loose, assemble
from tilelang.execute.native.template import LANES, Record, Space, physical, records_of
from tilelang.execute.poison import poison_records
from tilelang.execute.precision import check_high
from tilelang.ir.overlap import DISJOINT, relation
from tilelang.ir.program import Instruction, Item, Loop, Program
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.accumulators import files_read
from tilelang.isa.enums import oob_mode
from tilelang.scheduler.placement import Placement

__all__ = ["encode"]


def row_pitch(width: int) -> int:
    """Bytes from one partition to the next for `width` used bytes: lines up with cache lines and avoids multiples of
    1 KiB, which would map all
    partitions of a column to few cache sets."""
    pitch = -(-max(width, 64) // 64) * 64
    return pitch + 64 if pitch % 1024 == 0 else pitch


# A record's position and what it touches (None: all threads meet there), or the body of an inner loop.
_Step = tuple[int, Access | None] | list["_Step"]

# Loops around a loop from which on its threads meet at each iteration: to find out whether they need to, each level
# looks at its body twice.
_DEEP = 4


class _Encoder:
    def __init__(self, program: Program, placement: Placement, init: Initialisation, forwarding: Forwarding) -> None:
        self.program = program
        self.images = forwarding.images
        self.skipped = forwarding.skipped
        self.placement = placement
        self.init = init
        self.pitches = {region: row_pitch(width) for region, width in placement.width.items()}
        self.groups: dict[tuple[int, ...], Group] = {}
        self.position = 0
        self.sync = SyncState()
        self.extra: list[Loose] = []
        self.revisited: set[int] = set()
        self.steps: list[_Step] | None = None  # of the innermost loop body being encoded
        self.registers = program.registers
        self.depth = 0  # loops around the record being encoded
        self.bitmaps: dict[int, tuple[int, int]] = {}
        self.instructions: list[Instruction] = []
        self.psum_bits = placement.width["psum"] // 256 + 1
        self.fine = program.precision != "high"
        calls = {id(item.plan): item.plan.call for item in program.walk() if item.plan.spec.state}
        self.read_files = files_read(calls.values())
        self.claims = Claims()

    # -- places --------------------------------------------------------------------------------------------------------

    def place(self, tensor: NkiTensor) -> tuple[int, int]:
        """(space, offset) of element 0 of `tensor`, without its dynamic part."""
        storage = tensor.storage
        size = tensor.itemsize
        image = self.images.get(storage.index)
        if image is not None:
            row, inside = divmod(tensor.offset * size, storage.row_bytes)
            return Space.HBM + image.tensor.storage.index, image.start + row * image.pitch + inside
        if storage.on_chip:
            region = storage.buffer.value
            inside = tensor.offset * size % storage.row_bytes
            if not self.fine:
                inside = inside // size * physical(tensor, "high").itemsize
            base = self.placement.bytes[storage.index]
            space = Space.SBUF if region == "sbuf" else Space.PSUM
            return space, tensor.start_partition * self.pitches[region] + base + inside
        if not self.fine:
            size = physical(tensor, "high").itemsize
        return Space.HBM + storage.index, tensor.offset * size

    def mask(self, tensor: NkiTensor) -> int:
        """On-chip granules that `tensor` may touch."""
        low, high = tensor.byte_span()
        storage = tensor.storage
        if not self.fine:
            factor = physical(tensor, "high").itemsize // tensor.itemsize
            low, high = low * factor, high * factor
        base = self.placement.bytes[storage.index]
        return granules(base + low, base + high, 0 if storage.buffer.value == "psum" else self.psum_bits)

    def access(self, record: Record, tensors: list[NkiTensor]) -> Access:
        """What one record of an instruction touches."""
        found = Access()
        for index in record.reads:
            tensor = tensors[index]
            self._note(found, tensor, index in record.cross, False)
        for index in record.writes:
            tensor = tensors[index]
            self._note(found, tensor, index in record.cross, True)
        for tensor in tensors:
            dynamic = tensor.dynamic
            if dynamic is not None and isinstance(dynamic.source, NkiTensor):
                self._note(found, dynamic.source, True, False)
        return found

    def _note(self, found: Access, tensor: NkiTensor, cross: bool, write: bool) -> None:
        image = self.images.get(tensor.storage.index)
        if image is not None:
            tensor = image.tensor
        storage = tensor.storage
        if storage.on_chip:
            mask = self.mask(tensor)
            if write and cross:
                found.write_cross |= mask
            elif write:
                found.write_aligned |= mask
            elif cross:
                found.read_cross |= mask
            else:
                found.read_aligned |= mask
        elif write:
            found.hbm_writes.append((storage.index, box_of(tensor)))
        elif storage.kind != "input" or storage.index in self.init.written:
            found.hbm_reads.append((storage.index, box_of(tensor)))

    # -- records -------------------------------------------------------------------------------------------------------

    def body(self, items: list[Item]) -> None:
        for item in items:
            kind = type(item)
            if kind is Instruction:
                self.instruction(item)  # type: ignore[arg-type]
            elif kind is Storage:
                self.allocation(item)  # type: ignore[arg-type]
            else:
                self.loop(item)  # type: ignore[arg-type]

    def instruction(self, item: Instruction) -> None:
        plan = item.plan
        self.instructions.append(item)
        if plan.call.engine == "sequencer":
            self.control(item)
            return
        if plan.spec.meeting is not None:
            words = control.meet_words()
            words[layout.H_FLAGS] = self.barrier()
            words[layout.H_INDEX] = item.index
            self.append(words, [], [])
            return
        if item.index in self.skipped:
            return
        tensors = item.tiles()
        mode = self.init.modes.get(item.index)
        if plan.call.spec.state:
            mode = int(any(file in self.read_files for file in plan.call.spec.state))
        records = self.records(item, mode)
        dynamic = [t for t in tensors if t.dynamic is not None and t.dynamic.kind == "scalar"]
        held = self.hold_indices(dynamic, tensors, item) if dynamic else {}
        for record in records:
            barrier = self.meet(self.access(record, tensors))
            if dynamic or record.bitmap or record.registers:
                self.special(item, record, tensors, barrier, held)
                continue
            pitches = self.image_pitches(tensors) if self.images else {}
            key = (id(record), *(number for pair in pitches.items() for number in pair))
            group = self.groups.get(key)
            if group is None:
                group = self.groups[key] = Group(record, pitches)
            group.starts.append(self.position)
            group.flags.append(barrier)
            group.indices.append(item.index)
            for _, index in record.addresses:
                space, offset = self.place(tensors[index])
                group.spaces.append(space)
                group.offsets.append(offset)
            for _, index in record.indices:
                space, offset = self.place(tensors[index].dynamic.source)  # type: ignore[union-attr]
                group.spaces.append(space)
                group.offsets.append(offset)
            self.position += len(record.words)
        self.mark_bitmap(item, tensors, held)

    def records(self, item: Instruction, mode: int | None) -> list[Record]:
        try:
            return records_of(item.plan, self.program.precision, mode)
        except TileError as error:
            raise error.at(item.site) from None
        except ValueError as error:
            hint = 'run it with mode="reference", or split the instruction'
            raise TileUnsupportedError(f"{item.opname}: {error}", hint=hint).at(item.site) from None

    def image_pitches(self, tensors: list[NkiTensor]) -> dict[int, int]:
        """Row pitch of the operands that are images of HBM rows, by operand index."""
        found = {}
        for index, tensor in enumerate(tensors):
            image = self.images.get(tensor.storage.index)
            if image is not None:
                found[index] = image.pitch
        return found

    def meet(self, access: Access) -> int:
        """The barrier flag of a record that does `access`; loop bodies are looked at again once their end is known."""
        if self.steps is not None:
            self.steps.append((self.position, access))
        return layout.FLAG_BARRIER if self.sync.step(access) else 0

    def barrier(self) -> int:
        """The flag of a record at which all threads meet, whatever came before."""
        if self.steps is not None:
            self.steps.append((self.position, None))
        self.sync.clear()
        return layout.FLAG_BARRIER

    def hold_indices(self, dynamic: list[NkiTensor], tensors: list[NkiTensor], item: Instruction) -> dict[int, int]:
        """Load the index elements that the instruction itself overwrites into registers: storage-independent of how
        fast threads are.

        Returns the register of each such index tensor, by its id.
        """
        held: dict[int, int] = {}
        written = [t for t, writes in zip(tensors, item.plan.writes, strict=True) if writes]
        for tensor in dynamic:
            source = tensor.dynamic.source  # type: ignore[union-attr]
            if not isinstance(source, NkiTensor) or all(relation(t, source) == DISJOINT for t in written):
                continue
            access = Access()
            self._note(access, source, True, False)
            words, word = control.load_words(self.registers, FORMATS[source.dtype])
            words[layout.H_FLAGS] = self.meet(access)
            words[layout.H_INDEX] = item.index
            self.append(words, [(word, *self.place(source))], [])
            held[id(source)] = self.registers
            self.registers += 1
        return held

    def special(
        self, item: Instruction, record: Record, tensors: list[NkiTensor], flag: int, held: dict[int, int]
    ) -> None:
        """A record with parts of its own: dynamic addresses, or a written bitmap."""
        words = record.words.tolist()
        self.set_pitches(words, record, tensors)
        fixups: list[tuple[int, int, int]] = []
        entries: list[int] = []
        for word, index in record.addresses:
            tensor = tensors[index]
            space, offset = self.place(tensor)
            fixups.append((word, space, offset))
            dynamic = tensor.dynamic
            if dynamic is not None and dynamic.kind == "scalar":
                entries += self.dynamic_entry(item, tensor, word, len(words) + len(entries), fixups, held)
        for word, index in record.indices:
            fixups.append((word, *self.place(tensors[index].dynamic.source)))  # type: ignore[union-attr]
        for word, file in record.lanes:
            space, lane, offset = LANES[file]
            fixups.append((word, space, lane * record.start + offset))
        if record.bitmap:
            word, pitch_word = record.bitmap
            dst = tensors[item.plan.operands.index("dst")]
            space, offset, pitch = self.bitmap_place(dst)
            fixups.append((word, space, offset))
            words[pitch_word] = pitch
            if dst.dynamic is not None:
                entries += self.bitmap_entry(item, dst, word, len(words) + len(entries), fixups, held)
        for word, parameter in record.registers:
            register = item.args[item.plan.call.spec.names.index(parameter)]
            entries += [0, register.state, 0, 1, word, -(1 << 62), 1 << 62, 0]
        words[layout.H_FLAGS] = (
            flag | (layout.FLAG_DYNAMIC if entries else 0) | (control.FALLIBLE if record.fallible else 0)
        )
        words[layout.H_INDEX] = item.index
        words[layout.H_NDYN] = len(entries) // layout.DYNAMIC_WORDS
        words[layout.H_DYN] = len(words)
        words += entries
        words[layout.H_LENGTH] = len(words)
        self.append(words, fixups, record.functions)

    def dynamic_entry(
        self,
        item: Instruction,
        tensor: NkiTensor,
        target: int,
        at: int,
        fixups: list[tuple[int, int, int]],
        held: dict[int, int],
    ) -> list[int]:
        """The dynamic entry, at word `at`, that moves the address in word `target` by the index of `tensor`."""
        dynamic = tensor.dynamic
        assert dynamic is not None
        low, high = tensor.dynamic_range()
        factor = physical(tensor, self.program.precision).itemsize // tensor.itemsize
        skip = int(item.plan.call.values.get("oob_mode") is oob_mode.skip)
        entry = [0, 0, 0, dynamic.byte_multiplier * factor, target, low, high, skip]
        source = dynamic.source
        if isinstance(source, (VirtualRegister, NkiScalar)):
            entry[1] = source.state
        elif id(source) in held:
            entry[1] = held[id(source)]
        else:
            entry[0] = 1
            entry[2] = FORMATS[source.dtype].code
            fixups.append((at + 1, *self.place(source)))
        return entry

    def bitmap_entry(
        self,
        item: Instruction,
        dst: NkiTensor,
        target: int,
        at: int,
        fixups: list[tuple[int, int, int]],
        held: dict[int, int],
    ) -> list[int]:
        """As `dynamic_entry`, for the written byte of an element: one byte per element."""
        entry = self.dynamic_entry(item, dst, target, at, fixups, held)
        entry[3] = dst.dynamic.byte_multiplier // dst.itemsize  # type: ignore[union-attr]
        return entry

    def set_pitches(self, words: list[int], record: Record, tensors: list[NkiTensor] | None = None) -> None:
        images = self.image_pitches(tensors) if tensors and self.images else {}
        for word, memory, factor in record.pitches:
            owner = record.owner(word) if images else None
            words[word] = images.get(owner, self.pitches[memory]) * factor  # type: ignore[arg-type]

    def append(self, words: list[int], fixups: list[tuple[int, int, int]], functions: list[tuple[int, str]]) -> None:
        self.extra.append((self.position, words, fixups, functions))
        self.position += len(words)

    # -- allocation, poison, bitmaps

    def allocation(self, storage: Storage) -> None:
        if storage.on_chip and storage.index not in self.placement.bytes:
            return
        if storage.index in self.init.bitmaps:
            self.clear_bitmap(storage)
        boxes = None
        if storage.address is not None:
            boxes = self.claims.to_poison(storage, self.program.precision)
            boxes = boxes if self.fine else None
        if storage.index not in self.init.poison:
            return
        tensor = NkiTensor.over(storage)
        for record, row, byte in poison_records(storage, self.program.precision, boxes):
            access = Access()
            self._note(access, tensor, not storage.on_chip, True)
            words = record.words.tolist()
            self.set_pitches(words, record)
            words[layout.H_FLAGS] = self.meet(access)
            words[layout.H_INDEX] = -1
            space, offset = self.place(tensor)
            offset += byte + (row * self.pitches[storage.buffer.value] if row else 0)
            self.append(words, [(word, space, offset) for word, _ in record.addresses], record.functions)

    def bitmap_place(self, tensor: NkiTensor) -> tuple[int, int, int]:
        """(space, offset, row pitch) of the written byte of element 0 of a PSUM view; the map is a hidden HBM space
        of its storage.
        """
        storage = tensor.storage
        space = Space.HBM + storage.index
        self.bitmaps[storage.index] = (storage.partitions, storage.row_elements)
        row, column = divmod(tensor.offset, storage.row_elements)
        return space, row * storage.row_elements + column, storage.row_elements

    def clear_bitmap(self, storage: Storage) -> None:
        self.fill_bitmap(NkiTensor.over(storage), 0)

    def mark_bitmap(self, item: Instruction, tensors: list[NkiTensor], held: dict[int, int]) -> None:
        """After a write of another kind to a tracked PSUM storage, its elements count as written."""
        if not self.init.bitmaps:
            return
        for index, tensor in enumerate(tensors):
            if not item.plan.writes[index] or tensor.storage.index not in self.init.bitmaps:
                continue
            if self.init.modes.get(item.index) != BITMAP:
                self.fill_bitmap(tensor, 1, item, held)

    def fill_bitmap(
        self, tensor: NkiTensor, value: int, item: Instruction | None = None, held: dict[int, int] | None = None
    ) -> None:
        space, offset, pitch = self.bitmap_place(tensor)
        strides = (pitch, *tensor.strides[1:])
        region = dma_layout.Region("uint8", tuple(tensor.shape), strides, tensor.start_partition)
        record = dma_layout.fill(region, value)
        words = list(record.words)
        target = record.operands[0][0]
        fixups = [(target, space, offset)]
        words[layout.H_FLAGS] = self.meet(Access())
        if item is not None and tensor.dynamic is not None:
            entry = self.bitmap_entry(item, tensor, target, len(words), fixups, held or {})
            words[layout.H_FLAGS] |= layout.FLAG_DYNAMIC
            words[layout.H_INDEX] = item.index
            words[layout.H_NDYN], words[layout.H_DYN] = 1, len(words)
            words += entry
            words[layout.H_LENGTH] = len(words)
        self.append(words, fixups, list(record.engines))

    # -- control

    def control(self, item: Instruction) -> None:
        tensors = item.tiles()
        access = Access()
        for index, tensor in enumerate(tensors):
            self._note(access, tensor, True, item.plan.writes[index])
        dynamic = [t for t in tensors if t.dynamic is not None]
        for tensor in dynamic:
            if isinstance(tensor.dynamic.source, NkiTensor):  # type: ignore[union-attr]
                self._note(access, tensor.dynamic.source, True, False)  # type: ignore[union-attr]
        held = self.hold_indices(dynamic, tensors, item) if dynamic else {}
        words, address, functions = control.instruction_words(item)
        words[layout.H_FLAGS] = self.meet(access)
        words[layout.H_INDEX] = item.index
        fixups = [(address, *self.place(tensors[0]))] if address is not None else []
        if dynamic:
            assert address is not None
            # Words that a record may leave out stand before its entries.
            words += [0] * (control.LONGEST_MEMORY_ACCESS - len(words))
            words[layout.H_FLAGS] |= layout.FLAG_DYNAMIC
            words[layout.H_NDYN], words[layout.H_DYN] = 1, len(words)
            words += self.dynamic_entry(item, tensors[0], address, len(words), fixups, held)
            words[layout.H_LENGTH] = len(words)
        self.append(words, fixups, functions)

    def loop(self, loop: Loop) -> None:
        entry = self.sync.copy()
        state = self.registers
        self.registers += 2
        outer = self.steps
        steps: list[_Step] = []
        deep = self.depth >= _DEEP
        self.depth += 1
        if not deep:
            self.steps = steps
        begin_at = self.position
        begin, end = control.loop_words(loop, state)
        begin[layout.H_FLAGS] = self.barrier() if deep else self.meet(Access())
        self.append(begin, [], [])
        body_at = self.position
        claimed = self.claims.mark()
        self.body(loop.body)
        self.claims.reset(claimed)
        end[layout.H_FLAGS] = self.barrier() if deep else 0
        self.append(end, [], [])
        control.set_targets(loop, begin, end, begin_at, body_at, self.position)
        self.depth -= 1
        if deep:
            return
        # Look at the body again with what its end leaves behind: the second iteration.
        self.steps = outer
        if outer is not None:
            outer.append(steps)
        self.iterate(steps)
        self.sync.merge(entry)

    def iterate(self, steps: list[_Step]) -> None:
        """One more iteration of a loop body: barriers that only later iterations need."""
        for step in steps:
            if isinstance(step, list):
                before = self.sync.copy()
                self.iterate(step)
                self.iterate(step)
                self.sync.merge(before)  # the inner loop may run no iteration
            elif step[1] is None:
                self.sync.clear()
            elif self.sync.step(step[1]):
                self.revisited.add(step[0])

    def run(self) -> Encoded:
        """Encode the whole program."""
        self.body(self.program.items)
        self.append(control.end_words(), [], [])
        return assemble(self)


def encode(
    program: Program, placement: Placement, init: Initialisation, forwarding: Forwarding | None = None
) -> Encoded:
    """The records of `program`. Raises TileUnsupportedError for what precision="high" cannot store."""
    if program.precision == "high":
        check_high(program)
    return _Encoder(program, placement, init, forwarding or find_forwarding(program, init)).run()
