"""Cases of kernel files: loading `TILELANG_CASES`, running a case, and measuring its error and time.

A kernel file offers its cases as plain data: `TILELANG_CASES` maps a kernel's name to dicts with `args` (a function
of a NumPy Generator),
`reference` (float64), `tolerance`, `targets`, and optionally `label` and `numpy` (the same maths in float32, for the
time).
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang import driver
from tilelang.devices import resolve_target
from tilelang.dtypes import Format, format_of
from tilelang.errors import TileTypeError, TileValueError

__all__ = ["Case", "Outcome", "cases_of", "load_module", "max_ulp", "random_array", "relative_error", "run_case"]

_KEYS = ("args", "reference", "tolerance", "targets", "label", "numpy")
_MIN_SECONDS = 0.05  # a timing repeats until it has taken this long
_MAX_REPEATS = 50
# OpenBLAS keeps its threads spinning for a while after a product; they would fight ours for the cores.
_PAUSE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a kernel file."""

    kernel: str
    label: str
    function: Any
    data: dict[str, Any]

    @property
    def targets(self) -> tuple[str, ...]:
        """Devices the case is meant for."""
        return tuple(self.data.get("targets", ("trn2",)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running a case gave: `error` = max|result - reference| / max|reference|; times in ms (NumPy: None when not
    measured).
    """

    kernel: str
    label: str
    shapes: str
    dtype: str
    target: str
    instructions: int
    error: float
    ulp: float
    tolerance: float
    milliseconds: float
    numpy_milliseconds: float | None

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance


def load_module(path: Path) -> ModuleType:
    """Import the kernel file `path`; its folder is importable for it. Raises TileValueError when there is no such
    file.
    """
    if not path.is_file():
        raise TileValueError(f"no such kernel file: {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TileValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def cases_of(module: ModuleType, kernels: tuple[str, ...] = ()) -> Iterator[Case]:
    """The cases of `module`, of the named kernels only if any are named. Raises TileValueError for an unknown
    kernel.
    """
    table = getattr(module, "TILELANG_CASES", {})
    if not isinstance(table, dict) or not all(isinstance(rows, (list, tuple)) for rows in table.values()):
        raise TileTypeError(f"TILELANG_CASES of {module.__name__} must map names of kernels to lists of cases")
    for name in kernels:
        if name not in table:
            raise TileValueError(
                f"{module.__name__} has no cases of {name!r}; it has {', '.join(map(str, table)) or 'none'}"
            )
    for name, rows in table.items():
        if kernels and name not in kernels:
            continue
        function = getattr(module, name, None) if isinstance(name, str) else None
        if not callable(function):
            raise TileValueError(f"TILELANG_CASES names {name!r}, but {module.__name__} has no such kernel")
        for number, row in enumerate(rows):
            _check_row(row, f"case {number} of {name!r} in {module.__name__}")
            yield Case(name, str(row.get("label", f"case {number}")), function, row)


def _check_row(row: Any, where: str) -> None:
    """Raise TileTypeError or TileValueError for a case that cannot run."""
    if not isinstance(row, dict):
        raise TileTypeError(f"{where} is {type(row).__name__}, not a dict")
    missing = [key for key in ("args", "reference", "tolerance") if key not in row]
    unknown = [key for key in row if key not in _KEYS]
    if missing or unknown:
        raise TileValueError(
            f"{where} {'lacks ' + repr(missing[0]) if missing else 'has an unknown key ' + repr(unknown[0])}",
            hint=f"a case is a dict with {', '.join(_KEYS)}; the first three are required",
        )
    for key in ("args", "reference", "numpy"):
        if not callable(row.get(key, max)) and not (key == "numpy" and row[key] is None):
            raise TileTypeError(f"{where}: {key} is {row[key]!r:.80}, not a function")
    tolerance, targets = row["tolerance"], row.get("targets", ())
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not tolerance >= 0:
        raise TileValueError(f"{where}: tolerance is {tolerance!r:.80}; it must be a number of at least 0")
    if not isinstance(targets, (tuple, list)):
        raise TileTypeError(f"{where}: targets is {targets!r:.80}, not a tuple of devices")
    for target in targets:
        resolve_target(target)


def run_case(
    case: Case,
    *,
    target: str,
    mode: str = "native",
    precision: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> Outcome:
    """Run one case on `target`, compare it with its reference and time it (native mode: median of replays)."""
    args = case.data["args"](np.random.default_rng(seed))
    args = tuple(args) if isinstance(args, list) else args
    kernel = driver.simulate(case.function, target=target, mode=mode, precision=precision, threads=threads)
    if not isinstance(args, tuple):
        raise TileTypeError(f"{case.kernel}: args of {case.label!r} gives {type(args).__name__}, not a tuple")
    copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)
    results = _as_tuple(kernel(*copies))
    references = _as_tuple(case.data["reference"](*args))
    if len(results) != len(references):
        raise TileTypeError(f"{case.kernel} returns {len(results)} results, its reference {len(references)}")
    pairs = list(zip(results, references, strict=True))
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    options = {"target": target, "mode": "native" if mode == "debug" else mode, "precision": precision}
    instructions = len(driver.compile(kernel.with_options(**options), *args).program)
    ours = _median_ms(lambda: kernel(*args)) if mode == "native" else _once_ms(lambda: kernel(*args))
    same_maths = case.data.get("numpy", case.data["reference"])
    wide = tuple(_widened(a) for a in args)
    return Outcome(
        kernel=case.kernel,
        label=case.label,
        shapes=" ".join("x".join(map(str, a.shape)) for a in arrays),
        dtype=", ".join(dict.fromkeys(format_of(a.dtype).name for a in arrays)),
        target=target,
        instructions=instructions,
        error=max(relative_error(r, e) for r, e in pairs),
        ulp=max(max_ulp(r, e) for r, e in pairs),
        tolerance=float(case.data["tolerance"]),
        milliseconds=ours,
        numpy_milliseconds=None if same_maths is None else _median_ms(lambda: same_maths(*wide)),
    )


def _widened(value: Any) -> Any:
    """Low-precision arrays as float32, which is how NumPy computes on them."""
    return (
        value.astype(np.float32) if isinstance(value, np.ndarray) and format_of(value.dtype).kind != "packed" else value
    )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _once_ms(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1e3


def _median_ms(function: Callable[[], Any]) -> float:
    """Median milliseconds of a call, after a warm-up."""
    time.sleep(_PAUSE_SECONDS)
    function()
    times = [_once_ms(function)]
    while len(times) < 3 or (sum(times) < _MIN_SECONDS * 1e3 and len(times) < _MAX_REPEATS):
        times.append(_once_ms(function))
    return statistics.median(times)


def relative_error(result: NDArray[Any], reference: NDArray[Any]) -> float:
    """max|result - reference| / max|reference|, in float64; infinite when shapes differ or NaNs disagree."""
    expected = np.asarray(reference, np.float64)
    got = np.asarray(result).astype(np.float64)
    if got.shape != expected.shape or not np.array_equal(np.isnan(got), np.isnan(expected)):
        return float("inf")
    difference = float(np.nanmax(np.abs(got - expected), initial=0.0))
    scale = float(np.nanmax(np.abs(expected), initial=0.0))
    return difference / scale if scale else difference


def max_ulp(result: NDArray[Any], reference: NDArray[Any]) -> float:
    """The largest error in units in the last place of the result's format at the reference value; for integers the
    difference itself.
    """
    expected = np.asarray(reference, np.float64)
    got = np.asarray(result)
    difference = np.abs(got.astype(np.float64) - expected)
    fmt = format_of(got.dtype)
    if fmt.is_float:
        difference = difference / _spacing(expected, fmt)
    finite = difference[np.isfinite(difference)]
    return float(finite.max(initial=0.0))


def _spacing(values: NDArray[np.float64], fmt: Format) -> NDArray[np.float64]:
    """Distance between neighbours of `fmt` around `values`."""
    exponent = np.frexp(np.abs(values))[1] - 1
    lowest = 1 - fmt.bias
    return np.ldexp(1.0, np.maximum(exponent, lowest) - fmt.mantissa)


def random_array(text: str, rng: np.random.Generator) -> NDArray[Any]:
    """A random array from `128x512:bf16`: dims, then a dtype (default float32; short names bf16, fp16, fp32, fp8)."""
    dims, _, name = text.strip().partition(":")
    short = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3", "": "float32"}
    try:
        shape = tuple(int(n) for n in dims.lower().split("x"))
    except ValueError:
        raise TileValueError(f"{text!r} is not a shape; write 128x512:bf16") from None
    fmt = format_of(short.get(name, name))
    if fmt.is_integer:
        info = np.iinfo(fmt.carrier)
        low, high = (0, 1) if fmt.kind == "bool" else (max(info.min, -100), min(info.max, 100))
        return rng.integers(low, high, shape, endpoint=True).astype(fmt.host)
    return rng.standard_normal(shape).astype(np.float32).astype(fmt.host)
