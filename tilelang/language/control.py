"""Loops, program identity, ordering and printing (language.md sections 3.8, 4.1, 5.1, 7; nki-0.7.md section 1.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilelang.errors import TileRuleError, TileTypeError, TileValueError
from tilelang.ir.context import current_builder
from tilelang.ir.scalars import NkiScalar, VirtualRegister, whole
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.simulated import simulated_print
from tilelang.language.common import deprecated, fail

__all__ = [
    "affine_range",
    "device_print",
    "dynamic_range",
    "fori_loop",
    "no_reorder",
    "num_programs",
    "program_id",
    "program_ndim",
    "sequential_range",
    "static_range",
    "while_loop",
]


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Python's `range`: the loop is unrolled while tracing."""
    for name, value in (("start", start), ("stop", stop), ("step", step)):
        if isinstance(value, (VirtualRegister, NkiScalar)) or (name == "stop" and value is None):
            continue  # the former say themselves what to use
        if whole(value) is None:
            fail(
                TileTypeError(
                    f"a range of {name}={value!r:.80}: bounds of unrolled loops are ints known while tracing",
                    rule="LANG.R353",
                    hint="nl.fori_loop(lower, upper, body) takes registers and NkiScalars",
                )
            )
    if step == 0:
        fail(TileValueError("a range with step 0", rule="LANG.R353"))
    return range(start) if stop is None else range(start, stop, step)


def affine_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Python's `range`: the loop is unrolled while tracing."""
    return static_range(start, stop, step)


def sequential_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Python's `range`: the loop is unrolled while tracing."""
    return static_range(start, stop, step)


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[Any]:
    """A device loop for sources before 0.7: yields one frozen register, the body is traced once.

    start, stop: ints or registers; step: a positive int. `nl.fori_loop` replaces it; strict mode refuses it.
    """
    if not isinstance(step, int) or isinstance(step, bool):
        fail(TileRuleError(f"nl.dynamic_range: step must be an int, got {type(step).__name__}", rule="LANG.R350"))
    deprecated("nl.dynamic_range was removed in NKI 0.7", "FE.R4", "use nl.fori_loop(lower, upper, body)")
    lower, upper = (0, start) if stop is None else (start, stop)
    iterator: Iterator[Any] = current_builder().dynamic_range(lower, upper, step)
    return iterator


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], None], step: int = 1) -> None:
    """`for i in range(lower, upper, step): body_fun(i)` as a device loop, traced once.

    lower, upper: ints, registers or int32 NkiScalars; step: a positive int. `i` is an NkiScalar, or a VirtualRegister
    when a bound is one. The body returns None; tensors made in it may not be used outside.
    """
    current_builder().fori_loop(lower, upper, body_fun, step)


def while_loop(init: Any, body_fun: Callable[[Any], Any]) -> None:
    """`while r != 0: r = body_fun(r)` from `r = init` as a device loop, traced once.

    init: a VirtualRegister or int32 NkiScalar; the body returns the next one.
    """
    current_builder().while_loop(init, body_fun)


def program_ndim() -> int:
    """Dims of the launch grid: 0 for `k(…)`, 1 for `k[n](…)`."""
    return int(current_builder().grid)


def program_id(axis: int = 0) -> int:
    """Index of the running core along `axis` of the launch grid."""
    _check_axis("program_id", axis)
    return int(current_builder().core)


def num_programs(axes: int | Sequence[int] | None = 0) -> int:
    """Number of cores along `axes` of the launch grid: an int, a tuple of ints, or None for the whole grid."""
    for axis in axes if isinstance(axes, (tuple, list)) else () if axes is None else (axes,):
        _check_axis("num_programs", axis)
    return int(current_builder().lnc)


def _check_axis(function: str, axis: Any) -> None:
    if whole(axis) != 0:
        hint = "a launch grid has one dim: axis 0"
        fail(
            TileValueError(
                f"nl.{function}: axis {axis!r} of a grid of {program_ndim()} dims", rule="LANG.R351", hint=hint
            )
        )


@contextmanager
def no_reorder() -> Iterator[None]:
    """Inside the `with` block a device compiler keeps the order of instructions. Dynamic loops are errors there."""
    builder = current_builder()
    builder.ordered += 1
    try:
        yield
    finally:
        builder.ordered -= 1


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print `print_prefix` and the content of `tensor` whenever the program gets here, in every mode."""
    if not isinstance(print_prefix, str):
        kind = type(print_prefix).__name__
        fail(TileTypeError(f"nl.device_print: print_prefix must be a str, got {kind}", rule="LANG.R352"))
    if not isinstance(tensor, NkiTensor):
        kind = type(tensor).__name__
        fail(TileTypeError(f"nl.device_print: expected a tensor, got {kind}", rule="LANG.R352", hint="use print"))
    simulated_print(tensor, print_prefix)
