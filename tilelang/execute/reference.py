"""Programs through the plain NumPy bodies of the registry: the golden model. Needs neither numba nor the compiled
extension.

Every storage is an array of its own; tiles with an explicit address share one array per memory, so that they alias as
on the device. `execute`
also serves debug mode, one instruction at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilelang.analysis.aliasing import EXPLICIT_BYTES, Claims
from tilelang.dtypes import FORMATS, Format
from tilelang.errors import Diagnostic, TileBoundsError, TileError, TileWarning
from tilelang.execute.precision import widened
from tilelang.ir.program import Instruction, Item, Loop
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.enums import engine as Engine
from tilelang.isa.enums import oob_mode
from tilelang.isa.tile import Machine, RowsTile, Tile
from tilelang.numerics import casts

__all__ = ["Memory", "ReferenceExecutor", "poison_value"]


class Memory(NamedTuple):
    """Where a storage lives: flat bytes, the byte of its first element, and the bytes from one partition to the
    next.
    """

    data: NDArray[np.uint8]
    start: int
    pitch: int


def poison_value(fmt: Format) -> Any:
    """One poisoned element of `fmt`, of its carrier type: NaN, 4, 1 for bool."""
    if fmt.kind == "float":
        return casts.encode(np.array([np.nan], np.float32), fmt.name)[0]
    if fmt.kind == "packed":
        return fmt.carrier.type(np.iinfo(fmt.carrier).max)
    return fmt.carrier.type(1 if fmt.kind == "bool" else 255 if fmt.kind == "scale" else 4)


class ReferenceExecutor:
    """Memory and registers of one core; runs instructions through their NumPy bodies."""

    def __init__(self, generation: int, precision: str = "exact", links: dict[Hashable, Memory] | None = None) -> None:
        self.machine = Machine(generation)
        self.precision = precision
        self.memories: dict[int, Memory] = {}  # by storage index
        self.links = {} if links is None else links  # HBM that the cores of a rank share, by `Storage.link`
        self.shared: dict[str, NDArray[np.uint8]] = {}
        self.marks: dict[int, NDArray[np.bool_]] = {}
        self.claims = Claims()
        self.warned: set[tuple[str, int]] = set()

    # -- memory

    def fmt(self, dtype: str) -> Format:
        """Storage format of tensors of `dtype`."""
        fmt = FORMATS[dtype]
        return FORMATS["float32"] if self.precision == "high" and fmt.is_low_precision else fmt

    def bind(self, storage: Storage, array: NDArray[Any]) -> None:
        """Make host `array` the content of an HBM storage."""
        self.memories[storage.index] = Memory(widened(array, self.precision).reshape(-1).view(np.uint8), 0, 0)

    def memory(self, storage: Storage) -> Memory:
        """Where `storage` lives."""
        return self.memories[storage.index]

    def allocate(self, storage: Storage) -> None:
        """Fresh, poisoned memory; what another core has allocated already is shared."""
        if storage.kind in ("input", "constant"):
            if storage.data is not None:
                self.bind(storage, storage.data)
            return
        if storage.link is not None and storage.link in self.links:
            self.memories[storage.index] = self.links[storage.link]
            return
        fmt = self.fmt(storage.fmt.name)
        row_bytes = storage.row_elements * fmt.itemsize
        boxes = None if storage.address is None else self.claims.to_poison(storage, self.precision)
        if storage.address is None or self.precision == "high":
            self.memories[storage.index] = Memory(np.empty(storage.partitions * row_bytes, np.uint8), 0, row_bytes)
            self._strided(storage, fmt, storage.shape, _row_major(storage), 0)[...] = poison_value(fmt)
        else:
            partition, byte = storage.address
            if storage.buffer.value not in self.shared:
                self.shared[storage.buffer.value] = np.zeros(128 * EXPLICIT_BYTES, np.uint8)
            whole = self.shared[storage.buffer.value]
            self.memories[storage.index] = Memory(whole, partition * EXPLICIT_BYTES + byte, EXPLICIT_BYTES)
            pattern = np.tile(np.array([poison_value(fmt)]).view(np.uint8), storage.row_elements)
            rows = whole.reshape(128, EXPLICIT_BYTES)[partition:, byte:]
            for box in boxes or ():
                rows[box.r0 : box.r1, box.c0 : box.c1] = pattern[box.c0 : box.c1]
        if storage.link is not None:
            self.links[storage.link] = self.memories[storage.index]
        if storage.buffer.value == "psum":
            self.marks[storage.index] = np.zeros((storage.partitions, row_bytes), np.bool_)

    def _strided(
        self, storage: Storage, fmt: Format, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> NDArray[Any]:
        memory = self.memory(storage)
        size = fmt.itemsize
        steps = [stride * size for stride in strides]
        start = offset * size
        if storage.on_chip:
            row = storage.row_elements * self.fmt(storage.fmt.name).itemsize
            partition, start = divmod(start, row)
            steps[0] = memory.pitch * (steps[0] // row) if shape[0] > 1 else memory.pitch
            start += partition * memory.pitch
        return np.ndarray(shape, fmt.carrier, memory.data, memory.start + start, steps)

    def view(self, tensor: NkiTensor, index: int = 0) -> NDArray[Any]:
        """The elements of `tensor` as a strided array of carrier type; `index` is the value of its scalar dynamic
        part.
        """
        fmt = self.fmt(tensor.dtype)
        return self._strided(
            tensor.storage, fmt, tuple(tensor.shape), tuple(tensor.strides), self._offset(tensor, index)
        )

    def _offset(self, tensor: NkiTensor, index: int) -> int:
        """The element of the storage where `tensor` starts, its scalar dynamic part being `index`."""
        dynamic = tensor.dynamic
        if dynamic is None or dynamic.kind != "scalar":
            return tensor.offset
        return tensor.offset + index * dynamic.byte_multiplier // tensor.itemsize

    def read_values(self, tensor: NkiTensor) -> NDArray[Any]:
        """The content of `tensor` in its host dtype (what `print` shows in debug mode)."""
        fmt = self.fmt(tensor.dtype)
        tile = self.tile(tensor, None)
        assert tile is not None
        bits = tile.bits().reshape(tensor.shape)
        return bits if fmt.kind == "packed" else bits.view(fmt.host)

    def register(self, register: VirtualRegister | NkiScalar) -> int:
        """Value of a register."""
        return self.machine.registers.get(register.state, 0)

    def assign(self, register: VirtualRegister | NkiScalar, value: int) -> None:
        """Set a register."""
        self.machine.registers[register.state] = value

    # -- instructions

    def _index(self, source: Any) -> int:
        if isinstance(source, NkiTensor):
            return int(np.asarray(self.view(source)).reshape(-1)[0])
        return self.register(source)

    def tile(self, tensor: NkiTensor, instruction: Instruction | None) -> Tile | None:
        """`tensor` as an operand; None when a dynamic index is out of range and the instruction skips such
        transfers.
        """
        fmt = self.fmt(tensor.dtype)
        dynamic = tensor.dynamic
        index = 0
        if dynamic is not None:
            if dynamic.kind == "vector":
                return self._rows(tensor, fmt, instruction)
            index = self._index(dynamic.source)
            low, high = tensor.dynamic_range()
            if not low <= index < high:
                if instruction is not None and instruction.plan.call.values.get("oob_mode") is oob_mode.skip:
                    return None
                raise self._out_of_range(
                    tensor,
                    instruction,
                    f"dynamic index {index} is out of range; it must be at least {low} and below {high}",
                    "AP.R13",
                )
        view = self.view(tensor, index)
        start = tensor.start_partition if tensor.on_chip else 0
        return Tile(view, fmt, tensor.dtype, start, self.machine, self._marks(tensor, fmt, index))

    def _marks(self, tensor: NkiTensor, fmt: Format, index: int) -> NDArray[np.bool_] | None:
        """The marks of the bytes of `tensor`, None where writes are not tracked."""
        marks = self.marks.get(tensor.storage.index)
        if marks is None:
            return None
        size = fmt.itemsize
        offset = self._offset(tensor, index) * size
        strides = (*(stride * size for stride in tensor.strides), 1)
        return np.ndarray((*tensor.shape, size), np.bool_, marks, offset, strides)

    def _rows(self, tensor: NkiTensor, fmt: Format, instruction: Instruction | None) -> RowsTile:
        dynamic = tensor.dynamic
        assert dynamic is not None
        count = tensor.shape[0]
        indices = (
            np.array(self.view(dynamic.source)).reshape(dynamic.source.P, -1).T.reshape(-1)[:count].astype(np.int64)
        )
        limit = tensor.dynamic_range()[1]
        valid = (indices >= 0) & (indices < limit)
        skip = instruction is not None and instruction.plan.call.values.get("oob_mode") is oob_mode.skip
        if not valid.all() and not skip:
            row = int(np.flatnonzero(~valid)[0])
            raise self._out_of_range(
                tensor,
                instruction,
                f"row index {int(indices[row])} at position {row} is out of range; the tensor has {limit} rows",
                "AP.R19",
            )
        inner = np.zeros(tensor.shape[1:], np.int64)
        for axis, (size, stride) in enumerate(zip(tensor.shape[1:], tensor.strides[1:], strict=True)):
            inner += (np.arange(size) * stride).reshape([-1 if a == axis else 1 for a in range(inner.ndim)])
        memory = self.memory(tensor.storage).data.view(fmt.carrier)
        step = dynamic.byte_multiplier // tensor.itemsize
        starts = tensor.offset + np.where(valid, indices, 0) * step
        return RowsTile(memory, starts, inner, valid, fmt, tensor.dtype)

    def _out_of_range(
        self, tensor: NkiTensor, instruction: Instruction | None, message: str, rule: str
    ) -> TileBoundsError:
        operand = None
        name = "access"
        site = None
        if instruction is not None:
            name, site = instruction.opname, instruction.site
            for candidate, given in zip(instruction.plan.operands, instruction.tiles(), strict=True):
                if given is tensor:
                    operand = candidate
        hint = "pass oob_mode=nisa.oob_mode.skip to leave such rows untouched" if name.startswith("dma") else None
        text = f"{name}: {message}"
        return TileBoundsError(text, diagnostics=[Diagnostic(text, rule, site, operand, hint=hint)])

    def arguments(self, instruction: Instruction) -> dict[str, Any] | None:
        """What the body of `instruction` gets, by parameter; None when a dynamic index makes it skip."""
        call = instruction.plan.call
        found: dict[str, Any] = {}
        for name, value in zip(call.spec.names, instruction.args, strict=True):
            if isinstance(value, NkiTensor):
                tile = self.tile(value, instruction)
                if tile is None:
                    return None
                found[name] = tile
            elif name in call.spec.operands and isinstance(value, (list, tuple)):
                found[name] = [self.tile(item, instruction) for item in value]
            elif isinstance(value, (VirtualRegister, NkiScalar)):
                found[name] = value if call.engine == "sequencer" else self.register(value)
            elif name == "engine":
                found[name] = Engine[call.engine]
            else:
                found[name] = call.values[name]
        if call.spec.uses_machine:
            found["machine"] = self.machine
        return found

    def execute(self, instruction: Instruction) -> None:
        """Run one instruction that needs no other core."""
        arguments = self.arguments(instruction)
        if arguments is None:
            return
        try:
            with np.errstate(all="ignore"):
                instruction.plan.call.spec.body(**arguments)
        except TileError as error:
            raise error.at(instruction.site) from None
        if self.machine.rounded is not None:
            self._warn_rounded(instruction)

    def _warn_rounded(self, instruction: Instruction) -> None:
        """Warn, once for each place, of integers that the float32 arithmetic of an instruction cannot hold."""
        value, self.machine.rounded = self.machine.rounded, None
        where = instruction.site.location()
        if (where.file, where.line) in self.warned:
            return
        self.warned.add((where.file, where.line))
        found = Diagnostic(
            f"{instruction.plan.spec.name} computes in float32, which cannot hold the integer {value} of its operand",
            site=instruction.site,
            hint="integers up to 2^24 are exact; moves, bit operators and 32-bit integer forms keep all bits",
        )
        warnings.warn_explicit(found.render(), TileWarning, where.file, where.line)

    def steps(self, items: list[Item]) -> Iterator[Instruction]:
        """Run a body: allocations, instructions and loops. Yields each instruction that other cores take part in; the
        caller runs it before it goes on.
        """
        for item in items:
            if type(item) is Instruction:
                if item.plan.spec.meeting is None:
                    self.execute(item)
                else:
                    yield item
            elif type(item) is Storage:
                self.allocate(item)
            elif type(item) is Loop:
                yield from self._loop(item)

    def _loop(self, loop: Loop) -> Iterator[Instruction]:
        claimed = self.claims.mark()
        if loop.kind == "while":
            while self.register(loop.register):
                yield from self.steps(loop.body)
                self.claims.reset(claimed)
            return
        lower, upper = (b if isinstance(b, int) else self.register(b) for b in (loop.lower, loop.upper))
        for value in range(lower, upper, loop.step):
            self.assign(loop.register, value)
            yield from self.steps(loop.body)
            self.claims.reset(claimed)

    def arrays(self, storages: list[Storage]) -> dict[int, NDArray[Any]]:
        """HBM arrays by storage index, as bytes."""
        return {s.index: self.memories[s.index].data for s in storages if not s.on_chip and s.index in self.memories}


def _row_major(storage: Storage) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(storage.shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
