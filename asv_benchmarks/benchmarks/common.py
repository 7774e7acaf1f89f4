"""What all benchmarks share: profile, threads, data, kernels of the library, and a fair comparison with NumPy.

`TILELANG_BENCH_PROFILE=fast` takes the small cases and few rounds, `regular` (the default) all. `TILELANG_NUM_THREADS`
sets the threads of both sides; without it, every usable core. Seeds and cases are append-only: a changed one starts a
new history. Times of one machine mean little on another, ratios taken in one process much more: judge by `track_`.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tilelang.cases import max_ulp, relative_error

SEED = 20250801
PROFILES = ("fast", "regular")
PROFILE = os.environ.get("TILELANG_BENCH_PROFILE", "regular")
if PROFILE not in PROFILES:
    raise ValueError(f"TILELANG_BENCH_PROFILE={PROFILE!r}; profiles: {', '.join(PROFILES)}")

ROUNDS = {"fast": 5, "regular": 25}[PROFILE]
SAMPLE_SECONDS = 0.005  # a sample repeats the call until it lasts this long, so that the clock's steps do not count
KERNELS = Path(__file__).resolve().parents[2] / "kernels"


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


THREADS = int(os.environ.get("TILELANG_NUM_THREADS") or usable_cores())


def choose(fast: Sequence[Any], regular: Sequence[Any]) -> list[Any]:
    """The parameters of this profile; the regular one includes the fast ones."""
    return [*fast, *regular] if PROFILE == "regular" else list(fast)


def generator() -> np.random.Generator:
    """A fresh generator with the suite's seed."""
    return np.random.default_rng(SEED)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Standard normal values of `dtype`, the same at each call."""
    return generator().standard_normal(shape, dtype=np.float32).astype(dtype)


@cache
def kernel_file(name: str) -> ModuleType:
    """The module kernels/<name>.py, with `nki` from tilelang. NotImplementedError (asv: skip) if it is absent."""
    import tilelang.nki  # noqa: F401  (makes `import nki` work in the kernel file)

    path = KERNELS / f"{name}.py"
    if not path.exists():
        raise NotImplementedError(f"this version has no kernels/{name}.py")
    spec = importlib.util.spec_from_file_location(f"kernels_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def kernel_case(file: str, kernel: str, label: str) -> dict[str, Any]:
    """The row of `TILELANG_CASES[kernel]` in kernels/<file>.py that bears `label`."""
    rows = kernel_file(file).TILELANG_CASES[kernel]
    found = [row for row in rows if row["label"] == label]
    if len(found) != 1:
        raise LookupError(f"{file}.{kernel}: {len(found)} cases {label!r}; there are: {[row['label'] for row in rows]}")
    return found[0]


def _seconds(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _repeats(call: Callable[[], object]) -> int:
    call()  # the first call compiles, allocates, starts threads
    return max(1, round(SAMPLE_SECONDS / max(_seconds(call, 1), 1e-7)))


# OpenBLAS keeps its threads spinning for a while after a product; they would fight the other side for the cores.
PAUSE_SECONDS = 0.3


def _batch(call: Callable[[], object], repeats: int, rounds: int) -> list[float]:
    time.sleep(PAUSE_SECONDS)
    call()
    return [_seconds(call, repeats) for _ in range(rounds)]


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], threads: int = THREADS, rounds: int = ROUNDS
) -> tuple[float, float]:
    """Median seconds of `ours` and of `theirs`, NumPy on `threads` threads: three batches of each, in turn."""
    with threadpool_limits(threads):
        counts = _repeats(ours), _repeats(theirs)
        share = max(2, rounds // 3)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(3):
            times[0].extend(_batch(ours, counts[0], share))
            times[1].extend(_batch(theirs, counts[1], share))
        return statistics.median(times[0]), statistics.median(times[1])


def ratio_of_times(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Time of `ours` over time of `theirs`, both on `THREADS` threads."""
    mine, other = compare(ours, theirs, rounds=rounds)
    return mine / other


class KernelBenchmark(ABC):
    """One kernel of the library, per case: time, ratio to NumPy, error.

    A subclass sets `file`, `kernel` and `params` (labels of `TILELANG_CASES`, through `choose`) and writes `numpy`, the
    same computation as a NumPy user would write it, in float32. Compilation happens in `setup` and is not timed.
    """

    file = ""
    kernel = ""
    param_names = ["case"]
    params: list[Any] = []
    timeout = 300.0

    @abstractmethod
    def numpy(self, *args: Any) -> object:
        """The computation in NumPy, on the arguments that `prepare` returns."""

    def prepare(self, *args: Any) -> tuple[Any, ...]:
        """Arguments of `numpy`: by default the kernel's arrays, widened to float32 outside the measurement."""
        return tuple(arg.astype(np.float32) if isinstance(arg, np.ndarray) else arg for arg in args)

    def setup(self, label: str) -> None:
        """Make the data, compile, and run once."""
        import tilelang

        self.case = kernel_case(self.file, self.kernel, label)
        self.args = self.case["args"](generator())
        self.numpy_args = self.prepare(*self.args)
        function = getattr(kernel_file(self.file), self.kernel)
        self.executable = tilelang.compile(function, *self.args, threads=THREADS)
        self.result = self.executable.run(*self.args)

    def time_run(self, label: str) -> None:
        """Replay of the compiled kernel."""
        self.executable.run(*self.args)

    def track_time_over_numpy(self, label: str) -> float:
        """Below 1: faster than NumPy."""
        return ratio_of_times(lambda: self.executable.run(*self.args), lambda: self.numpy(*self.numpy_args))

    track_time_over_numpy.unit = "ours / NumPy"  # type: ignore[attr-defined]

    def track_error(self, label: str) -> float:
        """Largest error, relative to the largest value of the reference; the same on every machine."""
        return max(relative_error(got, expected) for got, expected in self._pairs())

    track_error.unit = "max error / max reference"  # type: ignore[attr-defined]

    def track_max_ulp(self, label: str) -> float:
        """Largest error in units in the last place of the result's dtype; the same on every machine."""
        return max(max_ulp(got, expected) for got, expected in self._pairs())

    track_max_ulp.unit = "ulp"  # type: ignore[attr-defined]

    def _pairs(self) -> list[tuple[Any, Any]]:
        expected = self.case["reference"](*self.args)
        return list(zip(_as_tuple(self.result), _as_tuple(expected), strict=True))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
