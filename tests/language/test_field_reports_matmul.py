"""Reports from the field, tensor engine: small inputs, the right outcome, and others of the same kind."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tests.language.reports import refused
from tests.tiles import load, store
from tilelang import simulate
from tilelang.errors import TileWarning

GENERATOR = np.random.default_rng(13)
E4M3FN, E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2


def small(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Small whole numbers: every product and sum is exact."""
    return GENERATOR.integers(-3, 4, shape).astype(dtype)


def product(stationary: Any, moving: Any, shape: tuple[int, ...], **options: Any) -> Any:
    """One matmul of two tiles into a new PSUM tile of `shape`, copied out."""
    out = nl.ndarray(shape, nl.float32, buffer=nl.psum)
    nisa.nc_matmul(out, load(stationary), load(moving), **options)
    moved = nl.ndarray(shape, nl.float32)
    nisa.tensor_copy(moved, out)
    return store(moved)


@pytest.mark.parametrize(
    ("first", "second"),
    [(np.float32, ml_dtypes.bfloat16), (ml_dtypes.bfloat16, np.float32), (np.float32, np.float16), (np.float32, E5M2)],
)
def test_float32_and_a_narrow_dtype_do_not_mix(first: Any, second: Any) -> None:
    """Report 8: the error names both dtypes and the rule."""
    text = refused(lambda a, b: product(a, b, (32, 64)), small((16, 32), first), small((16, 64), second))
    assert np.dtype(first).name in text and np.dtype(second).name in text and "nc_matmul.R" in text


@pytest.mark.filterwarnings("ignore::tilelang.errors.TileWarning")
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_newer_fp8_format_as_an_operand_of_older_chips(target: str) -> None:
    """Report 9: trn1 and trn2 multiply e4m3 (up to 240); e4m3fn (up to 448) is refused and both are named."""
    x = small((16, 32), E4M3FN)
    text = refused(lambda a: product(a, a, (32, 32)), x, target=target)
    for part in ("float8_e4m3fn", "float8_e4m3", "240", "448", target, "nc_matmul.R"):
        assert part in text, text


@pytest.mark.parametrize(("target", "dtype"), [("trn3", E4M3FN), ("trn2", E4M3), ("trn1", E4M3), ("trn1", E5M2)])
def test_fp8_formats_a_chip_multiplies(target: str, dtype: Any, mode: str) -> None:
    """Report 9: what a generation multiplies."""
    x = small((64, 64), dtype)
    result = simulate(lambda a: product(a, a, (64, 64)), target=target, mode=mode)(x)
    np.testing.assert_array_equal(result, x.astype(np.float32).T @ x.astype(np.float32))


@pytest.mark.parametrize(("target", "warns"), [("trn1", True), ("trn2", True), ("trn3", False)])
def test_the_newer_fp8_format_as_storage(target: str, warns: bool, mode: str, recwarn: pytest.WarningsRecorder) -> None:
    """Report 9: mere storage is a warning on trn1 and trn2 that names the other format and both ranges."""
    x = small((16, 32), E4M3FN)
    result = simulate(lambda a: store(load(a)), target=target, mode=mode)(x)
    assert result.tobytes() == x.tobytes()
    texts = [str(w.message) for w in recwarn if w.category is TileWarning]
    assert bool(texts) == warns
    assert all("float8_e4m3fn" in text and "240" in text and "448" in text for text in texts), texts


def test_a_destination_outside_psum() -> None:
    """Report 11: `nc_matmul` into SBUF."""

    def kernel(a: Any, b: Any) -> None:
        out = nl.ndarray((32, 64), nl.float32)
        nisa.nc_matmul(out, load(a), load(b))

    text = refused(kernel, small((16, 32)), small((16, 64)))
    assert "PSUM" in text and "SBUF" in text.upper() and "nisa.nc_matmul(out" in text


@pytest.mark.parametrize("shape", [(1, 64), (64, 511), (63, 512), (64, 2, 64), (128, 512)])
def test_a_destination_of_another_shape(shape: tuple[int, ...]) -> None:
    """Report 11: the product's shape and the given one."""
    text = refused(lambda a, b: product(a, b, shape), small((16, 64)), small((16, 512)))
    assert str(shape) in text and "64" in text and "512" in text and "nc_matmul(out" in text


@pytest.mark.parametrize("accumulate", [None, True])
def test_overlapping_accumulation(accumulate: Any, mode: str) -> None:
    """Report 12: columns 0:256, then 128:384 of one bank: the overlap is the sum, the rest is written."""
    a, b, c = small((16, 32)), small((16, 256)), small((16, 256))

    def kernel(a: Any, b: Any, c: Any) -> Any:
        out = nl.ndarray((32, 512), nl.float32, buffer=nl.psum)
        stationary = load(a)
        if accumulate:
            nisa.memset(out, 0.0)
        nisa.nc_matmul(out[:, 0:256], stationary, load(b), accumulate=accumulate)
        nisa.nc_matmul(out[:, 128:384], stationary, load(c), accumulate=accumulate)
        moved = nl.ndarray((32, 384), nl.float32)
        nisa.tensor_copy(moved, out[:, 0:384])
        return store(moved)

    expected = np.zeros((32, 384), np.float32)
    expected[:, 0:256] += a.T @ b
    expected[:, 128:384] += a.T @ c
    np.testing.assert_array_equal(simulate(kernel, mode=mode)(a, b, c), expected)


@pytest.mark.parametrize(("free", "shape"), [((2, 256), (128, 512)), ((2, 256), (128, 2, 256)), ((4, 8), (128, 32))])
def test_free_dimensions_of_moving_are_columns(free: tuple[int, ...], shape: tuple[int, ...], mode: str) -> None:
    """Report 13: moving [128, 2, 256] with stationary [128, 128] gives 512 columns."""
    a, b = small((128, 128)), small((128, *free))
    result = simulate(lambda a, b: product(a, b, shape), mode=mode)(a, b)
    np.testing.assert_array_equal(result, (a.T @ b.reshape(128, -1)).reshape(shape))


@pytest.mark.parametrize("perf_mode", [nisa.matmul_perf_mode.double_row, "double_row"])
@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E4M3, E5M2)])
def test_double_row(dtypes: tuple[Any, Any], perf_mode: Any, mode: str) -> None:
    """Report 14: stationary [128, 2, 128], moving [128, 2, 256] give [128, 256]: the pairs of rows are summed."""
    a, b = small((128, 2, 128), dtypes[0]), small((128, 2, 256), dtypes[1])

    def kernel(a: Any, b: Any) -> Any:
        return product(a, b, (128, 256), perf_mode=perf_mode)

    expected = np.einsum("kjm,kjn->mn", a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(simulate(kernel, mode=mode)(a, b), expected)
