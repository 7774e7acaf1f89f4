"""Building one pipeline record: micro-ops in order, each knowing which operand of the call its addresses belong to."""

from __future__ import annotations

from tilelang.dtypes import by_code
from tilelang.execute import layout
from tilelang.execute.layout import Uop
from tilelang.execute.native.template import LANES, Lowering
from tilelang.ir.overlap import DISJOINT, OVERLAP, relation
from tilelang.ir.tensor import NkiTensor

__all__ = ["LANE", "Pipe"]

LANE = layout.operand(0, 4, 4, [(1, 4)])  # an accumulator file: one float32 per partition


class Pipe:
    """The micro-ops of one record. Register numbers are the caller's; a micro-op never writes a register it reads.

    `dst`: the operand whose partitions are the lanes of the record.
    """

    def __init__(self, lowering: Lowering, *inputs: str, dst: str = "dst") -> None:
        self.lowering = lowering
        self.start = lowering.tensor(dst).start_partition
        self.columns: list[tuple[Uop, str]] = []
        self.steps: list[tuple[Uop, str]] = []
        written = lowering.tensor(dst)
        tensors = [lowering.tensor(n) for n in inputs if isinstance(lowering.call.values.get(n), NkiTensor)]
        relations = {relation(written, tensor) for tensor in tensors}
        self.hazard = OVERLAP in relations
        self.separate = relations <= {DISJOINT}
        self.block = layout.WHOLE_ROW if self.hazard else 0

    def add(self, *uops: Uop, owner: str = "", output: bool = False) -> None:
        """Append micro-ops whose addresses belong to parameter `owner`, or to a file of `template.LANES`."""
        for uop in uops:
            if self.hazard and uop.name == "view" and not output and owner != "dst" and uop.words[2] != layout.TEMP:
                words = uop.words[3:]
                uop = layout.gather(uop.words[2], by_code(words[layout.O_FORMAT]).itemsize, words)
            self.steps.append((uop, owner))

    def add_columns(self, *uops: Uop, owner: str = "") -> None:
        """Append micro-ops that fill column registers; they come before all others, while `TEMP` is still scratch."""
        self.columns += [(uop, owner) for uop in uops]

    def op(self, name: str, *args: int) -> None:
        """Append a micro-op without addresses."""
        self.add(layout.uop(name, *args))

    def read(self, register: int, name: str) -> None:
        """Operand `name` as float32."""
        fmt = self.lowering.fmt(name)
        self.add(*layout.read(register, fmt.name, fmt.itemsize, self.lowering.operand(name)), owner=name)

    def vector(self, register: int, name: str, default: float = 0.0) -> None:
        """A vec(P) operand as a column register: a number, None (`default`), or a (P, 1) tile."""
        value = self.lowering.call.values[name]
        if not isinstance(value, NkiTensor):
            self.constant(register, default if value is None else value)
            return
        fmt = self.lowering.fmt(name)
        words = self.lowering.operand(name)
        self.add_columns(*layout.read(register, fmt.name, fmt.itemsize, words, columns=1), owner=name)

    def constant(self, register: int, value: float) -> None:
        """A float32 constant as a column register."""
        self.add_columns(layout.scalar(register, value)._replace(operands=[]))

    def bits(self, register: int, size: int, bits: int) -> None:
        """The same raw item everywhere in a block register."""
        self.add(layout.fill(register, size, bits)._replace(operands=[]))

    def bind(self, register: int) -> bool:
        """Let the next micro-op write `dst` directly when dst is dense float32 and shares memory with no input; else
        False.
        """
        fmt = self.lowering.fmt("dst")
        words = self.lowering.operand("dst")
        if fmt.name != "float32" or not self.separate or not layout.is_contiguous(words, 4):
            return False
        self.add(layout.view(register, words), owner="dst")
        return True

    def write(self, register: int, name: str = "dst") -> None:
        """Round float32 into operand `name`."""
        fmt = self.lowering.fmt(name)
        self.add(*layout.write(register, fmt.name, fmt.itemsize, self.lowering.operand(name)), owner=name, output=True)

    def produce(self, op: str, register: int, *sources: int) -> None:
        """A float32 micro-op whose result in `register` goes to dst."""
        bound = self.bind(register)
        self.op(op, register, *sources)
        if not bound:
            self.write(register)

    def load_lanes(self, register: int, file: str) -> None:
        """Accumulator registers of the dst partitions as a column register."""
        self.add_columns(layout.gather(register, 4, LANE, columns=1), owner=file)

    def store_lanes(self, register: int, file: str) -> None:
        """One column back to the accumulator registers."""
        self.add(layout.scatter(register, 4, LANE), owner=file)

    def _in_place(self) -> bool:
        """True when every block operand is used where it lies: whole rows then make longer runs, and there is no
        scratch to outgrow the cache.
        """
        inner = [uop.name.split(".")[0] for uop, _ in self.steps]
        return (
            inner.count("view") >= 2
            and set(inner) <= {"view", "binary", "unary"}
            and inner[-1] != "view"
            and inner[-2] == "view"
        )

    def finish(self, *, like: str = "dst", columns: int | None = None, segment: int = 0, item: int = 4) -> None:
        """Add the record: it walks the rows of operand `like`, `columns` wide."""
        rows = self.lowering.tensor(like)
        width = columns or rows.F
        if not self.block and width * 4 <= layout.MAX_WHOLE_ROW_BYTES and self._in_place():
            self.block = layout.WHOLE_ROW
        start = self.start
        steps = self.columns + self.steps
        owners = [owner for uop, owner in steps for _ in uop.operands]
        words, functions, operands = layout.pipeline(
            [uop for uop, _ in steps], rows.P, start, width, block=self.block, segment=segment, item=item
        )
        addresses, lanes = [], []
        for (word, _), owner in zip(operands, owners, strict=True):
            if owner in LANES:
                lanes.append((word, owner))
            else:
                addresses.append((word, self.lowering.slot(owner)))
        used = {slot for _, slot in addresses}
        cross = frozenset(i for i in used if self.lowering.tensors[i].start_partition != start)
        self.lowering.add(words, addresses, functions, cross=cross, lanes=lanes, start=start)
