"""`.indirect` operands (isa.md 5.5): gathers and scatters in every mode, against NumPy by the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.tiles import load, store
from tilelang.errors import TileBoundsError, TileRuleError

RUNS = [dict(mode="native", threads=n) for n in (1, 2, 3)] + [dict(mode="reference"), dict(mode="debug")]
GENERATOR = np.random.default_rng(5)


def offsets(index: NDArray[Any], count: int, group: int) -> NDArray[np.int64]:
    """off[p, i] = index[g * G + i % G, i // G], written out."""
    rows = len(index)
    found = np.zeros((rows, count), np.int64)
    for p in range(rows):
        for i in range(count):
            size = min(group, rows)
            found[p, i] = index[p // group * group + i % size, i // size]
    return found


def run(kernel: Callable[..., Any], *args: Any) -> list[Any]:
    """The kernel on trn3 in every mode; all must agree to the bit."""
    results = [tilelang.simulate(kernel, target="trn3", **options)(*args) for options in RUNS]
    for other in results[1:]:
        assert other.tobytes() == results[0].tobytes()
    return results[0]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.uint8])
@pytest.mark.parametrize("index_dtype", [np.uint16, np.uint32, np.int32])
@pytest.mark.parametrize("rows", [7, 64, 128])
def test_gather(dtype: Any, index_dtype: Any, rows: int) -> None:
    x = GENERATOR.integers(0, 200, (rows, 6, 10)).astype(dtype)
    index = GENERATOR.integers(0, 60, (rows, 5)).astype(index_dtype)

    def kernel(x: Any, index: Any) -> Any:
        source, table = load(x), load(index)
        view = source.indirect(table)
        out = nl.ndarray(view.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=view)
        return store(out)

    off = offsets(index, min(rows, 16) * 5, 16)
    assert np.array_equal(run(kernel, x, index), np.take_along_axis(x.reshape(rows, -1), off, axis=1))


def test_gather_of_part_of_the_offsets_inside_a_strided_view() -> None:
    x = GENERATOR.standard_normal((64, 8, 32), dtype=np.float32)
    index = GENERATOR.integers(0, 64, (64, 3)).astype(np.uint32)

    def kernel(x: Any, index: Any) -> Any:
        source, table = load(x), load(index)
        out = nl.ndarray((32, 21), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(dst=out, op=nl.square, data=source[32:64, :, 0:32:4].indirect(table[32:64, :], 21))
        return store(out)

    off = offsets(index[32:], 21, 16)
    gathered = np.take_along_axis(x[32:, :, ::4].reshape(32, -1), off, axis=1)
    assert np.array_equal(run(kernel, x, index), gathered * gathered)


def test_scatter_keeps_other_elements_and_the_last_of_equal_offsets() -> None:
    x = GENERATOR.standard_normal((128, 32), dtype=np.float32)
    base = GENERATOR.standard_normal((128, 40), dtype=np.float32)
    index = GENERATOR.integers(0, 40, (128, 2)).astype(np.int32)

    def kernel(base: Any, x: Any, index: Any) -> Any:
        target, source, table = load(base), load(x), load(index)
        nisa.tensor_scalar(dst=target.indirect(table), data=source, op0=nl.multiply, operand0=2.0)
        return store(target)

    expected, off = base.copy(), offsets(index, 32, 16)
    for p in range(128):
        for i in range(32):
            expected[p, off[p, i]] = 2 * x[p, i]
    assert np.array_equal(run(kernel, base, x, index), expected)


def test_predicated_scatter_leaves_what_the_predicate_leaves() -> None:
    base = GENERATOR.standard_normal((16, 64), dtype=np.float32)
    x = GENERATOR.standard_normal((16, 16), dtype=np.float32)
    keep = GENERATOR.integers(0, 2, (16, 16)).astype(np.uint8)
    index = GENERATOR.permuted(np.tile(np.arange(64), (1, 1)), axis=1)[:, :16].reshape(16, 1).astype(np.uint32)

    def kernel(base: Any, x: Any, keep: Any, index: Any) -> Any:
        target, table = load(base), load(index)
        nisa.tensor_copy_predicated(dst=target.indirect(table), src=load(x), predicate=load(keep))
        return store(target)

    expected = base.copy()
    for i in range(16):
        rows = keep[:, i] != 0
        expected[rows, index[i, 0]] = x[rows, i]
    assert np.array_equal(run(kernel, base, x, keep, index), expected)


def test_matmul_gathers_and_accumulates_into_a_scatter() -> None:
    a = GENERATOR.integers(-4, 5, (64, 96)).astype(ml_dtypes.bfloat16)
    b = GENERATOR.integers(-4, 5, (64, 128)).astype(ml_dtypes.bfloat16)
    index = GENERATOR.integers(0, 128, (64, 1)).astype(np.uint32)
    places = GENERATOR.permutation(128)[:64].reshape(64, 1).astype(np.uint32)

    def kernel(a: Any, b: Any, index: Any, places: Any) -> Any:
        left, right, table, target = load(a), load(b), load(index), load(places)
        total = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.memset(dst=total, value=1.0)
        for accumulate in (True, True):
            nisa.nc_matmul(
                dst=total.indirect(target, 32),
                stationary=left[:, 0:64],
                moving=right.indirect(table, 32),
                accumulate=accumulate,
            )
        out = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=total)
        return store(out)

    moving = np.take_along_axis(b.astype(np.float32), offsets(index, 32, 32), axis=1)
    product = a[:, :64].astype(np.float32).T @ moving
    expected = np.ones((64, 128), np.float32)
    for p, row in enumerate(offsets(places, 32, 32)):
        expected[p, row] += 2 * product[p]
    assert np.array_equal(run(kernel, a, b, index, places), expected)


