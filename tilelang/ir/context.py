"""The builder that instructions report to: one per thread, set while a kernel is traced or executed eagerly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilelang.errors import TileTypeError

__all__ = ["active_builder", "current_builder", "use_builder"]

_local = threading.local()


def active_builder() -> Any | None:
    """The builder of this thread, or None outside a kernel."""
    return getattr(_local, "builder", None)


def current_builder() -> Any:
    """The builder of this thread. Raises TileTypeError outside a kernel."""
    builder = getattr(_local, "builder", None)
    if builder is None:
        raise TileTypeError(
            "instructions and tensor creation only work inside a kernel",
            hint="decorate the function with @nki.jit and call it, or call nki.simulate(function)(…)",
        )
    return builder


@contextmanager
def use_builder(builder: Any) -> Iterator[None]:
    """Make `builder` the current one of this thread inside the `with` block."""
    previous = getattr(_local, "builder", None)
    _local.builder = builder
    try:
        yield
    finally:
        _local.builder = previous
