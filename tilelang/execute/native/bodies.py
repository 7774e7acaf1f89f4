"""Imports every module of native bodies, so that they register themselves."""

from tilelang.execute.native import accumulate, dma, elementwise, indirect, reductions, simulated, tensor  # noqa: F401
