"""Debug mode: every instruction runs the moment it is emitted, so that `print(tile)`, `breakpoint()` and a debugger see values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.devices import Device
from tilelang.execute.reference import ReferenceExecutor
from tilelang.ir import hooks
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage

__all__ = ["DebugExecutor"]


class DebugExecutor(ReferenceExecutor):
    """The reference executor, driven one instruction at a time."""

    def __init__(self, device: Device, precision: str) -> None:
        super().__init__(device.generation, precision)

    @contextmanager
    def values(self) -> Iterator[None]:
        """Inside, tensors and registers show their content."""

        def read(item: Any) -> Any:
            if isinstance(item, (VirtualRegister, NkiScalar)):
                return self.register(item)
            return self.values_of(item)

        previous = hooks.value_reader
        hooks.value_reader = read
        try:
            yield
        finally:
            hooks.value_reader = previous

    def values_of(self, tensor: Any) -> NDArray[Any]:
        """The content of `tensor`."""
        return super().read_values(tensor)

    def arrays(self, storages: list[Storage]) -> dict[int, NDArray[Any]]:
        """HBM arrays by storage index, as bytes."""
        return {s.index: np.asarray(s.data.data) for s in storages if not s.on_chip and s.data is not None}
