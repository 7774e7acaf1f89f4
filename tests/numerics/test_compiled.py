"""Compiled formulas give the bits of the NumPy ones, on whatever vector width the compiler targets."""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.numerics.oracles import bits, sample
from tilelang import numerics
from tilelang.dtypes import FORMATS
from tilelang.numerics import alu, casts, functions
from tilelang.numerics.fma import fma

importlib.import_module("tilelang.execute.engines.jit")  # gives Numba the primitives and formulas

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
Arrays = tuple[NDArray[Any], ...]


def _floats(arity: int) -> Arrays:
    return tuple(sample(20_000, seed) for seed in range(arity))


def _words(dtype: type) -> Arrays:
    a, b = (bits(x).astype(dtype) for x in _floats(2))
    b[::2] &= 31  # useful shift counts, and operands that are sometimes equal
    return a, np.where(np.arange(a.size) % 7 == 0, a, b)


def cases() -> dict[str, tuple[Callable[..., Any], Arrays]]:
    """Every formula of every table, with its operands."""
    found: dict[str, tuple[Callable[..., Any], Arrays]] = {"fma": (fma, _floats(3))}
    for name, formula in casts.ENCODE.items():
        found[f"encode {name}"] = (formula, _floats(1))
    for name, formula in casts.DECODE.items():
        found[f"decode {name}"] = (formula, (bits(_floats(1)[0]).astype(FORMATS[name].carrier),))
    for name, formula in alu.BINARY.items():
        found[f"binary {name}"] = (formula, _floats(2))
    for name, formula in alu.UNARY.items():
        found[f"unary {name}"] = (formula, _floats(1))
    for name, formula in alu.INTEGER.items():
        for dtype in (np.int32, np.uint32, np.int8, np.uint16):
            arity = 1 if name == "invert" else 2
            found[f"integer {name} {dtype.__name__}"] = (formula, _words(dtype)[:arity])
    for name, formula in functions.ACTIVATIONS.items():
        found[f"activation {name}"] = (formula, _floats(2 if name == "prelu" else 1))
    return found


def compiled(formula: Callable[..., Any], operands: Arrays, result: np.dtype[Any]) -> NDArray[Any]:
    """`formula` over `operands` in a loop that Numba compiles for this machine."""

    def loop1(a: Any, out: Any) -> None:
        for i in range(out.size):
            out[i] = formula(a[i])

    def loop2(a: Any, b: Any, out: Any) -> None:
        for i in range(out.size):
            out[i] = formula(a[i], b[i])

    def loop3(a: Any, b: Any, c: Any, out: Any) -> None:
        for i in range(out.size):
            out[i] = formula(a[i], b[i], c[i])

    out = np.empty(operands[0].shape, result)
    numba.njit(error_model="numpy")((loop1, loop2, loop3)[len(operands) - 1])(*operands, out)
    return out


def raw(x: NDArray[Any]) -> NDArray[Any]:
    return bits(x) if x.dtype == np.float32 else x


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_compiled_formula_gives_the_bits_of_numpy(name: str) -> None:
    formula, operands = CASES[name]
    expected = np.asarray(formula(*operands))
    found = compiled(formula, operands, expected.dtype)
    wrong = np.flatnonzero(raw(found) != raw(expected))
    assert wrong.size == 0, ([operand[wrong[:3]] for operand in operands], found[wrong[:3]], expected[wrong[:3]])


def test_formulas_list_every_formula_of_the_tables() -> None:
    formulas = {formula for formula, _ in CASES.values()} - set(numerics.PRIMITIVES)
    assert formulas <= set(numerics.FORMULAS)
    assert len(set(numerics.FORMULAS)) == len(numerics.FORMULAS)


def digest() -> str:
    """One hash over the compiled results of all formulas."""
    total = hashlib.sha256()
    for formula, operands in CASES.values():
        result = np.asarray(formula(*operands)).dtype
        total.update(compiled(formula, operands, result).tobytes())
    return total.hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names x86 instruction sets")
def test_any_instruction_set_gives_the_same_bits() -> None:
    total = hashlib.sha256()
    for formula, operands in CASES.values():
        total.update(np.asarray(formula(*operands)).tobytes())
    program = "from tests.numerics.test_compiled import digest; print(digest())"
    for cpu in ("x86-64", "haswell"):
        # An empty feature list would mean those of this machine.
        environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": "+sse2"}
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=environment
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.strip() == total.hexdigest(), cpu
