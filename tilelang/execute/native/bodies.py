"""Imports every module of native bodies, so that they register themselves."""

from tilelang.execute.native import dma, elementwise, tensor  # noqa: F401
