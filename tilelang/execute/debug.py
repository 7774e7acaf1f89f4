"""Debug mode: every instruction runs the moment it is emitted, so that `print(tile)`, `breakpoint()` and a debugger
see values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tilelang.devices import Device
from tilelang.execute.reference import Memory, ReferenceExecutor
from tilelang.ir.program import Instruction
from tilelang.ir.scalars import NkiScalar, VirtualRegister

__all__ = ["DebugExecutor"]


class DebugExecutor(ReferenceExecutor):
    """The reference executor, driven one instruction at a time."""

    def __init__(
        self, device: Device, precision: str, links: dict[Hashable, Memory] | None = None, rank: int = 0
    ) -> None:
        super().__init__(device.generation, precision, links)
        self.rank = rank
        self.meet: Callable[[Instruction], None] = super().execute  # how other cores are met

    def execute(self, instruction: Instruction) -> None:
        """Run one instruction; where other cores take part, once they have come."""
        if instruction.plan.spec.meeting is None:
            super().execute(instruction)
        else:
            self.meet(instruction)

    def read(self, item: Any) -> Any:
        """The content of a tensor, or the value of a register."""
        if isinstance(item, (VirtualRegister, NkiScalar)):
            return self.register(item)
        return self.read_values(item)
