"""Reports from the field, memory and calls: small inputs, the right outcome, and others of the same kind."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
import tilelang.nki
from tests.language.reports import refused
from tests.tiles import load, store
from tilelang import jit, simulate
from tilelang.errors import TileBoundsError, TileCapacityError, TileError, TileTypeError, TileWarning

GENERATOR = np.random.default_rng(12)


# -- capacity


@pytest.mark.parametrize(
    ("target", "buffer", "shape", "count", "limit"),
    [
        ("trn2", nl.sbuf, (128, 2048), 27, "212984"),
        ("trn1", nl.sbuf, (128, 2048), 25, "180224"),
        ("trn2", nl.psum, (128, 512), 9, "16384"),
    ],
)
def test_capacity(target: str, buffer: Any, shape: tuple[int, int], count: int, limit: str) -> None:
    """Report 5: tiles that do not fit are listed with lines and bytes a partition; the target's limit is named."""

    def kernel() -> Any:
        live = [nl.ndarray(shape, nl.float32, buffer=buffer) for _ in range(count)]
        total = nl.zeros(shape, nl.float32)
        for tile in live:
            nisa.memset(tile, 1.0)
        for tile in live:
            nisa.tensor_tensor(total, total, tile, op=nl.add)
        return store(total)

    with pytest.raises(TileCapacityError) as caught:
        simulate(kernel, target=target, strict=True)()
    text = str(caught.value)
    for part in (target, limit, "bytes per partition", f"{shape[1] * 4} bytes", "test_field_reports_memory.py", "hint"):
        assert part in text, text
    with pytest.warns(TileWarning, match=limit):
        assert (simulate(kernel, target=target)() == count).all()


