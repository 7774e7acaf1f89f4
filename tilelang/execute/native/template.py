"""Templates of records: what a native body makes of a checked call, complete but for addresses.

A template is shared by all instructions of one signature; the encoder copies its words and fills in addresses and
pitches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS, Format
from tilelang.errors import TileUnsupportedError
from tilelang.execute import layout
from tilelang.execute.dma_layout import Region
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.plan import Plan
from tilelang.isa.spec import Call
from tilelang.numerics import random

__all__ = ["NATIVE", "PSUM_PITCH", "SBUF_PITCH", "Lowering", "Record", "native", "physical", "records_of"]

# Stand-ins for the partition pitch of the memories, which is known when a program is laid out. Multiples stand for
# several partitions.
SBUF_PITCH = 1 << 44
PSUM_PITCH = 1 << 52


class Space:
    """Memory spaces that addresses are relative to; HBM storage `i` is space `HBM + i`."""

    SBUF, PSUM, ACT, DVE, IDENTITY, RANDOM, STATUS, SCRATCH, HBM = range(9)


# Files of per-partition state: (space, bytes of a lane, offset).
LANES = {
    "act": (Space.ACT, 4, 0),
    "dve": (Space.DVE, 4, 0),
    "identity": (Space.IDENTITY, 0, 0),
    "random": (Space.RANDOM, 4 * random.WORDS, 0),
    "random.gpsimd": (Space.RANDOM, 4 * random.WORDS, 4 * random.GPSIMD.start),
}


@dataclass
class Record:
    """One record template.

    `words`: int64, addresses 0. `addresses`: (word, tensor operand index). `lanes`: (word, file of LANES)
    addresses of per-partition state.
    `functions`: (word, engine function name). `indices`: (word, operand index) address of the index tile of a
    gathered operand.
    `cross`: operand indices whose rows other threads may own; `serial`: only thread 0 works. `pitches`: (word,
    memory, factor).
    `registers`: (word, parameter): a word that gets the value of a scalar register when the record runs. `bitmap`:
    (word of the address, word of the pitch) of the written bitmap of dst. `reads`/`writes`: operand indices.
    """

    words: NDArray[np.int64]
    addresses: list[tuple[int, int]]
    functions: list[tuple[int, str]]
    reads: list[int]
    writes: list[int]
    cross: frozenset[int] = frozenset()
    serial: bool = False
    lanes: list[tuple[int, str]] = field(default_factory=list)
    registers: list[tuple[int, str]] = field(default_factory=list)
    indices: list[tuple[int, int]] = field(default_factory=list)
    pitches: list[tuple[int, str, int]] = field(default_factory=list)
    bitmap: tuple[int, int] | None = None
    start: int = 0
    fallible: bool = False

    def __post_init__(self) -> None:
        large = np.flatnonzero(self.words >= SBUF_PITCH)
        for word in large.tolist():
            value = int(self.words[word])
            memory, unit = ("psum", PSUM_PITCH) if value >= PSUM_PITCH else ("sbuf", SBUF_PITCH)
            self.pitches.append((word, memory, value // unit))

    def owner(self, word: int) -> int | None:
        """The operand whose 12 or 16 words hold word `word`."""
        before = [(start, index) for start, index in self.addresses if start <= word < start + 16]
        return max(before)[1] if before else None


def physical(tensor: NkiTensor, precision: str) -> Format:
    """The storage format of `tensor`: float32 for low-precision floats under precision "high"."""
    fmt = FORMATS[tensor.dtype]
    return FORMATS["float32"] if precision == "high" and fmt.is_low_precision else fmt


class Lowering:
    """A call being lowered: its operands as words, and the records made so far."""

    def __init__(self, plan: Plan, precision: str, mode: int | None) -> None:
        self.plan = plan
        self.call: Call = plan.call
        self.precision = precision
        # Of a matmul: how it accumulates; of accumulator users: whether a later instruction reads the registers.
        self.mode = mode
        self.records: list[Record] = []
        values = self.call.values
        self.tensors: list[NkiTensor] = []
        for position, sub in plan.slots:
            value = values[self.call.spec.names[position]]
            self.tensors.append(value if sub < 0 else value[sub])

    def slot(self, name: str) -> int:
        """Operand index of parameter `name`."""
        return self.plan.operands.index(name)

    def fmt(self, name: str) -> Format:
        """Storage format of operand `name`."""
        return physical(self.call.values[name], self.precision)

    def tensor(self, name: str) -> NkiTensor:
        """Operand `name`."""
        value: NkiTensor = self.call.values[name]
        return value

    def pitch(self, tensor: NkiTensor) -> int:
        """Stand-in for the partition pitch of `tensor`'s memory."""
        return SBUF_PITCH if tensor.buffer.value == "sbuf" else PSUM_PITCH

    def operand(self, name: str, dims: Sequence[tuple[int, int]] | None = None) -> list[int]:
        """The 12 words of on-chip operand `name`; `dims` replace its free (count, stride in elements)."""
        tensor, fmt = self.tensor(name), self.fmt(name)
        pairs = list(zip(tensor.shape[1:], tensor.strides[1:], strict=True)) if dims is None else dims
        free = [(count, stride * fmt.itemsize) for count, stride in pairs]
        return layout.operand(fmt.code, fmt.itemsize, self.pitch(tensor), free)

    def region(self, name: str) -> Region:
        """Operand `name` as a DMA region, all dims."""
        return self.region_of(self.tensor(name))

    def region_of(self, tensor: NkiTensor) -> Region:
        """`tensor` as a DMA region."""
        fmt = physical(tensor, self.precision)
        strides = [stride * fmt.itemsize for stride in tensor.strides]
        partition = None
        if tensor.on_chip:
            strides[0] = self.pitch(tensor) * (tensor.partition_step or 1)
            partition = tensor.start_partition
        return Region(fmt.name, tuple(tensor.shape), tuple(strides), partition)

    def add(
        self,
        words: Sequence[int],
        addresses: list[tuple[int, int]],
        functions: Sequence[tuple[int, str]],
        **options: Any,
    ) -> Record:
        """Add one record."""
        used = {slot for _, slot in addresses}
        record = Record(
            np.array(words, np.int64),
            addresses,
            list(functions),
            reads=[i for i in sorted(used) if self.plan.reads[i]],
            writes=[i for i in sorted(used) if self.plan.writes[i]],
            **options,
        )
        self.records.append(record)
        return record


Native = Callable[[Lowering], None]
NATIVE: dict[str, Native] = {}


def native(name: str) -> Callable[[Native], Native]:
    """Register the native body of instruction `name`."""

    def register(body: Native) -> Native:
        NATIVE[name] = body
        return body

    return register


def records_of(plan: Plan, precision: str, mode: int | None) -> list[Record]:
    """The record templates of a checked call; made once per plan, precision and accumulation mode."""
    if plan.template is None:
        plan.template = {}
    key = (precision, mode)
    records: list[Record] | None = plan.template.get(key)
    if records is None:
        import tilelang.execute.native.bodies  # noqa: F401  (registers all bodies)

        body = NATIVE.get(plan.spec.name)
        if body is None:
            raise TileUnsupportedError(f"{plan.spec.name} has no native body", hint='run it with mode="reference"')
        lowering = Lowering(plan, precision, mode)
        body(lowering)
        records = plan.template[key] = lowering.records
    return records
