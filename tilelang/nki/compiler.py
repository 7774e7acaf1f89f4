"""`nki.compiler`: configuration of a kernel's compilation (nki-0.7.md section 2.1).

The device compiler reads it; emulation depends on none of the `CompileConfig` fields. Unknown fields are TypeErrors;
configurations compare field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AddressRotation", "CompileConfig", "SpecializationConfig"]


class AddressRotation(Enum):
    """Which tensors the device compiler may move: those it placed itself, all, or none."""

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, kw_only=True)
class CompileConfig:
    """Options of the device compiler; None leaves its own default.

    address_rotation: see `AddressRotation`. non_ssa_legalization: a pass of its backend. dead_code_elim: dead code may
    go. barrier_check: build with the checker of barriers between cores. prefetch_auto: an automatic ring of DMA
    prefetches in SBUF. nki_alloc_fallback: another allocator takes over when memory runs out.
    """

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool | None = None
    dead_code_elim: bool | None = None
    barrier_check: bool | None = None
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True


@dataclass(frozen=True, kw_only=True)
class SpecializationConfig:
    """Options of tracing. allow_nested_config_override: a nested kernel whose configuration differs is inlined with a
    warning instead of an error."""

    allow_nested_config_override: bool = False
