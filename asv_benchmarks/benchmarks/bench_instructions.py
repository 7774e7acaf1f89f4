"""Every instruction that has a NumPy counterpart, on [128, 2048] tiles of float32 unless it says otherwise.

A kernel repeats the instruction between one load and one store; the time of the same kernel without it is taken off.
NumPy does the same maths, as its user would write it, into new arrays.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from .common import THREADS, compare, generator, normal

P, F = 128, 2048
REPEATS = 16

# Instruction: the call on tiles `t` (a, b: data; y: result; column: (128, 1); mask: uint8; index: uint32), and NumPy on
# arrays of the same names.
CALLS: dict[str, tuple[Any, Any]] = {
    "tensor_copy": (lambda i, l, t: i.tensor_copy(dst=t.y, src=t.a), lambda x: x.a.copy()),
    "memset": (lambda i, l, t: i.memset(dst=t.y, value=1.0), lambda x: np.full((P, F), 1.0, np.float32)),
    "dma_copy": (lambda i, l, t: i.dma_copy(dst=t.y, src=t.a), lambda x: x.a.copy()),
    "dma_compute": (
        lambda i, l, t: i.dma_compute(dst=t.y, srcs=[t.a, t.b], reduce_op=l.add),
        lambda x: x.a + x.b,
    ),
    "tensor_tensor": (lambda i, l, t: i.tensor_tensor(dst=t.y, data1=t.a, data2=t.b, op=l.add), lambda x: x.a + x.b),
    "tensor_scalar": (
        lambda i, l, t: i.tensor_scalar(dst=t.y, data=t.a, op0=l.multiply, operand0=t.column, op1=l.add, operand1=1.0),
        lambda x: x.a * x.column + np.float32(1),
    ),
    "scalar_tensor_tensor": (
        lambda i, l, t: i.scalar_tensor_tensor(
            dst=t.y, data=t.a, op0=l.multiply, operand0=t.column, op1=l.add, operand1=t.b
        ),
        lambda x: x.a * x.column + x.b,
    ),
    "tensor_reduce": (
        lambda i, l, t: i.tensor_reduce(dst=t.total, op=l.add, data=t.a, axis=1),
        lambda x: x.a.sum(1, keepdims=True),
    ),
    "tensor_scalar_reduce": (
        lambda i, l, t: i.tensor_scalar_reduce(
            dst=t.y, data=t.a, op0=l.multiply, operand0=2.0, reduce_op=l.add, reduce_res=t.total
        ),
        lambda x: ((y := x.a * np.float32(2)), y.sum(1, keepdims=True)),
    ),
    "tensor_scalar_cumulative": (
        lambda i, l, t: i.tensor_scalar_cumulative(dst=t.y, src=t.a, op0=l.multiply, op1=l.add, imm0=2.0),
        lambda x: np.cumsum(x.a * np.float32(2), axis=1),
    ),
    "tensor_tensor_scan": (
        lambda i, l, t: i.tensor_tensor_scan(dst=t.y, data0=t.a, data1=t.b, initial=0.0, op0=l.add, op1=l.add),
        lambda x: np.cumsum(x.a + x.b, axis=1),
    ),
    "tensor_partition_reduce": (
        lambda i, l, t: i.tensor_partition_reduce(dst=t.row, op=l.add, data=t.a),
        lambda x: x.a.sum(0, keepdims=True),
    ),
    "reciprocal": (lambda i, l, t: i.reciprocal(dst=t.y, data=t.a), lambda x: np.float32(1) / x.a),
    "activation": (
        lambda i, l, t: i.activation(dst=t.y, op=l.exp, data=t.a, bias=t.column, scale=0.5),
        lambda x: np.exp(x.a * np.float32(0.5) + x.column),
    ),
    "activation_reduce": (
        lambda i, l, t: i.activation_reduce(dst=t.y, op=l.exp, data=t.a, reduce_op=l.add, reduce_res=t.total),
        lambda x: ((y := np.exp(x.a)), y.sum(1, keepdims=True)),
    ),
    "activate2": (
        lambda i, l, t: i.activate2(dst=t.y, op=l.exp, data=t.a, imm0=0.5, imm1=1.0, op0=l.multiply, op1=l.add),
        lambda x: np.exp(x.a * np.float32(0.5) + np.float32(1)),
    ),
    "exponential": (
        lambda i, l, t: i.exponential(dst=t.y, src=t.a, max_value=t.column),
        lambda x: np.exp(x.a - x.column),
    ),
    "select_reduce": (
        lambda i, l, t: i.select_reduce(dst=t.y, predicate=t.mask, on_true=t.a, on_false=0.0),
        lambda x: np.where(x.mask != 0, x.a, np.float32(0)),
    ),
    "tensor_copy_predicated": (
        lambda i, l, t: i.tensor_copy_predicated(dst=t.y, src=t.a, predicate=t.mask),
        lambda x: np.copyto(x.y, x.a, where=x.mask != 0),
    ),
    "range_select": (
        lambda i, l, t: i.range_select(
            dst=t.y, on_true_tile=t.a, comp_op0=l.greater_equal, comp_op1=l.less, bound0=t.low, bound1=t.high,
            reduce_res=t.total,
        ),
        lambda x: (
            (y := np.where((x.columns >= x.low) & (x.columns < x.high), x.a, np.float32(-3e38))),
            y.max(1, keepdims=True),
        ),
    ),
    "affine_select": (
        lambda i, l, t: i.affine_select(
            dst=t.y, pattern=[[-1, F]], channel_multiplier=1, on_true_tile=t.a, on_false_value=0.0,
            cmp_op=l.greater_equal,
        ),
        lambda x: np.where(x.rows - x.columns >= 0, x.a, np.float32(0)),
    ),
    "iota": (
        lambda i, l, t: i.iota(dst=t.whole, pattern=[[1, F]], channel_multiplier=2),
        lambda x: 2 * x.rows + x.columns,
    ),
    "bn_stats": (
        lambda i, l, t: [i.bn_stats(dst=t.stats, data=t.a[:, 512 * n : 512 * (n + 1)]) for n in range(4)],
        lambda x: (x.a.mean(1), x.a.var(1)),
    ),
    "max8": (lambda i, l, t: i.max8(dst=t.eight, src=t.a), lambda x: np.partition(x.a, F - 8, axis=1)[:, F - 8 :]),
    "nc_find_index8": (
        lambda i, l, t: i.nc_find_index8(dst=t.places, data=t.a, vals=t.eight),
        lambda x: [(x.a == x.eight[:, n : n + 1]).argmax(1) for n in range(8)],
    ),
    "nc_n_gather": (
        lambda i, l, t: i.nc_n_gather(dst=t.y, data=t.a, indices=t.index),
        lambda x: np.take_along_axis(x.a, x.index, axis=1),
    ),
    "nc_transpose": (
        lambda i, l, t: [i.nc_transpose(dst=t.turned, data=t.a[:, 128 * n : 128 * (n + 1)]) for n in range(16)],
        lambda x: np.ascontiguousarray(x.a.T),
    ),
    "nc_matmul": (
        lambda i, l, t: [
            i.nc_matmul(dst=t.sums, stationary=t.a[:, :128], moving=t.b[:, 512 * n : 512 * (n + 1)], accumulate=False)
            for n in range(4)
        ],
        lambda x: x.a[:, :128].T @ x.b,
    ),
    "quantize_mx": (
        lambda i, l, t: i.quantize_mx(dst=t.packed, src=t.half, dst_scale=t.scale),
        lambda x: _quantized(x.half),
    ),
}  # fmt: skip


def _quantized(x: Any) -> Any:
    blocks = x.astype(np.float32).reshape(16, 8, F // 4, 4)
    scale = np.exp2(np.floor(np.log2(np.abs(blocks).max(axis=(1, 3), keepdims=True))) - 7)
    return (blocks / scale).astype(ml_dtypes.float8_e4m3fn)


def _kernel(name: str, repeats: int) -> Any:
    def kernel(a: Any, b: Any, column: Any, low: Any, high: Any, mask: Any, index: Any, half: Any) -> Any:
        import nki.isa as nisa
        import nki.language as nl

        given = dict(a=a, b=b, column=column, low=low, high=high, mask=mask, index=index, half=half)
        tiles = SimpleNamespace()
        for key, source in given.items():
            tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=source)
            setattr(tiles, key, tile)
        made = dict(
            y=((P, F), nl.float32), total=((P, 1), nl.float32), row=((1, F), nl.float32), whole=((P, F), nl.int32),
            stats=((P, 6), nl.float32), eight=((P, 8), nl.float32), places=((P, 8), nl.uint32),
        )  # fmt: skip
        if name == "quantize_mx":
            made |= dict(packed=((P, F // 4), nl.float8_e4m3fn_x4), scale=((P, F // 4), nl.uint8))
        for key, (shape, dtype) in made.items():
            tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
            if key in ("y", "eight"):
                nisa.memset(dst=tile, value=0.0)
            setattr(tiles, key, tile)
        tiles.turned = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.psum)
        tiles.sums = nl.ndarray((P, 512), dtype=nl.float32, buffer=nl.psum)
        for _ in range(repeats):
            CALLS[name][0](nisa, nl, tiles)
        out = nl.ndarray((P, F), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tiles.y)
        return out

    return kernel


class Instruction:
    """One instruction at a time against NumPy."""

    param_names = ["instruction"]
    params = list(CALLS)
    timeout = 120.0

    def setup(self, name: str) -> None:
        """Make the data and compile the kernel with and without the instruction."""
        import tilelang
        import tilelang.nki

        rng = generator()
        self.arrays = dict(
            a=normal(P, F),
            b=normal(P, F) * np.float32(0.5),
            column=normal(P, 1),
            low=np.full((P, 1), 100, np.float32),
            high=np.full((P, 1), 1500, np.float32),
            mask=rng.integers(0, 2, (P, F)).astype(np.uint8),
            index=rng.integers(0, F, (P, F)).astype(np.uint32),
            half=normal(P, F).astype(ml_dtypes.bfloat16),
        )
        values = list(self.arrays.values())
        self.runs = []
        for repeats in (REPEATS, 0):
            executable = tilelang.compile(_kernel(name, repeats), *values, target="trn3", threads=THREADS)
            self.runs.append(lambda executable=executable: executable.run(*values))
        rows, columns = np.arange(P, dtype=np.int32)[:, None], np.arange(F, dtype=np.int32)[None, :]
        self.x = SimpleNamespace(
            **self.arrays, rows=rows, columns=columns, y=np.zeros((P, F), np.float32), eight=self.arrays["a"][:, :8]
        )

    def time_run(self, name: str) -> None:
        """Replay of the kernel that repeats the instruction."""
        self.runs[0]()

    def track_time_over_numpy(self, name: str) -> float:
        """Time of one instruction over that of NumPy; below 1: faster."""
        theirs = CALLS[name][1]
        whole, other = compare(self.runs[0], lambda: theirs(self.x))
        rest, _ = compare(self.runs[1], lambda: None)
        return max(whole - rest, 0.0) / REPEATS / other

    track_time_over_numpy.unit = "ours / NumPy"  # type: ignore[attr-defined]
