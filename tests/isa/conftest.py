"""Helpers of the instruction tests: tensors from text, checked calls, and runs of NumPy bodies on plain arrays."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang.isa
from tilelang.devices import get_device
from tilelang.dtypes import FORMATS, format_of
from tilelang.errors import Diagnostic
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.checking import check_call
from tilelang.isa.enums import engine
from tilelang.isa.spec import REGISTRY, Call
from tilelang.isa.tile import Machine, Tile

for _module in pkgutil.iter_modules(tilelang.isa.__path__):
    importlib.import_module(f"tilelang.isa.{_module.name}")

_TENSOR = re.compile(r"(indirect )?(sbuf|psum|private_hbm|shared_hbm)(?:@(\d+))? (\w+)\[([\d,]+)\]")


def make_tensor(text: str) -> NkiTensor:
    """The tensor that `text` describes: `psum float32[128,4,8]`, `sbuf@32 …` at partition 32, `indirect sbuf …`."""
    match = _TENSOR.fullmatch(text)
    assert match is not None, text
    indirect, buffer, start, dtype, sizes = match.groups()
    shape = tuple(int(n) for n in sizes.split(","))
    address = None if start is None else (int(start), 0)
    tensor = NkiTensor.over(Storage(shape, FORMATS[dtype], MemoryRegion[buffer], address=address))
    if indirect is None:
        return tensor
    index = NkiTensor.over(Storage((shape[0], shape[1] // 16), FORMATS["uint32"], MemoryRegion.sbuf))
    return tensor.indirect(index)


def _argument(value: Any, is_operand: bool) -> Any:
    if isinstance(value, str):
        return make_tensor(value)
    return value(make_tensor) if is_operand and callable(value) else value


def bind_call(name: str, target: str = "trn2", **arguments: Any) -> Call:
    """The call of instruction `name`; text, or a function of `make_tensor`, stands for a tensor."""
    spec = REGISTRY[name]
    values = {key: _argument(value, key in spec.operands) for key, value in arguments.items()}
    bound = spec.signature.bind(**values)
    bound.apply_defaults()
    return spec.bind([bound.arguments[n] for n in spec.names], get_device(target))


def run_body(
    name: str, target: str = "trn2", machine: Machine | None = None, start: int = 0, **arguments: Any
) -> Machine:
    """Run the body of instruction `name` on NumPy arrays, which it reads and writes in place; returns the machine.

    The call is bound and checked first, with every array in SBUF. `start` is the first physical partition.
    """
    machine = machine or Machine()
    shapes = {
        key: f"sbuf {format_of(value.dtype).name}[{','.join(map(str, value.shape))}]"
        for key, value in arguments.items()
        if isinstance(value, np.ndarray)
    }
    call = bind_call(name, target, **{**arguments, **shapes})
    errors, _ = check_call(call)
    assert errors == [], [d.render() for d in errors]
    values = dict(call.values)
    for key, value in arguments.items():
        if isinstance(value, np.ndarray):
            fmt = format_of(value.dtype)
            values[key] = Tile(value.view(fmt.carrier), fmt, fmt.name, start)
    if "engine" in values:
        values["engine"] = engine[call.engine]
    if call.spec.uses_machine:
        values["machine"] = machine
    with np.errstate(all="ignore"):
        call.spec.body(**values)
    return machine


@pytest.fixture
def call() -> Callable[..., Call]:
    """`call(name, target, **arguments)`: a bound call."""
    return bind_call


@pytest.fixture
def run() -> Callable[..., Machine]:
    """`run(name, target, machine, start, **arguments)`: run a body on arrays."""
    return run_body


@pytest.fixture
def diagnose() -> Callable[..., tuple[list[Diagnostic], list[Diagnostic]]]:
    """`diagnose(name, target, **arguments)`: the errors and warnings of a call."""
    return lambda name, target="trn2", **arguments: check_call(bind_call(name, target, **arguments))
