"""Entry points of the older dialect: jit, simulate_kernel, baremetal, benchmark, profile (language.md 8.2, 8.5)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from tilelang import language
from tilelang.beta1.spmd import run_grid
from tilelang.beta1.tensors import Tile
from tilelang.driver import Kernel
from tilelang.errors import TileTypeError
from tilelang.ir.context import active_builder
from tilelang.ir.tensor import NkiTensor

__all__ = ["LegacyKernel", "baremetal", "benchmark", "jit", "profile", "simulate_kernel", "trace"]


def _mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, (Tile, NkiTensor)):
        return convert(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(item, convert) for item in value)
    if isinstance(value, dict):
        return {name: _mapped(item, convert) for name, item in value.items()}
    return value


def _wrap(value: Any) -> Any:
    return Tile.over(value) if isinstance(value, NkiTensor) else value


def _unwrap(value: Any) -> Any:
    """The HBM tensor of a result; a tile on chip is copied into one."""
    if not isinstance(value, Tile):
        return value
    found = value.modern()
    if not found.on_chip:
        return found
    out = language.ndarray(tuple(found.shape), found.dtype, buffer=language.shared_hbm)
    language.store(out, found)
    return out


class LegacyKernel:
    """A kernel of the older dialect: `k(*args)`, `k[g0, g1](*args)`."""

    def __init__(self, function: Callable[..., Any], grid: tuple[int, ...] = (), target: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.grid = grid
        self.target = target

        def body(*args: Any, **kwargs: Any) -> Any:
            given = [_mapped(value, _wrap) for value in args]
            named = {name: _mapped(value, _wrap) for name, value in kwargs.items()}
            return _mapped(run_grid(grid, lambda: function(*given, **named)), _unwrap)

        body.__name__ = getattr(function, "__name__", "kernel")
        self.kernel = Kernel(body) if target is None else Kernel(body).with_options(target=target)

    def __getitem__(self, grid: Any) -> LegacyKernel:
        sizes = grid if isinstance(grid, tuple) else (grid,)
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
            raise TileTypeError(f"a grid has positive ints, got {grid!r}")
        return LegacyKernel(self.function, sizes, self.target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if active_builder() is not None:
            return self.function(*args, **kwargs)
        return self.kernel(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


def jit(func: Any = None, mode: str = "auto", *, platform_target: str | None = None, **_: Any) -> Any:
    """Make a kernel of a function; all modes run on the emulator."""
    if func is None:
        return lambda function: jit(function, mode, platform_target=platform_target)
    if isinstance(func, LegacyKernel):
        return func
    if not callable(func):
        raise TileTypeError(f"jit needs a function, got {type(func).__name__}")
    return LegacyKernel(func, target=platform_target)


trace = jit


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on NumPy arrays; arrays that it writes are updated in place."""
    return jit(kernel)(*args, **kwargs)


def baremetal(kernel: Any = None, **options: Any) -> Any:
    """Run a kernel on NumPy arrays; files that a device run would leave are not made."""
    return jit if kernel is None or not callable(kernel) else jit(kernel)


profile = baremetal


class _Latency:
    """Times of calls on the emulator, microseconds. No device latency is measured."""

    def __init__(self, times: list[float]) -> None:
        self._times = sorted(times)

    def get_latency_percentile(self, percentile: float) -> int:
        """The time below which `percentile` percent of the calls stayed, in microseconds of the emulator."""
        if not self._times:
            raise TileTypeError("the kernel has not been called yet")
        return int(self._times[min(int(percentile / 100 * len(self._times)), len(self._times) - 1)])


class _Result:
    def __init__(self) -> None:
        self.nc_latency = _Latency([])


class _Benchmark:
    def __init__(self, kernel: LegacyKernel, warmup: int, iters: int) -> None:
        functools.update_wrapper(self, kernel.function)
        self.kernel = kernel
        self.calls = max(iters, 1)
        self.warmup = warmup
        self.benchmark_result = _Result()

    def __getitem__(self, grid: Any) -> _Benchmark:
        return _Benchmark(self.kernel[grid], self.warmup, self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.kernel(*args, **kwargs)
        times = []
        for _ in range(min(self.calls, _MOST_CALLS)):
            start = time.perf_counter()
            result = self.kernel(*args, **kwargs)
            times.append((time.perf_counter() - start) * 1e6)
        self.benchmark_result.nc_latency = _Latency(times)
        return result


_MOST_CALLS = 10


def benchmark(kernel: Any = None, *, warmup: int = 10, iters: int = 100, **_: Any) -> Any:
    """Time a kernel on the emulator, at most 10 calls: `.benchmark_result.nc_latency.get_latency_percentile(50)`.

    The times are those of the emulator on this machine; what a device takes is not measured.
    """
    if kernel is None:
        return lambda function: benchmark(function, warmup=warmup, iters=iters)
    return _Benchmark(jit(kernel), warmup, iters)
