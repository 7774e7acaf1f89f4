"""A checked call, shared by all instructions with the same signature."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tilelang.errors import Diagnostic, TileTypeError
from tilelang.ir.overlap import relation
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.indirect_rules import indirect_views
from tilelang.isa.spec import Call, InstructionSpec

__all__ = ["Plan", "signature_key"]


class Plan:
    """What is the same for every instruction of one signature: the bound call, its operand slots, reads and writes.

    `slots[i]` = (argument index, index within a list argument or -1) of tensor operand i, named `operands[i]`;
    `reads`/`writes` say whether it is read or written; `indirect` lists those that are `.indirect` views, `registers`
    the arguments that are registers. `template` is where the encoder keeps its records.
    """

    __slots__ = ("call", "indirect", "operands", "reads", "registers", "slots", "template", "warnings", "writes")

    def __init__(self, call: Call, warnings: list[Diagnostic]) -> None:
        self.call = call
        self.warnings = warnings
        self.template: Any = None
        operands, slots, reads, writes = [], [], [], []
        for position, name in enumerate(call.spec.names):
            if name not in call.spec.operands:
                continue
            value = call.values[name]
            items = list(enumerate(value)) if isinstance(value, tuple) else [(-1, value)]
            for sub, tensor in items:
                if isinstance(tensor, NkiTensor):
                    operands.append(name)
                    slots.append((position, sub))
                    reads.append(call.reads(name))
                    writes.append(call.writes(name))
        self.operands = tuple(operands)
        self.slots = tuple(slots)
        self.reads = tuple(reads)
        self.writes = tuple(writes)
        kinds = (VirtualRegister, NkiScalar)
        self.registers = tuple(i for i, name in enumerate(call.spec.names) if isinstance(call.values[name], kinds))
        views = [name for name, _ in indirect_views(call)]
        self.indirect = tuple(i for i, name in enumerate(operands) if name in views)

    @property
    def spec(self) -> InstructionSpec:
        """The instruction's record."""
        return self.call.spec


def signature_key(spec: InstructionSpec, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[NkiTensor]]:
    """Hashable key under which all calls with the same checks and the same code fall, and the tensors among `args`.

    Holds the layouts of tensors and which of them share memory (`tilelang.ir.overlap`), values of everything else.
    """
    parts: list[Any] = [spec.name]
    tensors: list[NkiTensor] = []
    try:
        _describe(args, parts, tensors)
    except RecursionError:
        raise TileTypeError(f"{spec.name}: an argument is a list that contains itself") from None
    if len(tensors) > 1:
        storages = {tensor.storage for tensor in tensors}
        if len(storages) < len(tensors) or any(storage.address is not None for storage in storages):
            parts += [relation(second, first) for i, first in enumerate(tensors) for second in tensors[:i]]
    return tuple(parts), tensors


def _describe(args: tuple[Any, ...] | list[Any], parts: list[Any], tensors: list[NkiTensor]) -> None:
    for arg in args:
        kind = arg.__class__
        if kind is NkiTensor:
            parts.append(arg.key)
            tensors.append(arg)
            if arg.dynamic is not None and isinstance(arg.dynamic.source, NkiTensor):
                tensors.append(arg.dynamic.source)
        elif kind is float:
            parts.append(arg if arg != 0.0 and arg == arg else struct.pack("d", arg))  # signs of zero and NaN count
        elif kind is int or kind is bool:
            parts.append(kind)
            parts.append(arg)
        elif arg is None:
            parts.append(None)
        elif kind is list or kind is tuple:
            parts.append(len(arg))
            _describe(arg, parts, tensors)
        elif kind is VirtualRegister or kind is NkiScalar:
            parts.append(kind)
            parts.append(getattr(arg, "dtype", None))
        elif isinstance(arg, np.generic):
            parts.append(kind)
            parts.append(arg.tobytes())
        else:
            parts.append(kind)  # equal values of other classes (an IntEnum and a float) are different arguments
            parts.append(struct.pack("d", arg) if isinstance(arg, float) else arg)
