"""`neuronxcc.nki.compiler`: allocators and decorators. Placement is left to tilelang (language.md 8.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilelang import language
from tilelang.ir.regions import MemoryRegion

__all__ = [
    "allocation_scope", "enable_stack_allocator", "force_auto_alloc", "multi_buffer", "no_reorder", "psum", "sbuf",
    "skip_middle_end_transformations",
]  # fmt: skip


class Allocation:
    """What an allocator gives: the memory; where in it is decided by tilelang."""

    def __init__(self, region: MemoryRegion) -> None:
        self.region = region


class _Allocator:
    def __init__(self, region: MemoryRegion) -> None:
        self.region = region

    def alloc(self, place: Callable[..., Any]) -> Allocation:
        """Memory that the kernel would place itself."""
        return Allocation(self.region)

    def mod_alloc(self, **_: Any) -> Allocation:
        """Memory in rotating places."""
        return Allocation(self.region)

    def auto_alloc(self, **_: Any) -> Allocation:
        """Memory that the compiler places."""
        return Allocation(self.region)


sbuf, psum = _Allocator(MemoryRegion.sbuf), _Allocator(MemoryRegion.psum)


@contextmanager
def allocation_scope() -> Iterator[None]:
    """The lifetime of allocations; they last as long as they are used."""
    yield


def multi_buffer(factor: int = 2) -> Any:
    """Number of buffers in rotation: placement only."""
    return allocation_scope()


def no_reorder() -> Any:
    """See `nki.language.no_reorder`."""
    return language.no_reorder()


def _decorator(function: Any = None, **_: Any) -> Any:
    return (lambda inner: inner) if function is None else function


enable_stack_allocator = force_auto_alloc = skip_middle_end_transformations = _decorator
