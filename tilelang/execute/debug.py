"""Debug mode: every instruction runs the moment it is emitted, so that `print(tile)`, `breakpoint()` and a debugger
see values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.devices import Device
from tilelang.execute.reference import ReferenceExecutor
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage

__all__ = ["DebugExecutor"]


class DebugExecutor(ReferenceExecutor):
    """The reference executor, driven one instruction at a time."""

    def __init__(self, device: Device, precision: str) -> None:
        super().__init__(device.generation, precision)

    def read(self, item: Any) -> Any:
        """The content of a tensor, or the value of a register."""
        if isinstance(item, (VirtualRegister, NkiScalar)):
            return self.register(item)
        return self.read_values(item)

    def arrays(self, storages: list[Storage]) -> dict[int, NDArray[Any]]:
        """HBM arrays by storage index, as bytes."""
        return {s.index: np.asarray(s.data.data) for s in storages if not s.on_chip and s.data is not None}