@pytest.mark.parametrize("buffer", ["sbuf", "psum", "shared_hbm"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize(("make", "value"), [("zeros", 0), ("ones", 1)])
def test_filled_tensors(buffer: str, dtype: str, make: str, value: int, mode: str) -> None:
    """Report 23: `nl.zeros((128, 512), …)` in every memory."""

    def kernel() -> Any:
        tile = getattr(nl, make)((128, 512), getattr(nl, dtype), buffer=getattr(nl, buffer))
        if buffer == "psum":
            moved = nl.ndarray(tile.shape, tile.dtype)
            nisa.tensor_copy(moved, tile)
            return store(moved)
        return tile if buffer == "shared_hbm" else store(tile)

    result = simulate(kernel, mode=mode)()
    assert result.shape == (128, 512) and (result.astype(np.float32) == value).all()


# -- copies


@pytest.mark.parametrize(
    ("source", "target"), [((64, 64), (1, 64)), ((4096,), (64,)), ((8, 4), (8, 5)), ((2, 3, 4), (2, 3))]
)
def test_copies_of_another_size(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Report 16: both shapes and both expressions of the source text."""

    def kernel(x: Any) -> None:
        result = nl.ndarray(target, nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=result, src=x)

    text = refused(kernel, np.ones(source, np.float32))
    assert str(source) in text and str(target) in text
    assert "dst=result, src=x" in text


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        (lambda x: x[96:128], ("96:128", "dim 0", "100")),
        (lambda x: x[:, 3:5][:, 2:9], ("2:9", "dim 1", "2")),
        (lambda x: x.slice(0, 96, 128), ("128", "100")),
    ],
)
def test_ragged_tails(cut: Callable[[Any], Any], expected: tuple[str, ...]) -> None:
    """Report 17: rows 96:128 of a tensor with 100: range, dimension, size, what to do with a ragged tail."""
    text = refused(lambda x: store(load(cut(x))), np.ones((100, 8), np.float32))
    assert all(part in text for part in expected), text
    assert "min(" in text, text


def test_accumulators_go_to_hbm_in_two_steps() -> None:
    """Report 21: no DMA from PSUM to HBM; the error shows both steps."""

    def kernel(x: Any) -> None:
        out = nl.ndarray((128, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=nl.zeros((128, 8), nl.float32, buffer=nl.psum))

    text = refused(kernel, np.ones((128, 8), np.float32))
    assert "PSUM" in text and "tensor_copy" in text and "SBUF" in text


@pytest.mark.parametrize("pattern", [[[64, 128], [1, 8]], [[16, 4], [1, 8]]])
def test_partition_steps_of_patterns(pattern: list[list[int]]) -> None:
    """Report 19: the partition step of `.ap` on chip is the row length of the storage."""

    def kernel(x: Any) -> None:
        tile = load(x)
        out = nl.ndarray((pattern[0][1], 8), nl.float32)
        nisa.tensor_copy(out, tile.ap(pattern))

    text = refused(kernel, np.ones((128, 32), np.float32))
    assert "AP.R" in text and str(pattern[0][0]) in text and "32" in text


# -- gathers and scatters

SKIPPED = (2**30, -1, 2**31 - 1, -(2**31), 256, 128)


@pytest.mark.parametrize("bad", SKIPPED)
@pytest.mark.parametrize("dtype", [np.int32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("how", ["gather", "scatter"])
def test_rows_out_of_range_are_skipped(how: str, dtype: Any, bad: int, mode: str) -> None:
    """Report 20: 128 indices, every third one out of range: these rows stay untouched, all bits are kept."""
    bits = np.int32 if dtype is np.int32 else np.int16
    low, high = np.iinfo(bits).min, np.iinfo(bits).max
    data = GENERATOR.integers(low, high, (128, 8)).astype(bits).view(dtype)
    base = GENERATOR.integers(low, high, (128, 8)).astype(bits).view(dtype)
    index = GENERATOR.permutation(128).astype(np.int32)[:, None]
    index[::3] = bad

    def kernel(data: Any, base: Any, index: Any) -> Any:
        rows = load(index)
        pattern: dict[str, Any] = dict(pattern=[[8, 128], [1, 8]], vector_offset=rows, indirect_dim=0)
        if how == "gather":
            tile = load(base)
            nisa.dma_copy(dst=tile, src=data.ap(**pattern), oob_mode=nisa.oob_mode.skip)
            return store(tile)
        out = nl.ndarray(base.shape, base.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=base)
        nisa.dma_copy(dst=out.ap(**pattern), src=load(data), oob_mode=nisa.oob_mode.skip)
        return out

    expected = base.view(bits).copy()
    for row, place in enumerate(index[:, 0]):
        if 0 <= place < 128:
            target, source = (row, place) if how == "gather" else (place, row)
            expected[target] = data.view(bits)[source]
    np.testing.assert_array_equal(simulate(kernel, mode=mode)(data, base, index).view(bits), expected)


# -- loops


def test_the_index_of_a_device_loop_is_no_variable() -> None:
    """Report 18: `i = i + 1` on a dynamic loop's induction variable."""

    def kernel(x: Any) -> None:
        tile = load(x)
        for i in nl.dynamic_range(4):
            i = i + 1
            nisa.memset(tile[:, i], 0.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert "i + 1" in refused(kernel, np.ones((128, 8), np.float32))


# -- calls


@jit
def doubled(x: Any) -> Any:
    tile = load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    return store(tile)


CALLS: dict[str, Callable[[Any], Any]] = {
    "nki.simulate(k)(a)": lambda a: tilelang.nki.simulate(doubled)(a),
    "k(a)": lambda a: doubled(a),
    "k[2](a)": lambda a: doubled[2](a),
    "k[1](a)": lambda a: doubled[1](a),
    "nki.simulate(k[2])(a)": lambda a: tilelang.nki.simulate(doubled[2])(a),
    "nki.simulate(k)[2](a)": lambda a: tilelang.nki.simulate(doubled)[2](a),
    "nki.cpu_simulate(k)(x=a)": lambda a: tilelang.nki.cpu_simulate(doubled)(x=a),
    "tilelang.compile(k, a)(a)": lambda a: tilelang.compile(doubled, a)(a),
    "tilelang.compile(k, a).run(a)": lambda a: tilelang.compile(doubled, a).run(a),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("simulator", ["0", "1", ""])
def test_every_spelling_of_a_call(call: str, simulator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report 24: all of them run, with and without NKI_SIMULATOR."""
    monkeypatch.setenv("NKI_SIMULATOR", simulator)
    x = GENERATOR.standard_normal((128, 8), dtype=np.float32)
    np.testing.assert_array_equal(CALLS[call](x), 2 * x)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda a: tilelang.nki.simulate_kernel(doubled, a), r"nki\.simulate\(kernel\)"),
        (lambda a: tilelang.nki.simulate(doubled, a), r"simulate\(kernel\)"),
        (lambda a: doubled[a](a), "LNC degree"),
        (lambda a: doubled[2, 2](a), "LNC degree"),
        (lambda a: doubled[3](a), "LNC degree"),
        (lambda a: tilelang.nki.simulate(a), "kernel"),
    ],
)
def test_wrong_calls_name_the_right_one(call: Callable[[Any], Any], expected: str) -> None:
    """Report 24: what does not run says which call does."""
    with pytest.raises((TileError, TypeError), match=expected):
        call(np.ones((128, 8), np.float32))


def test_second_calls_trace_nothing() -> None:
    """Report 28: new data runs the program of the first call."""
    traced = []

    @jit
    def kernel(x: Any) -> Any:
        traced.append(1)
        return store(load(x))

    for value in (1.0, 2.0, 3.0):
        assert (kernel(np.full((128, 8), value, np.float32)) == value).all()
    assert (simulate(kernel)(np.ones((128, 8), np.float32)) == 1).all()
    assert len(traced) == 1
    kernel(np.ones((128, 9), np.float32))
    assert len(traced) == 2


def test_prints_of_every_memory(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Report 25: `device_print` of tensors in SBUF, PSUM and of a 1-d one in HBM."""

    def kernel(x: Any) -> Any:
        tile = nl.full((2, 3), 1.5, nl.float32)
        psum = nl.full((2, 3), 2.5, nl.float32, buffer=nl.psum)
        nl.device_print("sbuf", tile)
        nl.device_print("psum", psum)
        nl.device_print("hbm", x)
        nl.device_print("part", x[2:4])
        return store(tile)

    simulate(kernel, mode=mode)(np.arange(6, dtype=np.float32))
    printed = capsys.readouterr().out
    expected: list[Any] = [np.full((2, 3), 1.5, np.float32), np.full((2, 3), 2.5, np.float32)]
    expected += [np.arange(6, dtype=np.float32), np.arange(2, 4, dtype=np.float32)]
    names = ("sbuf", "psum", "hbm", "part")
    assert printed == "".join(f"{n}\n{v!r}\n" for n, v in zip(names, expected, strict=True))


TORCH: dict[str, Callable[[Any], Any]] = {
    "permuted": lambda t: t.permute(1, 0),
    "sliced": lambda t: t[::2, 1:9],
    "expanded": lambda t: t[:1].expand(16, -1),
    "bf16": lambda t: t.bfloat16(),
    "bf16 permuted": lambda t: t.bfloat16().permute(1, 0),
    "half sliced": lambda t: t.half()[:, ::3],
    "needs a gradient": lambda t: t.clone().requires_grad_(),
    "negative view": lambda t: t._neg_view(),
}


@pytest.mark.parametrize("case", TORCH)
def test_torch_inputs(case: str, mode: str) -> None:
    """Report 26: tensors of any layout."""
    torch = pytest.importorskip("torch")
    given = TORCH[case](torch.arange(16 * 12, dtype=torch.float32).reshape(16, 12) / 8)
    result = simulate(doubled, mode=mode)(given)
    assert result.dtype is given.dtype and torch.equal(result, (given * 2).detach())


NO_MEMORY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sparse": (lambda torch: torch.eye(4).to_sparse(), "sparse_coo torch tensor of torch.float32"),
    "csr": (lambda torch: torch.eye(4).to_sparse_csr(), "sparse_csr"),
    "complex": (lambda torch: torch.ones(4, 4, dtype=torch.complex64).conj(), "complex64"),
    "no content": (lambda torch: torch.empty(4, 4, device="meta"), "on meta"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", NO_MEMORY)
def test_torch_tensors_without_plain_memory(case: str) -> None:
    """Report 26: what is no dense tensor of a tile dtype is named."""
    make, text = NO_MEMORY[case]
    with pytest.raises(TileTypeError, match=text):
        doubled(make(pytest.importorskip("torch")))


@pytest.mark.parametrize("case", ["expanded", "negative view"])
def test_torch_views_without_memory_for_each_element_are_read_only(case: str, mode: str) -> None:
    """Report 26: writing them is refused, as torch and NumPy refuse it."""
    torch = pytest.importorskip("torch")

    def kernel(x: Any) -> None:
        nisa.dma_copy(dst=x, src=nl.zeros(x.shape, x.dtype))

    with pytest.raises(TileError, match="read-only"):
        simulate(kernel, mode=mode)(TORCH[case](torch.ones(16, 12)))


@pytest.mark.slow
def test_large_strided_copies_are_fast() -> None:
    """Report 27: a 4-d strided pattern with 2^24 elements takes well under a second."""
    x = np.arange(2 * 2**24, dtype=np.float32)

    def kernel(x: Any) -> Any:
        out = nl.ndarray((16, 64, 128, 128), nl.float32, buffer=nl.shared_hbm)
        source = x.ap([[2 * 2**20, 16], [2 * 128, 64], [2 * 64 * 128, 128], [2, 128]])
        nisa.dma_copy(dst=out, src=source)
        return out

    expected = x[::2].reshape(16, 128, 64, 128).transpose(0, 2, 1, 3)
    kernel = jit(kernel)
    np.testing.assert_array_equal(kernel(x), expected)
    start = time.perf_counter()
    kernel(x)
    assert time.perf_counter() - start < 1.0


def test_bounds_are_index_errors() -> None:
    """Report 17: the error is an IndexError, as lists raise it."""
    with pytest.raises(TileBoundsError) as caught:
        simulate(lambda x: store(load(x[96:128])))(np.ones((100, 8), np.float32))
    assert isinstance(caught.value, IndexError)
