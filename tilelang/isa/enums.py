"""Enumerations of `nki.isa` (isa.md section 7.1) and the deprecated engine constants."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = [
    "dge_mode",
    "dma_engine",
    "engine",
    "gpsimd_engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "scalar_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
]


class engine(Enum):
    """An engine of a NeuronCore."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(Enum):
    """What an instruction does with the engine's accumulator registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who makes the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What a dynamic access outside its tensor does."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """Matmul performance modes."""

    none = "none"
    double_row = "double_row"


class nc_version(IntEnum):
    """NeuronCore generations; comparable with each other and with integers."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(Enum):
    """Which DMA engines a core-to-core transfer uses."""

    dma = 1
    gpsimd_dma = 2


tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown
