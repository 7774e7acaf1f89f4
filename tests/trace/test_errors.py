"""Errors point at the user's line: file, line and caret, with no frame of the package at the end of the traceback."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang import jit, simulate
from tilelang.errors import TileBoundsError, TileError

PACKAGE = os.path.dirname(tilelang.__file__)
MODES = ("native", "reference", "debug")
X = np.zeros((128, 64), np.float32)


def rule(x: Any) -> None:
    tile = nl.load(x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=x, op=nl.add)  # HERE


def rule_by_position(x: Any) -> None:
    tile = nl.load(x)
    nisa.tensor_copy(tile[:, 0:8], tile[:, 0:9])  # HERE


def several_lines(x: Any) -> None:
    tile = nl.load(x)
    nisa.tensor_tensor(
        dst=tile,
        data1=tile,
        data2=tile[:, 0:3],  # HERE
        op=nl.add,
    )


def kind(x: Any) -> None:
    nisa.tensor_copy(nl.load(x), 3)  # HERE


def index(x: Any) -> None:
    x[200:300]  # HERE


def pattern(x: Any) -> None:
    return nl.load(x.ap([[64, 300]]))  # HERE


def view(x: Any) -> None:
    nl.load(x).reshape((64, 128))  # HERE


def in_helper(x: Any) -> None:
    def helper(tile: Any) -> Any:
        return tile.select(1, 64)  # HERE

    helper(nl.load(x))


def in_nested_kernel(x: Any) -> None:
    nested(nl.load(x))


@jit
def nested(tile: Any) -> None:
    nisa.memset(tile, "x")  # HERE


def in_loop_body(x: Any) -> None:
    tile = nl.load(x)
    nl.fori_loop(0, 3, lambda i: nisa.memset(tile[0:129], 0.0))  # HERE


def not_ascii(x: Any) -> None:
    tile = nl.load(x)
    _ = "größte"; nisa.tensor_copy(dst=tile, src=x)  # noqa: E702 HERE  # fmt: skip


def allocation(x: Any) -> None:
    nl.ndarray((128, 0), nl.float32)  # HERE


def register(x: Any) -> None:
    bound = nisa.register_alloc(3)
    range(bound)  # HERE


def result(x: Any) -> Any:
    tile = nl.load(x)  # HERE
    return tile


CASES: dict[Callable[..., Any], tuple[type[Exception], str, str | None]] = {
    rule: (AssertionError, "data2", "x"),
    rule_by_position: (AssertionError, "src", "tile[:, 0:9]"),
    several_lines: (AssertionError, "data2", "tile[:, 0:3]"),
    kind: (TypeError, "src", "3"),
    index: (IndexError, "128", "x[200:300]"),
    pattern: (IndexError, "elements", None),
    view: (AssertionError, "reshape", None),
    in_helper: (IndexError, "64", None),
    in_nested_kernel: (TypeError, "value", '"x"'),
    in_loop_body: (IndexError, "129", None),
    not_ascii: (AssertionError, "src", "x"),
    allocation: (ValueError, "at least one element", None),
    register: (TypeError, "not a Python number", "range(bound)"),
    result: (TypeError, "results are HBM tensors", None),
}


def line_of(function: Callable[..., Any]) -> tuple[int, str]:
    """Number and text of the line marked HERE."""
    code = getattr(function, "__wrapped__", function).__code__
    lines = Path(__file__).read_text("utf-8").splitlines()
    for number in range(code.co_firstlineno, len(lines)):
        if lines[number].rstrip().endswith(("HERE", "HERE  # fmt: skip")):
            return number + 1, lines[number]
    raise AssertionError("no line is marked")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
def test_place_and_caret(kernel: Callable[..., Any], mode: str) -> None:
    kind, text, pointed = CASES[kernel]
    with pytest.raises(kind, match=re.escape(text)) as caught:
        simulate(kernel, mode=mode)(X)
    error = caught.value
    assert isinstance(error, TileError)
    number, line = line_of(nested if kernel is in_nested_kernel else kernel)
    lines = str(error).splitlines()
    shown = next(i for i, entry in enumerate(lines) if f"test_errors.py:{number} " in entry)
    assert lines[shown].endswith(line.strip())
    assert set(lines[shown + 1].strip()) == {"^"}
    if pointed is not None:
        start, end = lines[shown + 1].index("^"), len(lines[shown + 1])
        assert lines[shown][start:end] == pointed
    assert len(error.diagnostics) >= 1 and all(d.site is not None for d in error.diagnostics)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [k for k in CASES if k is not result], ids=lambda k: k.__name__)
def test_the_last_frame_is_the_users(kernel: Callable[..., Any], mode: str) -> None:
    with pytest.raises(TileError) as caught:
        simulate(kernel, mode=mode)(X)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].filename == __file__ and frames[-1].lineno is not None
    number, _ = line_of(nested if kernel is in_nested_kernel else kernel)
    assert abs(frames[-1].lineno - number) <= 3
    assert sum(frame.filename.startswith(PACKAGE) for frame in frames) == 1, "only the call itself"
    assert caught.value.__cause__ is None and (caught.value.__suppress_context__ or caught.value.__context__ is None)


def test_compile_reports_like_a_call() -> None:
    with pytest.raises(TileError) as caught:
        tilelang.compile(index, X)
    assert f"test_errors.py:{line_of(index)[0]} " in str(caught.value)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename == __file__


def out_of_range(x: Any, where: Any) -> Any:
    position = nl.load(where)
    tile = nl.load(x)
    one = nl.ndarray((128, 1), nl.float32)
    nisa.tensor_copy(dst=one, src=tile.select(1, position[0:1, 0:1]))  # HERE
    out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, one)
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 3])
def test_errors_at_run_time(mode: str, threads: int) -> None:
    kernel = simulate(out_of_range, mode=mode, threads=threads)
    assert kernel(X, np.array([[63]], np.int32)).shape == (128, 1)
    for value in (64, -1, 2**31 - 1):
        with pytest.raises(TileBoundsError) as caught:
            kernel(X, np.array([[value]], np.int32))
        text = str(caught.value)
        assert f"index {value} is out of range" in text and "below 64" in text
        assert f"test_errors.py:{line_of(out_of_range)[0]} " in text
        lines = text.splitlines()
        shown = next(i for i, entry in enumerate(lines) if "test_errors.py" in entry)
        start, end = lines[shown + 1].index("^"), len(lines[shown + 1])
        assert lines[shown][start:end] == "tile.select(1, position[0:1, 0:1])"
    assert kernel(X, np.array([[0]], np.int32)).shape == (128, 1), "a failed run leaves nothing behind"


def test_errors_of_the_kernel_itself_pass_unchanged() -> None:
    def kernel(x: Any) -> None:
        assert x.shape == (1, 2), "shape"

    for mode in MODES:
        with pytest.raises(AssertionError, match="shape") as caught:
            simulate(kernel, mode=mode)(X)
        assert not isinstance(caught.value, TileError)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].line == 'assert x.shape == (1, 2), "shape"'


def test_caught_errors_leave_the_trace_usable() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for size in (129, 128):
            try:
                nl.store(out[0:size], nl.load(x[0:size]))
            except IndexError:
                continue
        return out

    for mode in MODES:
        np.testing.assert_array_equal(simulate(kernel, mode=mode)(X + 1), X + 1)


def test_all_rule_violations_are_reported_at_once() -> None:
    def kernel(x: Any) -> None:
        nisa.tensor_tensor(dst=nl.ndarray((4, 8), nl.float32), data1=x, data2=x[0:4, 0:9], op=nl.add)

    with pytest.raises(TileError) as caught:
        simulate(kernel)(X)
    assert {d.operand for d in caught.value.diagnostics} >= {"data1", "data2"}


CONTENT: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "print": print,
    "asarray": np.asarray,
    "float": lambda t: float(t[0:1, 0:1]),
    "item": lambda t: t[0:1, 0:1].item(),
    "if": lambda t: 1 if t else 2,
}


@pytest.mark.parametrize("mode", ["native", "reference"])
@pytest.mark.parametrize("use", CONTENT)
def test_contents_do_not_exist_while_tracing(use: str, mode: str) -> None:
    with pytest.raises(TypeError, match=r'does not exist while the kernel is traced(.|\n)*mode="debug"'):
        simulate(lambda x: CONTENT[use](nl.load(x)) and None, mode=mode)(X)


def test_contents_in_debug_mode(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        print(tile[0:2, 0:3])
        print(nisa.register_alloc(7))
        assert tile and np.asarray(tile).shape == (128, 64) and tile[0:1, 0:1].item() == 1.0
        assert float(tile[0:1, 0:1]) == 1.0 and "[[" in repr(tile)
        return None

    simulate(kernel, mode="debug")(X)
    out = capsys.readouterr().out
    assert "[[1. 1. 1.]\n [1. 1. 1.]]" in out and "= 7" in out


def test_bracket_launches() -> None:
    kernel = jit(lambda x: nl.num_programs() + nl.program_ndim() or None)
    for wrong in (0, 3, -1):
        with pytest.raises(ValueError, match=rf"LNC degree {wrong} on trn2"):
            kernel[wrong](X)
    with pytest.raises(ValueError, match="at most 1"):
        simulate(kernel, target="trn1")[2](X)
    for wrong_kind in ("1", 1.0, True, (1, 2)):
        with pytest.raises(TypeError, match="one integer"):
            kernel[wrong_kind]