@pytest.mark.parametrize("options", RUNS)
@pytest.mark.parametrize("wrong", [40, -1])
def test_an_offset_out_of_range_is_reported_at_the_line(options: dict[str, Any], wrong: int) -> None:
    index = np.zeros((128, 2), np.int32)
    index[16 * 3 + 5, 1] = wrong

    def kernel(x: Any, index: Any) -> Any:
        source, table = load(x), load(index)
        out = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=source.indirect(table))
        return store(out)

    with pytest.raises(TileBoundsError, match=rf"offset {wrong} at position 21 .* 40 elements") as caught:
        tilelang.simulate(kernel, target="trn3", **options)(np.zeros((128, 40), np.float32), index)
    assert caught.value.diagnostics[0].rule == "LANG.R223"
    assert "test_indirect.py" in str(caught.value)


def at(buffer: Any, shape: tuple[int, ...], dtype: Any, partition: int) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=buffer, address=(partition, 0 if buffer is nl.psum else 4096))


def tile(partition: int, dtype: Any = nl.float32, columns: int = 64, buffer: Any = nl.sbuf) -> Any:
    return at(buffer, (32, columns), dtype, partition)


def index_at(partition: int) -> Any:
    return nl.ndarray((32, 2), dtype=nl.uint32, buffer=nl.sbuf, address=(partition, 1024))


def _gathered(start: int, index: int) -> None:
    nisa.tensor_copy(dst=nl.ndarray((32, 32), nl.float32), src=tile(start).indirect(index_at(index)))


def _scattered(source: int, index: int) -> None:
    nisa.tensor_copy(dst=nl.ndarray((32, 64), nl.float32).indirect(index_at(index)), src=tile(source, columns=32))


def _both(source_index: int, index: int) -> None:
    source = tile(source_index, buffer=nl.psum).indirect(index_at(source_index))
    nisa.tensor_copy(dst=nl.ndarray((32, 64), nl.float32).indirect(index_at(index)), src=source)


def _matmul(index: int, dtype: Any = nl.bfloat16, **options: Any) -> None:
    options = {"accumulate": False, **options}
    stationary = at(nl.sbuf, (32, 32), nl.bfloat16, 0)
    moving = nl.ndarray((32, 64), dtype=dtype, buffer=nl.sbuf)
    target = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.psum)
    indices = nl.ndarray((32, 2), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.nc_matmul(target.indirect(index_at(index), 32), stationary, moving.indirect(indices, 32), **options)


RULES: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
    ("TI.R4", lambda: _gathered(16, 16), lambda: _gathered(32, 32)),
    ("TI.R5", lambda: _gathered(0, 32), lambda: _gathered(64, 64)),
    ("TI.R6", lambda: _scattered(0, 32), lambda: _scattered(32, 32)),
    ("TI.R7", lambda: _both(0, 32), lambda: _both(32, 32)),
    ("TI.R8", lambda: _matmul(32), lambda: _matmul(0)),
    (
        "TI.R8",
        lambda: _matmul(0, tile_position=(32, 0), tile_size=(32, 32)),
        lambda: _matmul(0, tile_position=(0, 0), tile_size=(32, 32)),
    ),
    ("TI.R8", lambda: _matmul(0, is_transpose=True), lambda: _matmul(0)),
    ("TI.R9", lambda: _matmul(0, nl.float32), lambda: _matmul(0, nl.float16)),
    ("LANG.R223", lambda: _matmul(0, accumulate=None), lambda: _matmul(0, accumulate=True)),
]


@pytest.mark.parametrize(("rule", "trips", "passes"), RULES)
def test_rules(rule: str, trips: Callable[[], None], passes: Callable[[], None]) -> None:
    def kernel(x: Any, body: Callable[[], None]) -> Any:
        body()
        return x

    x = np.zeros((1, 1), np.float32)
    with pytest.raises(TileRuleError) as caught:
        tilelang.compile(kernel, x, trips, target="trn3", mode="reference")
    assert rule in {d.rule for d in caught.value.diagnostics}
    tilelang.compile(kernel, x, passes, target="trn3", mode="reference")
