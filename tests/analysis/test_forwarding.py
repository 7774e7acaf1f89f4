"""Copies that are left out, and copies that must not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as nl
from tests.conformance.harness import run_everywhere
from tilelang import isa as nisa
from tilelang.analysis.forwarding import find_forwarding
from tilelang.analysis.initialised import analyse_initialisation


def left_out(kernel: Any, *args: Any) -> int:
    """How many DMA instructions of `kernel` need not run."""
    program = tilelang.compile(kernel, *args).program
    return len(find_forwarding(program, analyse_initialisation(program)).skipped)


def data(rows: int = 128, columns: int = 96) -> Any:
    return np.random.default_rng(rows + columns).standard_normal((rows, columns)).astype(np.float32)


def load(source: Any) -> Any:
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def test_loads_and_store_of_a_chain_are_left_out() -> None:
    def kernel(a: Any, b: Any) -> Any:
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=total, data1=load(a), data2=load(b), op=nl.add)
        nisa.dma_copy(dst=out, src=total)
        return out

    a, b = data(), data(128, 96)[::-1].copy()
    assert left_out(kernel, a, b) == 3
    (got,) = run_everywhere(kernel, (a, b))
    np.testing.assert_array_equal(got, a + b)


def test_views_of_an_image_keep_their_place() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((64, 5), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = load(a[:, 10:40])
        part = nl.ndarray((64, 5), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=part, src=tile[64:128, 3:13:2])
        nisa.dma_copy(dst=out, src=part)
        return out

    a = data()
    assert left_out(kernel, a) == 2
    (got,) = run_everywhere(kernel, (a,))
    np.testing.assert_array_equal(got, a[64:128, 13:23:2])


def test_a_written_input_is_loaded_when_the_program_says() -> None:
    def kernel(a: Any) -> Any:
        before = load(a)
        changed = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=changed, data=before, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=a, src=changed)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=result, data1=before, data2=load(a), op=nl.add)
        nisa.dma_copy(dst=out, src=result)
        return out

    a = data()
    assert left_out(kernel, a.copy()) == 1
    (got,) = run_everywhere(kernel, (a,))
    np.testing.assert_array_equal(got, a + 2 * a)


@pytest.mark.parametrize("use", ["again", "twice", "written"])
def test_a_tile_used_after_its_store_stays(use: str) -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((2, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=load(a), op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[0], src=tile)
        if use == "written":
            nisa.memset(dst=tile, value=5.0)
        if use == "again":
            other = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=other, src=tile)
            nisa.dma_copy(dst=out[1], src=other)
        else:
            nisa.dma_copy(dst=out[1], src=tile)
        return out

    a = data()
    (got,) = run_everywhere(kernel, (a,))
    np.testing.assert_array_equal(got[0], a + 1)
    np.testing.assert_array_equal(got[1], np.full_like(a, 5.0) if use == "written" else a + 1)


def test_overlapping_stores_keep_their_order() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((128, 96), dtype=a.dtype, buffer=nl.shared_hbm)
        first, second = (nl.ndarray((128, 96), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
        source = load(a)
        nisa.tensor_scalar(dst=first, data=source, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=second, data=source, op0=nl.add, operand0=2.0)
        nisa.dma_copy(dst=out, src=second)
        nisa.dma_copy(dst=out, src=first)
        return out

    a = data()
    (got,) = run_everywhere(kernel, (a,))
    np.testing.assert_array_equal(got, a + 1)


def test_a_result_read_back_through_hbm() -> None:
    def kernel(a: Any) -> Any:
        scratch = nl.ndarray((128, 96), dtype=a.dtype, buffer=nl.private_hbm)
        out = nl.ndarray((96, 128), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 96), dtype=a.dtype, buffer=nl.sbuf)
        nisa.activation(dst=tile, op=nl.square, data=load(a))
        nisa.dma_copy(dst=scratch, src=tile)
        turned = nl.ndarray((96, 128), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=turned, src=scratch.permute((1, 0)))
        nisa.dma_copy(dst=out, src=turned)
        return out

    a = data()
    (got,) = run_everywhere(kernel, (a,))
    np.testing.assert_array_equal(got, (a * a).T)
