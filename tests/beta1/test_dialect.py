"""Kernels in the older dialect against NumPy: masks, block dims, accumulation, grids, instructions."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tilelang.nki  # noqa: F401  (makes neuronxcc importable)
from tilelang.beta1 import compiler as ncc
from tilelang.beta1 import isa as nisa
from tilelang.beta1 import kernel as nki
from tilelang.beta1 import language as nl
from tilelang.errors import TileTypeError, TileUnsupportedError

F32 = np.float32
RNG = np.random.default_rng(5)


def out_like(tile: Any, shape: Any = None) -> Any:
    return nl.ndarray(shape or tile.shape, tile.dtype, buffer=nl.shared_hbm)


def returned(tile: Any) -> Any:
    out = out_like(tile)
    nl.store(out, tile)
    return out


def test_it_is_importable_under_its_old_name() -> None:
    import neuronxcc.nki as old
    from neuronxcc.nki.typing import tensor

    assert old.language is nl and old.isa is nisa and old.tensor is tensor
    assert sys.modules["neuronxcc.nki"].jit is nki.jit


@pytest.mark.parametrize("size", [(200, 300), (128, 512), (129, 1)])
def test_masked_tiles_of_a_large_tensor(size: tuple[int, int]) -> None:
    rows, columns = size

    @nki.jit
    def kernel(a: Any, b: Any) -> Any:
        out = nl.ndarray((rows, columns), a.dtype, buffer=nl.shared_hbm)
        for r in nl.affine_range(-(-rows // 128)):
            i_p, i_f = r * 128 + nl.arange(128)[:, None], nl.arange(512)[None, :]
            mask = (i_p < rows) & (i_f < columns)
            x, y = nl.load(a[i_p, i_f], mask=mask), nl.load(b[i_p, i_f], mask=mask)
            z = nl.exp(nl.add(x, y, mask=mask), mask=mask) * 2.0 if r < 0 else nl.add(x, y, mask=mask)
            nl.store(out[i_p, i_f], nl.multiply(z, 2.0, mask=mask), mask=mask)
        return out

    a, b = RNG.standard_normal((2, rows, columns)).astype(F32)
    np.testing.assert_array_equal(kernel(a, b), (a + b) * F32(2))


def test_masked_results_leave_the_rest_of_their_target() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        tile, i_p, i_f = nl.load(x), nl.arange(8)[:, None], nl.arange(6)[None, :]
        kept = nl.full((8, 6), 7.0, dtype=x.dtype)
        kept[i_p, i_f] = nl.multiply(tile, 3.0, mask=(i_p < 5) & (i_f >= 2))
        total = nl.sum(tile, axis=1, mask=i_f < 4)
        return returned(kept), returned(total), returned(nl.max(tile, axis=[1], keepdims=True))

    x = RNG.integers(-9, 9, (8, 6)).astype(F32)
    kept, total, largest = kernel(x)
    expected = np.full((8, 6), 7, F32)
    expected[:5, 2:] = 3 * x[:5, 2:]
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_array_equal(total[:, 0], x[:, :4].sum(1))
    np.testing.assert_array_equal(largest[:, 0], x.max(1))


def test_block_dims_operators_and_accumulation() -> None:
    @nki.jit
    def kernel(a: Any, b: Any) -> Any:
        out = nl.ndarray((96, 128), F32, buffer=nl.shared_hbm)
        left = nl.ndarray((3, nl.par_dim(64), 96), a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((3, nl.par_dim(64), 128), b.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(3):
            left[k] = nl.load(a[nl.ds(64 * k, 64), :])
            right[k] = nl.load(b[64 * k : 64 * (k + 1)])
        psum = nl.zeros((nl.par_dim(96), 128), F32, buffer=nl.psum)
        fresh = nl.ndarray((2, nl.par_dim(96), 128), F32, buffer=nl.psum)
        sums = nl.zeros((nl.par_dim(96), 128), F32)
        for k in nl.affine_range(3):
            psum += nisa.nc_matmul(left[k], right[k])
            fresh[1] += nisa.nc_matmul(left[k], right[k])
            sums[:, :] += nl.matmul(left[k], right[k], transpose_x=True)
        total = (nl.copy(psum) + fresh[1]) - sums
        nl.store(out, value=-(total * -1))
        return out

    a, b = RNG.integers(-4, 5, (192, 96)).astype(F32), RNG.integers(-4, 5, (192, 128)).astype(F32)
    np.testing.assert_array_equal(kernel(a, b), a.T @ b)


def test_loop_reduce_and_rebinding() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        total = nl.zeros((nl.par_dim(16), 4), x.dtype, buffer=nl.sbuf)
        running = nl.zeros((nl.par_dim(16), 4), x.dtype, buffer=nl.sbuf)
        for k in nl.sequential_range(5):
            total[...] = nl.loop_reduce(nl.load(x[k]), op=np.add, loop_indices=[k])
            running = running + nl.load(x[k]) * 2
        return returned(total), returned(running)

    x = RNG.integers(-9, 9, (5, 16, 4)).astype(F32)
    total, running = kernel(x)
    np.testing.assert_array_equal(total, x.sum(0))
    np.testing.assert_array_equal(running, 2 * x.sum(0))


def test_reductions_over_inner_axes_and_permuted_stores() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        i, h, a, w, b = nl.mgrid[0:4, 0:3, 0:2, 0:5, 0:2]
        tile = nl.load(x)
        pooled = nl.max(tile[i, 2 * h + a, 2 * w + b], axis=[2, 4])
        p, f, g = nl.arange(4)[:, None, None], nl.arange(6)[None, :, None], nl.arange(10)[None, None, :]
        out = nl.ndarray((4, 10, 6), x.dtype, buffer=nl.shared_hbm)
        nl.store(out[p, g, f], tile[p, f, g])
        return returned(pooled), out

    x = RNG.standard_normal((4, 6, 10)).astype(F32)
    pooled, turned = kernel(x)
    np.testing.assert_array_equal(pooled, x.reshape(4, 3, 2, 5, 2).max((2, 4)))
    np.testing.assert_array_equal(turned, x.transpose(0, 2, 1))


def test_grids_share_their_outputs() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i_p = nl.program_id(0) * 8 + nl.arange(8)[:, None]
        i_f = nl.program_id(1) * 5 + nl.arange(5)[None, :]
        assert nl.program_ndim() == 2 and nl.num_programs() == (4, 3) and nl.num_programs(1) == 3
        nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]) + float(nl.program_id(0)))
        return out

    x = np.zeros((32, 15), F32)
    ours = kernel[nl.spmd_dim(2, nl.nc(2)), 3](x)
    np.testing.assert_array_equal(ours, np.repeat(np.arange(4), 8)[:, None] * np.ones((1, 15)))
    with pytest.raises(TileTypeError, match="positive ints"):
        kernel[0]


def test_rows_picked_by_an_index_tile() -> None:
    @nki.jit
    def kernel(table: Any, rows: Any) -> Any:
        index = nl.load(rows)
        i_p, i_f = nl.arange(6)[:, None], nl.arange(9)[None, :]
        found = nl.load(table[index[i_p, 0], i_f])
        out = nl.zeros(table.shape, table.dtype, buffer=nl.shared_hbm)
        nl.store(out[index[i_p, 0], i_f], found + 1)
        return returned(found), out

    table = RNG.integers(0, 99, (20, 9)).astype(F32)
    rows = np.array([[3], [19], [0], [7], [8], [11]], np.int32)
    found, scattered = kernel(table, rows)
    np.testing.assert_array_equal(found, table[rows[:, 0]])
    expected = np.zeros_like(table)
    expected[rows[:, 0]] = table[rows[:, 0]] + 1
    np.testing.assert_array_equal(scattered, expected)


def test_instructions_return_tiles() -> None:
    @nki.jit
    def kernel(x: Any, y: Any) -> Any:
        a, b = nl.load(x), nl.load(y)
        i_p, i_f = nl.arange(32)[:, None], nl.arange(16)[None, :]
        sums = nl.ndarray((nl.par_dim(32), 1), F32, buffer=nl.sbuf)
        results = [
            nisa.tensor_tensor(a, b, op=np.subtract),
            nisa.tensor_scalar(a, np.multiply, 2.0, op1=np.add, operand1=nl.load(y[:, 0:1])),
            nisa.tensor_reduce(np.max, a, axis=[1], negate=True),
            nisa.activation(np.square, a, bias=nl.load(y[:, 0:1]), scale=2.0),
            nisa.activation_reduce(np.copy, a, reduce_op=np.add, reduce_res=sums),
            nisa.tensor_tensor_scan(a, b, 0.0, np.multiply, np.add),
            nisa.affine_select(i_p >= 2 * i_f, a, -1.0),
            nisa.iota(100 * i_p + 3 * i_f + 1, dtype=np.int32),
            nisa.nc_transpose(a),
            nisa.memset((32, 4), 5, F32),
            nisa.reciprocal(b),
            nisa.tensor_copy(a, dtype=np.int32),
            nisa.max8(src=a),
            nl.where(nl.greater(a, b), a, b),
            nl.softmax(a, axis=1),
            nl.static_cast(a, np.float16),
            a.expand_dims(1).reshape((32, 4, 4)),
            a < b,
            a.broadcast_to((32, 16)),
        ]
        nl.device_print("a", sums)
        return (*map(returned, results), returned(sums))

    x, y = RNG.integers(-5, 6, (32, 16)).astype(F32), RNG.integers(1, 5, (32, 16)).astype(F32)
    got = kernel(x, y)
    i, j = np.mgrid[0:32, 0:16]
    scan, state = np.empty_like(x), np.zeros(32, F32)
    for f in range(16):
        state = x[:, f] * state + y[:, f]
        scan[:, f] = state
    soft = np.exp(x - x.max(1, keepdims=True))
    expected = [
        x - y, 2 * x + y[:, :1], -x.max(1, keepdims=True), (2 * x + y[:, :1]) ** 2, x, scan,
        np.where(i >= 2 * j, x, -1),
        100 * i + 3 * j + 1, x.T, np.full((32, 4), 5), 1 / y, x.astype(np.int32), -np.sort(-x, 1)[:, :8],
        np.maximum(x, y), soft / soft.sum(1, keepdims=True), x.astype(np.float16), x.reshape(32, 4, 4), x < y, x,
        x.sum(1, keepdims=True),
    ]  # fmt: skip
    for number, (ours, wanted) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6, err_msg=f"result {number}")


def test_masks_of_instructions_and_predicated_copies() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        a, i_p, i_f = nl.load(x), nl.arange(16)[:, None], nl.arange(8)[None, :]
        kept = nl.zeros((16, 8), F32)
        kept[i_p, i_f] = nisa.tensor_scalar(a, np.add, 1.0, mask=(i_p < 9) & (i_f < 3))
        nisa.tensor_copy_predicated(src=a, dst=kept, predicate=nl.equal(a, 2.0))
        stats = nisa.bn_aggr(nisa.bn_stats(a))
        return returned(kept), returned(stats)

    x = RNG.integers(0, 4, (16, 8)).astype(F32)
    kept, stats = kernel(x)
    expected = np.zeros((16, 8), F32)
    expected[:9, :3] = x[:9, :3] + 1
    np.testing.assert_array_equal(kept, np.where(x == 2, x, expected))
    np.testing.assert_allclose(stats, np.stack([x.mean(1), x.var(1)], 1), rtol=1e-6)


def test_arguments_that_the_kernel_writes_and_allocators() -> None:
    def kernel(x: Any, out: Any) -> None:
        tile = nl.ndarray((nl.par_dim(8), 4), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        with ncc.allocation_scope():
            tile[...] = nl.load(x)
            nl.store(out, tile * 2)

    x, out = RNG.standard_normal((8, 4)).astype(F32), np.zeros((8, 4), F32)
    assert nki.simulate_kernel(ncc.enable_stack_allocator(kernel), x, out) is None
    np.testing.assert_array_equal(out, 2 * x)


def test_a_tile_on_chip_may_be_returned_and_benchmarks_run() -> None:
    @nki.benchmark(warmup=1, iters=2, save_neff_name="file.neff")
    def kernel(x: Any) -> Any:
        return nl.load(x) + 1

    x = np.zeros((4, 4), F32)
    np.testing.assert_array_equal(kernel(x), x + 1)
    assert kernel.benchmark_result.nc_latency.get_latency_percentile(50) > 0
    np.testing.assert_array_equal(nki.baremetal(artifacts_dir="x")(lambda y: nl.load(y) * 2)(x + 1), x + 2)
    np.testing.assert_array_equal(nki.jit(mode="simulation", platform_target="trn1")(lambda y: nl.load(y))(x), x)


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda x: nl.load(3), TileTypeError, "must be a tensor"),
        (lambda x: nl.add(1, 2), TileTypeError, "no operand is a tile"),
        (lambda x: nl.sum(nl.load(x), axis=0), TileTypeError, "free dims"),
        (lambda x: nl.load(x, mask=nl.arange(4)[:, None] < 0), TileUnsupportedError, "nothing pass"),
        (lambda x: nl.store(x, nl.load(x[0:2])), TileTypeError, "does not fit"),
        (lambda x: nl.all_reduce(nl.load(x), np.add, 0), TileUnsupportedError, "tilelang.launch"),
        (lambda x: nisa.builtin_custom_op(), TileUnsupportedError, "library of the device"),
        (lambda x: nisa.tensor_copy_dynamic_src(nl.load(x)), TileUnsupportedError, "scalar_offset"),
    ],
)
def test_errors(use: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        nki.simulate_kernel(lambda x: use(x) and None, np.zeros((4, 4), F32))


def test_names_that_are_missing() -> None:
    with pytest.raises(AttributeError, match="use `import nki.language as nl`"):
        _ = nl.fori_loop
    with pytest.raises(AttributeError, match="use `import nki.isa as nisa`"):
        _ = nisa.scalar_load
    with pytest.raises(AttributeError, match="did you mean 'load'"):
        _ = nl.laod


def test_constants() -> None:
    assert nl.float32 is np.float32 and nl.fp32.min == np.finfo(F32).min and nl.bfp16.min == -np.inf
    assert nl.finfo(nl.bfloat16).bits == 16 and nl.par_dim(4) == 4
    assert nl.tile_size.pmax == 128
