"""Register-blocked float32 matmul tile, emitted as LLVM vector IR.

Each output element is one chain of fused multiply-adds in ascending order from +0.0, held in one vector lane. So the
bits do not depend on the shape of the tile, which only fits the registers of the host. LLVM lowers `llvm.fma` to the
instruction, or to the correctly rounded `fmaf` where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

__all__ = ["Blocking", "host_blocking", "make_tile_product"]

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)


@dataclass(frozen=True, slots=True)
class Blocking:
    """Shape of one register tile: `rows` by `vectors * lanes` columns."""

    rows: int
    vectors: int
    lanes: int


def host_blocking() -> Blocking:
    """The register tile for the CPU that Numba compiles for (`NUMBA_CPU_FEATURES` included)."""
    settings: Any = config
    named = settings.CPU_FEATURES
    features = (llvm.get_host_cpu_features().flatten() if named is None else named).split(",")
    if "+avx512f" in features:
        return Blocking(rows=4, vectors=4, lanes=16)
    if "+avx2" in features:
        return Blocking(rows=4, vectors=3, lanes=8)
    # NEON has 32 registers. SSE has 16 and no fma: it is bound by the calls of fmaf whatever the shape.
    return Blocking(rows=4, vectors=4, lanes=4)


class _Emitter:
    """Emits the tile product of one shape at the builder's position."""

    def __init__(self, builder: ir.IRBuilder, shape: Blocking, widen: bool) -> None:
        self.builder = builder
        self.shape = shape
        self.widen = widen
        self.vector = ir.VectorType(_F32, shape.lanes)
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        self.fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{shape.lanes}f32")

    def pointer(self, address: ir.Value, offset: int, pointee: ir.Type) -> ir.Value:
        moved = self.builder.add(address, ir.Constant(_I64, offset))
        return self.builder.inttoptr(moved, pointee.as_pointer())

    def splat(self, scalar: ir.Value) -> ir.Value:
        undefined = ir.Constant(self.vector, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(_I32, self.shape.lanes), [0] * self.shape.lanes)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(_I32, 0))
        return self.builder.shuffle_vector(first, undefined, zeros)

    def columns(self, row: ir.Value, j: int) -> ir.Value:
        """Vector number j of the row of b at address `row`."""
        lanes = self.shape.lanes
        if not self.widen:
            return self.builder.load(self.pointer(row, 4 * lanes * j, self.vector), align=1)
        half, word = ir.VectorType(ir.IntType(16), lanes), ir.VectorType(_I32, lanes)
        bits = self.builder.zext(self.builder.load(self.pointer(row, 2 * lanes * j, half), align=1), word)
        return self.builder.bitcast(self.builder.shl(bits, ir.Constant(word, [16] * lanes)), self.vector)

    def step(self, sums: list[ir.Value], a: ir.Value, b: ir.Value) -> list[ir.Value]:
        """`sums` after one more product: row of a at address `a` times row of b at address `b`."""
        columns = [self.columns(b, j) for j in range(self.shape.vectors)]
        after = []
        for i in range(self.shape.rows):
            factor = self.splat(self.builder.load(self.pointer(a, 4 * i, _F32)))
            for j, column in enumerate(columns):
                after.append(self.builder.call(self.fma, [factor, column, sums[i * self.shape.vectors + j]]))
        return after

    def sums(self, a: ir.Value, a_pitch: ir.Value, b: ir.Value, b_pitch: ir.Value, steps: ir.Value) -> list[ir.Value]:
        """The accumulators after `steps` (at least 1) products."""
        builder = self.builder
        before = builder.block
        loop = builder.append_basic_block("step")
        after = builder.append_basic_block("stepped")
        builder.branch(loop)
        builder.position_at_end(loop)
        zero = ir.Constant(self.vector, [0.0] * self.shape.lanes)
        starts = [steps, a, b] + [zero] * (self.shape.rows * self.shape.vectors)
        phis = []
        for start in starts:
            phi = builder.phi(start.type)
            phi.add_incoming(start, before)
            phis.append(phi)
        left, row_a, row_b = phis[:3]
        result = self.step(phis[3:], row_a, row_b)
        remaining = builder.sub(left, ir.Constant(_I64, 1))
        nexts = [remaining, builder.add(row_a, a_pitch), builder.add(row_b, b_pitch), *result]
        for phi, value in zip(phis, nexts, strict=True):
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed(">", remaining, ir.Constant(_I64, 0)), loop, after)
        builder.position_at_end(after)
        return result

    def store(self, sums: list[ir.Value], c: ir.Value, c_pitch: ir.Value, accumulate: bool) -> None:
        # Which NaN an operation returns, and its sign, differ between CPUs and instruction forms.
        nan = ir.Constant(self.vector, [float("nan")] * self.shape.lanes)
        row = c
        for i in range(self.shape.rows):
            for j in range(self.shape.vectors):
                place = self.pointer(row, 4 * self.shape.lanes * j, self.vector)
                value = sums[i * self.shape.vectors + j]
                if accumulate:
                    value = self.builder.fadd(self.builder.load(place, align=1), value)
                value = self.builder.select(self.builder.fcmp_unordered("uno", value, value), nan, value)
                self.builder.store(value, place, align=1)
            row = self.builder.add(row, c_pitch)


def make_tile_product(shape: Blocking, widen: bool = False) -> Any:
    """Numba function `(a, a_pitch, b, b_pitch, c, c_pitch, steps, accumulate)`, all int64: addresses, pitches in bytes.

    Tile `c[i, j] = sum over s of a[s, i] * b[s, j]` with i < rows and j < vectors * lanes, in float32; b is bfloat16
    when `widen`. `accumulate` != 0 adds the sum to c with one rounding. NaN results are the one quiet NaN 0x7FC00000.
    `steps` is at least 1; every element of the tile is written.
    """

    @intrinsic
    def tile_product(
        typing: Any, a: Any, a_pitch: Any, b: Any, b_pitch: Any, c: Any, c_pitch: Any, steps: Any, accumulate: Any
    ) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
            a, a_pitch, b, b_pitch, c, c_pitch, steps, accumulate = args
            emit = _Emitter(builder, shape, widen)
            sums = emit.sums(a, a_pitch, b, b_pitch, steps)
            with builder.if_else(builder.icmp_signed("!=", accumulate, ir.Constant(_I64, 0))) as (then, otherwise):
                with then:
                    emit.store(sums, c, c_pitch, accumulate=True)
                with otherwise:
                    emit.store(sums, c, c_pitch, accumulate=False)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return tile_product
