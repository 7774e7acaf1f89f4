"""The conformance table: instruction x engine x generation x dtype, each cell run and compared.

    python -m tests.conformance.table [--output FILE] [NAME ...]

A cell takes the base call of an instruction (tests/isa/rows_*.py) and gives the dtype to all of its data operands, to
its inputs only, and to its output only; what the rules refuse is left out. Each legal form runs natively on one and two
threads and by the NumPy body, on tame values and on specials: all bits must agree, and on tame values the float64
oracle (oracles.py) as well.

| cell | meaning |
|---|---|
| `=` | native = reference = oracle |
| `~` | native = reference; the definition is tested in the file named in the last column |
| `.` | the rules refuse every form, or the generation has no such instruction |
| `X` | a difference, or an error that is no rule's |
"""

from __future__ import annotations

import argparse
import runpy
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilelang
from tests.conformance.harness import bits, ndarray, result_of, rng_for, sample, tile_of
from tests.conformance.oracles import ELSEWHERE, ORACLES
from tilelang import isa
from tilelang.dtypes import FORMATS
from tilelang.errors import NkiValidationError, TileTypeError
from tilelang.isa.enums import engine
from tilelang.isa.spec import REGISTRY, InstructionSpec

ROOT = Path(__file__).resolve().parents[2]
BASE: dict[str, dict[str, Any]] = {}
for _path in sorted((ROOT / "tests" / "isa").glob("rows_*.py")):
    BASE |= runpy.run_path(str(_path))["BASE"]
TARGETS = {2: "trn1", 3: "trn2", 4: "trn3"}
DTYPES = [name for name in FORMATS if name != "int64"]
_INDICES = ("index", "indices", "segment_ids")
_MASKS = ("predicate",)
_SCALES = ("stationary_scale", "moving_scale")


def instructions() -> list[str]:
    """The public instructions of the registry."""
    return sorted(name for name in REGISTRY if hasattr(isa, name) or name in ELSEWHERE)


def _texts(name: str, value: Any) -> list[str]:
    """Descriptions of the tensors that an operand of a base call holds."""
    if isinstance(value, str):
        return [value]
    return [] if not callable(value) else list(value(str))


def _parse(text: str) -> tuple[str, str, tuple[int, ...]]:
    buffer, rest = text.split(" ", 1)
    dtype, sizes = rest.rstrip("]").split("[")
    return buffer, dtype, tuple(int(n) for n in sizes.split(","))


def _values(operand: str, dtype: str, shape: tuple[int, ...], tame: bool, number: int) -> NDArray[Any]:
    rng, fmt = rng_for(operand, dtype, shape, tame, number), FORMATS[dtype]
    if operand in _SCALES:
        return rng.integers(124, 131, shape).astype(np.uint8).view(fmt.host)
    if operand in _INDICES:
        return np.sort(rng.integers(0, 4, shape), axis=-1).astype(fmt.host)
    if operand in _MASKS or fmt.kind == "bool":
        return rng.integers(0, 2, shape).astype(fmt.host)
    if fmt.kind in ("packed", "scale"):
        raw = rng.integers(0, 2 ** (8 * fmt.itemsize), shape, dtype=np.uint64).astype(fmt.carrier)
        return raw.view(fmt.host)
    if not tame:
        return sample(rng, shape, dtype)
    if fmt.is_integer:
        return rng.integers(1 if fmt.kind == "uint" else -5, 6, shape).astype(fmt.host)
    return ((rng.integers(1, 16, shape) / 8) * rng.choice([-1.0, 1.0], shape)).astype(np.float32).astype(fmt.host)


