"""Element-wise micro-ops: operators on float32 and integers, activation functions, fused scale and bias, select, iota.

Each works on one block of 32-bit items. In names, `t` is a block and `v` a column register of one scalar per row.
Arguments are register numbers, the destination first:

| name | args | meaning |
|---|---|---|
| `unary.<op>`, `activation.<function>` | dst src | dst = f(src) |
| `binary.<op>.tt`, `.tv`, `.vt`; `activation.prelu.tv` | dst a b | dst = f(a, b) |
| `integer.<op>.<int32, uint32>.tt`, `.tv`, `.vt` | dst a b | the same on integers |
| `integer.<op>.mixed.<int32, uint32>.<int32, uint32>` | dst a b | the same on blocks of different sign |
| `integer.invert.uint32` | dst src | |
| `fma.vv` | dst src scale bias | dst = src * scale + bias with one rounding; scale and bias are column registers |
| `fma.vv.minus`, `fma.vv.reverse` | dst src scale bias | the same for src * scale - bias and bias - src * scale |
| `select.<1, 2, 4>.tt`, `.tv` | dst predicate a b reverse | a where the predicate is not 0 (xor reverse), else b |
| `affine` | dst offset multiplier n0 n1 n2 n3 s0 s1 s2 s3 | int32: offset + row * multiplier + sum of index_k * s_k |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.execute.engines.blocks import arg, base, make_binary, make_unary, pitch
from tilelang.execute.engines.jit import LOAD, STORE, fma_f32, inline, load_f32, load_i64, store_f32
from tilelang.execute.layout import C_COLUMN, C_COLUMNS, C_ROW, C_ROWS
from tilelang.numerics import alu, functions
from tilelang.numerics.casts import quiet
from tilelang.numerics.prim import as_i64, select

__all__ = ["source"]

_store_i32 = STORE["int32"]
_RAW = {"1": "uint8", "2": "uint16", "4": "uint32"}


def _make_fma(form: str) -> Callable[..., Any]:
    """Fused scale and bias."""
    scale_sign = np.float32(-1 if form == "reverse" else 1)
    bias_sign = np.float32(-1 if form == "minus" else 1)

    def fma(uop: int, context: int) -> None:
        dst, src = arg(uop, 0), arg(uop, 1)
        scales, biases = base(context, arg(uop, 2)), base(context, arg(uop, 3))
        write, read = base(context, dst), base(context, src)
        for row in range(load_i64(context, C_ROWS)):
            scale, bias = scale_sign * load_f32(scales, row), bias_sign * load_f32(biases, row)
            for i in range(load_i64(context, C_COLUMNS)):
                store_f32(write, i, quiet(fma_f32(load_f32(read, i), scale, bias)))
            write += pitch(context, dst)
            read += pitch(context, src)

    return fma


def _make_select(item: str, column: bool) -> Callable[..., Any]:
    load, store = LOAD[item], STORE[item]
    load_flag = LOAD["uint32"]

    def select_items(uop: int, context: int) -> None:
        dst, condition, a, b = arg(uop, 0), arg(uop, 1), arg(uop, 2), arg(uop, 3)
        flip = arg(uop, 4) != 0
        write, flags, read_a, read_b = base(context, dst), base(context, condition), base(context, a), base(context, b)
        for row in range(load_i64(context, C_ROWS)):
            if column:
                scalar = load(read_b, row)
                for i in range(load_i64(context, C_COLUMNS)):
                    store(write, i, select((load_flag(flags, i) != 0) != flip, load(read_a, i), scalar))
            else:
                for i in range(load_i64(context, C_COLUMNS)):
                    store(write, i, select((load_flag(flags, i) != 0) != flip, load(read_a, i), load(read_b, i)))
                read_b += pitch(context, b)
            write += pitch(context, dst)
            flags += pitch(context, condition)
            read_a += pitch(context, a)

    return select_items


def affine(uop: int, context: int) -> None:
    """Values of an affine pattern; 32-bit arithmetic wraps."""
    dst = arg(uop, 0)
    n1, n2, n3 = arg(uop, 4), arg(uop, 5), arg(uop, 6)
    s0, s1, s2, s3 = arg(uop, 7), arg(uop, 8), arg(uop, 9), arg(uop, 10)
    start, width = load_i64(context, C_COLUMN), load_i64(context, C_COLUMNS)
    outer, first3 = start // n3, start % n3
    outer, first2 = outer // n2, outer % n2
    first0, first1 = outer // n1, outer % n1
    write = base(context, dst)
    for row in range(load_i64(context, C_ROWS)):
        value = arg(uop, 1) + (load_i64(context, C_ROW) + row) * arg(uop, 2)
        i0, i1, i2, i3 = first0, first1, first2, first3
        position = 0
        while position < width:
            run = min(n3 - i3, width - position)
            corner = value + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3
            for j in range(run):
                _store_i32(write, position + j, corner + j * s3)
            position += run
            i3 = 0
            i2 += 1
            if i2 == n2:
                i2 = 0
                i1 += 1
                if i1 == n1:
                    i1 = 0
                    i0 += 1
        write += pitch(context, dst)


def _widened(formula: Callable[..., Any]) -> Callable[..., Any]:
    """`formula` on 64-bit integers, which hold both signs; the result is cut to 32 bits."""
    return inline(lambda a, b: formula(as_i64(a), as_i64(b)))


def source(name: str) -> tuple[Callable[..., Any], int]:
    """The function of micro-op `name` and its number of arguments. Raises KeyError when there is none."""
    family, _, rest = name.partition(".")
    if family == "unary":
        return make_unary(alu.UNARY[rest], "float32", "float32"), 2
    if family == "binary":
        op, kinds = rest.split(".")
        return make_binary(alu.BINARY[op], kinds, "float32"), 2
    if family == "integer":
        op, item, *forms = rest.split(".")
        if op == "invert":
            return make_unary(alu.INTEGER[op], item, item), 2
        if item == "mixed":
            return make_binary(_widened(alu.INTEGER[op]), "tt", *forms), 2
        return make_binary(alu.INTEGER[op], forms[0], item), 2
    if family == "activation":
        function, _, kinds = rest.partition(".")
        formula = functions.ACTIVATIONS[function]
        return (make_binary(formula, kinds, "float32") if kinds else make_unary(formula, "float32", "float32")), 2
    if family == "select":
        size, kinds = rest.split(".")
        return _make_select(_RAW[size], {"tt": False, "tv": True}[kinds]), 2
    if family == "fma":
        return _make_fma({"vv": "", "vv.minus": "minus", "vv.reverse": "reverse"}[rest]), 2
    return {"affine": affine}[name], 2
