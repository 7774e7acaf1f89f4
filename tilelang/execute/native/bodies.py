"""Imports every module of native bodies, so that they register themselves."""

from tilelang.execute.native import (  # noqa: F401
    accumulate,
    dma,
    dma_compute,
    elementwise,
    indirect,
    mx,
    partitions,
    random,
    reductions,
    selection,
    simulated,
    tensor,
)