def _kernel_of(
    call: Any, tensors: dict[str, list[tuple[str, str, tuple[int, ...]]]], static: dict[str, Any], written: list[str]
) -> Callable[..., Any]:
    """A kernel that makes the call and returns the operands `written`.

    It refers to nothing but its parameters: what a kernel refers to is part of the key of its trace.
    """

    def kernel(*arrays: Any) -> Any:
        given, made = list(arrays), {}
        for key, parts in tensors.items():
            tiles = []
            for buffer, dtype, shape in parts:
                source = given.pop(0)
                if buffer in ("sbuf", "psum"):
                    tiles.append(tile_of(source, buffer, dtype))
                else:
                    tiles.append(source if source.dtype == dtype else source.view(dtype))
                    assert tiles[-1].shape == shape
            made[key] = tiles if key == "srcs" else tiles[0]
        call(**made, **static)
        return tuple(result_of(made[key]) for key in written) or result_of(ndarray((1, 1), "uint8"))

    return kernel


class Form:
    """One call: the base call of an instruction with other dtypes, on an engine of a target."""

    def __init__(self, name: str, changed: dict[str, list[str]], where: str | None, target: str) -> None:
        self.name, self.target = name, target
        self.static = {key: value for key, value in BASE[name].items() if key not in changed}
        if where is not None:
            self.static["engine"] = engine[where]
        self.tensors = {key: [_parse(text) for text in texts] for key, texts in changed.items()}
        self.written = [key for key, operand in REGISTRY[name].operands.items() if key in changed and operand.writes]
        self.kernel = _kernel_of(getattr(isa, name), self.tensors, self.static, self.written)

    def inputs(self, tame: bool) -> list[NDArray[Any]]:
        """Host arrays of the tensor operands, in order."""
        found: list[NDArray[Any]] = []
        for key, parts in self.tensors.items():
            found += [_values(key, dtype, shape, tame, len(found)) for _, dtype, shape in parts]
        return found

    def run(self, mode: str, threads: int | None, arrays: list[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """The written operands, in the order of the registry."""
        function = tilelang.simulate(self.kernel, mode=mode, threads=threads, target=self.target)
        found = function(*[array.copy() for array in arrays])
        return found if isinstance(found, tuple) else (found,)

    def compare(self) -> str | None:
        """None if everything agrees, else the first difference. NkiValidationError: the rules refuse the call."""
        for tame in (True, False):
            arrays = self.inputs(tame)
            reference = self.run("reference", None, arrays)
            for threads in (1, 2):
                native = self.run("native", threads, arrays)
                for key, ours, theirs in zip(self.written, native, reference, strict=False):
                    if not np.array_equal(bits(ours), bits(theirs)):
                        return f"{key}: native on {threads} threads differs from the reference"
            if tame and self.name in ORACLES:
                wrong = self._against_oracle(arrays, reference)
                if wrong is not None:
                    return wrong
        return None

    def _against_oracle(self, arrays: list[NDArray[Any]], reference: tuple[NDArray[Any], ...]) -> str | None:
        rest, operands = list(arrays), {}
        for key, parts in self.tensors.items():
            flat = []
            for _, dtype, shape in parts:
                given = rest.pop(0)
                raw = bits(given) if FORMATS[dtype].kind in ("packed", "scale") else given
                flat.append(raw.astype(np.float64).reshape(shape[0], -1))
            operands[key] = flat if key == "srcs" else flat[0]
        expected = ORACLES[self.name](operands)
        for key, got in zip(self.written, reference, strict=True):
            if key not in expected:
                continue
            fmt = FORMATS[self.tensors[key][0][1]]
            wanted = np.asarray(expected[key])
            if fmt.kind in ("packed", "scale"):  # moved as they are
                got = bits(got)
            ours = got.astype(np.float64).reshape(wanted.shape)
            if fmt.kind in ("packed", "scale"):
                allowed = np.zeros(wanted.shape)
            elif fmt.kind == "float":
                # One rounding to the format, and float32 arithmetic before it; subnormals have a fixed step.
                allowed = np.abs(wanted) * 2.0**-fmt.mantissa + (2.0**-9 if fmt.itemsize == 1 else 2e-5)
            elif fmt.kind == "bool":
                # A byte, rounded and saturated as uint8 (isa.md 3.3), that is true unless 0.
                wanted, allowed = (np.rint(wanted) > 0).astype(np.float64), np.zeros(wanted.shape)
            else:
                top = np.iinfo(fmt.host)
                wanted = np.clip(wanted, top.min, top.max)
                allowed = 0.5 + 1e-5 * np.abs(wanted)
            same = np.abs(wanted - ours) <= allowed
            if fmt.kind == "float":  # what is too large may become infinite, NaN, or the largest number
                large = (np.abs(ours) == fmt.max_finite) | ~np.isfinite(ours)
                same |= large & (np.abs(wanted) > fmt.max_finite)
            if not same.all():
                at = np.unravel_index(np.flatnonzero(~same)[0], wanted.shape)
                return f"{key}{[int(n) for n in at]}: {ours[at]} instead of {wanted[at]}"
        return None


def _forms(spec: InstructionSpec, dtype: str) -> Iterator[dict[str, list[str]]]:
    """The tensors of the base call with `dtype` in all data operands, in the inputs, and in the outputs."""
    texts = {key: _texts(key, value) for key, value in BASE[spec.name].items() if key in spec.operands}
    texts = {key: found for key, found in texts.items() if found}
    inputs = [key for key in texts if not spec.operands[key].writes]
    outputs = [key for key in texts if spec.operands[key].writes][:1]
    main, result = (_parse(texts[keys[0]][0])[1] for keys in (inputs or outputs, outputs or inputs))
    seen: list[dict[str, list[str]]] = []
    for chosen, old in ((list(texts), main), (inputs, main), (outputs, result)):
        changed = {
            key: [text.replace(f" {old}[", f" {dtype}[") if key in chosen else text for text in found]
            for key, found in texts.items()
        }
        if changed not in seen and any(_parse(text)[1] == dtype for key in chosen for text in changed[key]):
            seen.append(changed)
            yield changed


def cell(name: str, where: str | None, target: str, dtype: str, report: Callable[[str], None]) -> str:
    """The mark of one cell."""
    legal = False
    for changed in _forms(REGISTRY[name], dtype):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wrong = Form(name, changed, where, target).compare()
        except (NkiValidationError, TileTypeError):
            continue
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        legal = True
        if wrong is not None:
            report(f"{name} {where or ''} {target} {dtype} {changed}: {wrong}")
            return "X"
    return "." if not legal else "=" if name in ORACLES else "~"


def rows(names: list[str], report: Callable[[str], None]) -> Iterator[list[str]]:
    """Rows of the table: instruction, engine, generation, a mark per dtype, oracle."""
    for name in names:
        spec = REGISTRY[name]
        oracle = ELSEWHERE.get(name, "oracles.py")
        if name not in BASE:
            yield [name, ", ".join(spec.engines), f"{spec.since}+", *[""] * len(DTYPES), oracle]
            continue
        for where in spec.engines if "engine" in spec.names and len(spec.engines) > 1 else (None,):
            for generation, target in TARGETS.items():
                marks = [cell(name, where, target, dtype, report) for dtype in DTYPES]
                yield [name, where or spec.engines[0], str(generation), *marks, oracle]


def render(names: list[str], report: Callable[[str], None]) -> str:
    """The table as Markdown."""
    head = [
        "instruction",
        "engine",
        "gen",
        *[name.replace("float", "f").replace("int", "i") for name in DTYPES],
        "oracle",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(names, report)]
    return "\n".join(lines) + "\n"


def document(names: list[str], report: Callable[[str], None]) -> str:
    """The table with its legend."""
    _, _, what, legend = (__doc__ or "").rstrip().split("\n\n")
    head = "# Conformance\n\nGenerated by `python -m tests.conformance.table --output docs/conformance.md`."
    return "\n\n".join((head, what, legend, render(names, report)))


def main() -> int:
    """Write the table; 1 if a cell differs."""
    parser = argparse.ArgumentParser(description="Generate the conformance table.")
    parser.add_argument("names", nargs="*", help="instructions; default: all")
    parser.add_argument("--output", type=Path, help="a file; default: standard output")
    options = parser.parse_args()
    wrong: list[str] = []
    text = document(options.names or instructions(), wrong.append)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
