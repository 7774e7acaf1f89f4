"""Costs around a run: import, first call, replay of small kernels, tracing and encoding, memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from .common import KERNELS, normal

_FIRST_RESULT = """
import sys
sys.path.insert(0, {kernels!r})
import numpy as np
import tilelang.nki
import softmax
softmax.softmax(np.ones((128, 512), np.float32))
"""


def small_kernel(x: Any) -> Any:
    """Three instructions."""
    import nki.isa as nisa
    import nki.language as nl

    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


def long_kernel(x: Any, instructions: int) -> Any:
    """A chain of about `instructions` vector instructions on small tiles."""
    import nki.isa as nisa
    import nki.language as nl

    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for step in range(instructions // 2):
        column = step % 8 * 8
        part = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=part, src=tile[:, column : column + 8])
        nisa.tensor_tensor(dst=tile[:, column : column + 8], data1=tile[:, 0:8], data2=part, op=nl.add)
    nisa.dma_copy(dst=out, src=tile)
    return out


class Process:
    """Whole processes, with a warm disk cache."""

    timeout = 120.0

    def setup(self) -> None:
        self.code = _FIRST_RESULT.format(kernels=str(KERNELS))
        subprocess.run([sys.executable, "-c", self.code], check=True)

    def time_import(self) -> None:
        """`import tilelang` and its entry points, in a fresh interpreter."""
        subprocess.run([sys.executable, "-c", "import tilelang; tilelang.jit"], check=True)

    def time_first_result(self) -> None:
        """A fresh process up to its first result."""
        subprocess.run([sys.executable, "-c", self.code], check=True)


class Calls:
    """Calls in a running process."""

    def setup(self) -> None:
        import tilelang.nki

        self.x = normal(128, 64)
        self.small = tilelang.nki.simulate(small_kernel)
        self.small(self.x)
        tilelang.nki.simulate(long_kernel)(self.x, 64)

    def time_replay_three_instructions(self) -> None:
        """The second call of a kernel of three instructions."""
        self.small(self.x)

    def time_first_call_336_instructions(self) -> None:
        """Trace, check, encode, run: a kernel object that was never called."""
        import tilelang

        tilelang.simulate(lambda x: long_kernel(x, 334))(self.x)


class Tracing:
    """Trace, check and encode without running."""

    timeout = 120.0

    def setup(self) -> None:
        import tilelang.nki  # noqa: F401

        self.x = normal(128, 64)
        self._compile(1000)

    def _compile(self, instructions: int) -> float:
        import tilelang

        start = time.perf_counter()
        tilelang.compile(long_kernel, self.x, instructions, threads=1)
        return time.perf_counter() - start

    def track_microseconds_per_instruction(self) -> float:
        """Trace, check, analyse, place and encode."""
        return min(self._compile(20_000) for _ in range(3)) / 20_000 * 1e6

    track_microseconds_per_instruction.unit = "us"  # type: ignore[attr-defined]

    def track_seconds_100000(self) -> float:
        """100,000 instructions in all."""
        return self._compile(100_000)

    track_seconds_100000.unit = "s"  # type: ignore[attr-defined]

    def track_megabytes_100000(self) -> float:
        """Peak memory above that before."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._compile(100_000)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    track_megabytes_100000.unit = "MB"  # type: ignore[attr-defined]


_MEMORY = """
import resource, sys
sys.path.insert(0, {kernels!r})
import numpy as np
import tilelang.nki, softmax
softmax.softmax(np.ones((1, 8), np.float32))
x = np.ones((4096, 2048), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
softmax.softmax(x)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) / 1024 - x.nbytes / 2**20)
"""


class Memory:
    """Peak memory of a run."""

    timeout = 120.0

    def track_softmax_megabytes_above_results(self) -> float:
        """Softmax [4096, 2048]: peak above the same process after a tiny kernel, less the output."""
        code = _MEMORY.format(kernels=str(KERNELS))
        return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)

    track_softmax_megabytes_above_results.unit = "MB"  # type: ignore[attr-defined]


class Casts:
    """tensor_copy between formats on a large tile, per element."""

    params = ["bfloat16", "float8_e4m3"]
    param_names = ["dtype"]

    def setup(self, dtype: str) -> None:
        import tilelang.nki

        def cast(x: Any, repeats: int) -> Any:
            import nki.isa as nisa
            import nki.language as nl

            out = nl.ndarray((128, 8), dtype=dtype, buffer=nl.shared_hbm)
            tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x)
            low = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
            for _ in range(repeats):
                nisa.tensor_copy(dst=low, src=tile)
                nisa.tensor_copy(dst=tile, src=low)
            nisa.dma_copy(dst=out, src=low[:, 0:8])
            return out

        self.kernel = tilelang.nki.simulate(cast, threads=1)
        self.x = normal(128, 2048)
        for repeats in (1, 51):
            self.kernel(self.x, repeats)

    def track_nanoseconds_per_element(self, dtype: str) -> float:
        """A cast from float32 and back, halved."""
        times = []
        for repeats in (1, 51):
            start = time.perf_counter()
            self.kernel(self.x, repeats)
            times.append(time.perf_counter() - start)
        return (times[1] - times[0]) / 100 / np.prod(self.x.shape) * 1e9

    track_nanoseconds_per_element.unit = "ns"  # type: ignore[attr-defined]
