"""Pseudo-random numbers (language.md sections 2.4 and 3.6; generators: isa.md 15)."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import format_of
from tilelang.errors import Diagnostic, TileTypeError, TileWarning
from tilelang.ir.context import current_builder
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.tensor import NkiTensor
from tilelang.isa import random
from tilelang.isa.arithmetic import tensor_scalar
from tilelang.isa.copies import memset, tensor_copy
from tilelang.isa.dma import dma_copy
from tilelang.language.common import fail, on_chip_tile, tile, warn_once
from tilelang.language.creation import ndarray
from tilelang.language.elementwise import BINARY

__all__ = ["dropout", "rand", "random_seed"]

_UNIT = 2.0**-24


def rand(shape: Any, dtype: Any, buffer: Any = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A new tensor of uniform numbers from [0, 1), multiples of 2^-24 rounded to `dtype`, a floating-point dtype.

    `random_seed` decides which; a kernel that seeds nothing gets the same numbers at each launch. Generation 4 draws
    with `nisa.rand2`, others with `nisa.rng`.
    """
    result = ndarray(shape, dtype, buffer=buffer, name=name)
    if not format_of(dtype).is_float:
        fail(
            TileTypeError(
                f"nl.rand: dtype={result.dtype} holds no numbers between 0 and 1",
                rule="LANG.R315",
                hint="nisa.rng fills integer tiles",
            )
        )
    if result.on_chip:
        _fill(result)
        return result
    rows = result.flatten_dims(1, result.ndim - 1) if result.ndim > 2 else result
    for start in range(0, rows.shape[0], 128):
        part = rows[start : min(start + 128, rows.shape[0])]
        staged = tile(part.shape, result.dtype)
        _fill(staged)
        dma_copy(part, staged)
    return result


def _fill(dst: NkiTensor) -> None:
    if current_builder().device.generation >= 4:
        random.rand2(dst, 0.0, 1.0)
        return
    bits, values = tile(dst.shape, "uint32"), tile(dst.shape, "float32")
    random.rng(bits)
    tensor_scalar(bits, bits, BINARY["right_shift"], 8)
    tensor_copy(values, bits)
    tensor_scalar(dst, values, BINARY["multiply"], _UNIT)


def random_seed(seed: Any) -> None:
    """Seed the generator of `rand` and `dropout`: equal seeds, equal numbers.

    seed: a tile (1, 1) of a 32-bit dtype on chip. An int from 0 to 2^32 - 1 is taken with a warning: a device compiler
    refuses it.
    """
    if isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32:
        warn_once(
            Diagnostic(
                "nl.random_seed takes a (1, 1) tile on a device",
                rule="LANG.R316",
                hint="fill a uint32 tile with nisa.memset",
            ),
            TileWarning,
        )
        held = tile((1, 1), "uint32")
        memset(held, seed)
        seed = held
    if not isinstance(seed, NkiTensor):
        fail(
            TileTypeError(
                f"nl.random_seed: seed={seed!r:.80} is neither a tile nor an int of 32 bits", rule="LANG.R316"
            )
        )
    random.set_rng_seed(seed)


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """`x` with each element set to 0 with probability `rate`; survivors are not rescaled.

    x: a tile on chip. rate: a number from 0 to 1 or a tile (P, 1). dtype: of the result, that of `x` by default.
    """
    source = on_chip_tile("dropout", "x", x)
    result = tile(source.shape, source.dtype)
    random.dropout(result, source, rate)
    if dtype is None or format_of(dtype).name == source.dtype:
        return result
    converted = tile(source.shape, dtype)
    tensor_copy(converted, result)
    return converted
