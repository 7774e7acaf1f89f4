"""One instruction in a kernel of its own: inputs come from HBM, every operand tile goes back to HBM, so nothing it
does stays unseen.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilelang
import tilelang.isa as nisa
from tilelang.dtypes import FORMATS
from tilelang.ir import context
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.operators import _TOKENS, register_token

MODES = (("native", 1), ("native", 2), ("native", 4), ("debug", None))
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, 2.5, 1e-40, -1e-40, 3e38, 300.0], np.float32
)
FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "tfloat32")
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
TOKENS = {name: token for token, name in _TOKENS.items()}


def token(name: str) -> Any:
    """An object that means operator `name`."""
    if name not in TOKENS:
        TOKENS[name] = f"token {name}"
        register_token(TOKENS[name], name)
    return TOKENS[name]


def rng_for(*parts: Any) -> np.random.Generator:
    """A generator seeded by the parameters of a test."""
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def sample(rng: np.random.Generator, shape: Sequence[int], dtype: str, special: float = 0.1) -> NDArray[Any]:
    """Values of `dtype`: floats of many magnitudes with specials among them, integers over their whole range."""
    fmt = FORMATS[dtype]
    if fmt.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if fmt.is_integer:
        info = np.iinfo(fmt.host)
        wide = rng.integers(info.min, info.max, shape, dtype=fmt.host, endpoint=True)
        small = rng.integers(max(info.min, -9), 10, shape).astype(fmt.host)
        return np.where(rng.random(shape) < 0.5, wide, small).astype(fmt.host)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)
    values = np.where(rng.random(shape) < special, rng.choice(SPECIAL, shape), values)
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(fmt.host)


def ndarray(shape: Sequence[int], dtype: str, buffer: MemoryRegion = MemoryRegion.sbuf, **options: Any) -> NkiTensor:
    """A tensor of the kernel being traced."""
    return context.current_builder().allocate(tuple(shape), dtype, buffer, **options)  # type: ignore[no-any-return]


def tile_of(source: NkiTensor, buffer: str, dtype: str | None = None) -> NkiTensor:
    """An on-chip tile with the values of HBM tensor `source`."""
    name = dtype or source.dtype
    tile = ndarray(source.shape, name)
    nisa.dma_copy(dst=tile, src=source if name == source.dtype else source.view(name))
    if buffer == "sbuf":
        return tile
    other = ndarray(source.shape, name, MemoryRegion.psum)
    nisa.tensor_copy(dst=other, src=tile)
    return other


def result_of(tile: NkiTensor) -> NkiTensor:
    """An HBM tensor with the content of `tile`."""
    if tile.buffer is MemoryRegion.psum:
        staged = ndarray(tile.shape, tile.dtype)
        nisa.tensor_copy(dst=staged, src=tile)
        tile = staged
    out = ndarray(tile.shape, tile.dtype, MemoryRegion.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """The bit patterns of an array."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def run_everywhere(kernel: Callable[..., Any], args: Sequence[Any], target: str = "trn2") -> tuple[NDArray[Any], ...]:
    """Run `kernel` in every mode; all results must agree bit for bit. Returns those of the reference."""
    expected = tilelang.simulate(kernel, mode="reference", target=target)(*[a.copy() for a in args])
    expected = expected if isinstance(expected, tuple) else (expected,)
    for mode, threads in MODES:
        got = tilelang.simulate(kernel, mode=mode, threads=threads, target=target)(*[a.copy() for a in args])
        got = got if isinstance(got, tuple) else (got,)
        for number, (ours, reference) in enumerate(zip(got, expected, strict=True)):
            assert ours.dtype == reference.dtype and ours.shape == reference.shape
            different = np.flatnonzero(bits(ours).ravel() != bits(reference).ravel())
            if different.size:
                at = np.unravel_index(different[0], ours.shape)
                raise AssertionError(
                    f"{mode} (threads={threads}) differs from the reference in "
                    f"{different.size} of {ours.size} elements of result {number}; "
                    f"first at {at}: {ours[at]!r} ({bits(ours)[at]:#x}) "
                    f"instead of {reference[at]!r} ({bits(reference)[at]:#x})"
                )
    return expected
