"""The kernel library: every small case on every mode, every case against its float64 reference, portability."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.nki  # makes `import nki` work for the kernel files

LIBRARY = Path(__file__).parents[2] / "kernels"
FILES = sorted(LIBRARY.glob("*.py"))
MODES = ("native", "reference", "debug")
SMALL_ELEMENTS = 250_000  # of the largest operand: the reference mode is far slower than the native one


@cache
def load(path: Path) -> ModuleType:
    """The kernel file as a module."""
    spec = importlib.util.spec_from_file_location(f"kernel_library_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def all_cases() -> list[Any]:
    """One pytest parameter (path, kernel, case) per case."""
    return [
        pytest.param(path, kernel, case, id=f"{kernel}-{case['label'].replace(' ', '_')}")
        for path in FILES
        for kernel, cases in load(path).TILELANG_CASES.items()
        for case in cases
    ]


def small_cases() -> list[Any]:
    """The cases small enough for the reference mode."""
    return [parameter for parameter in all_cases() if is_small(parameter.values[2])]


def is_small(case: dict[str, Any]) -> bool:
    """Whether every operand of a case is small."""
    return all(np.size(arg) <= SMALL_ELEMENTS for arg in case["args"](np.random.default_rng(0)))


def run(path: Path, kernel: str, case: dict[str, Any], **options: Any) -> tuple[list[np.ndarray], tuple[Any, ...]]:
    """Results of the kernel as a list, and the arguments it was given."""
    args = case["args"](np.random.default_rng(0))
    results = tilelang.simulate(getattr(load(path), kernel), **options)(*args)
    return list(results) if isinstance(results, tuple) else [results], args


def assert_close(results: list[np.ndarray], args: tuple[Any, ...], case: dict[str, Any]) -> None:
    """Each result is within the tolerance of the float64 reference."""
    expected = case["reference"](*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(results) == len(expected)
    for result, reference in zip(results, expected):
        assert result.shape == reference.shape
        error = np.abs(result.astype(np.float64) - reference).max() / np.abs(reference).max()
        assert error <= case["tolerance"], f"relative error {error:.3g}"


@pytest.mark.parametrize(("path", "kernel", "case"), all_cases())
def test_matches_reference(path: Path, kernel: str, case: dict[str, Any]) -> None:
    """Native results on the default target stay within the tolerance of the case."""
    results, args = run(path, kernel, case, target="trn2")
    assert_close(results, args, case)


@pytest.mark.parametrize(("path", "kernel", "case"), small_cases())
@pytest.mark.parametrize("target", ["trn1", "trn3"])
def test_runs_on_every_target(path: Path, kernel: str, case: dict[str, Any], target: str) -> None:
    """A case is correct on each target it names."""
    if target not in case["targets"]:
        pytest.skip(f"not for {target}")
    results, args = run(path, kernel, case, target=target)
    assert_close(results, args, case)


@pytest.mark.parametrize(("path", "kernel", "case"), small_cases())
def test_modes_agree_to_the_bit(path: Path, kernel: str, case: dict[str, Any]) -> None:
    """The three ways to run a program give the same bits."""
    native, *others = (run(path, kernel, case, target="trn2", mode=mode)[0] for mode in MODES)
    for other in others:
        for mine, theirs in zip(native, other, strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize(("path", "kernel", "case"), small_cases())
def test_bits_do_not_depend_on_threads(path: Path, kernel: str, case: dict[str, Any]) -> None:
    """One thread and three threads give the same bits."""
    one, three = (run(path, kernel, case, target="trn2", threads=threads)[0] for threads in (1, 3))
    for mine, theirs in zip(one, three, strict=True):
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_public_names_only(path: Path) -> None:
    """A kernel file imports nothing of tilelang, so that it also runs on a device."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported <= {"__future__", "collections", "functools", "math", "ml_dtypes", "nki", "numpy", "typing"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cases_are_complete(path: Path) -> None:
    """Every case has the promised keys, names a kernel of its file, and gives fresh equal data for equal seeds."""
    module = load(path)
    for kernel, cases in module.TILELANG_CASES.items():
        assert callable(getattr(module, kernel))
        for case in cases:
            assert set(case) == {"label", "args", "reference", "numpy", "tolerance", "targets"}
            assert "trn2" in case["targets"]
        first, again = (cases[0]["args"](np.random.default_rng(7)) for _ in range(2))
        for a, b in zip(first, again, strict=True):
            assert a.tobytes() == b.tobytes() if isinstance(a, np.ndarray) else a == b
