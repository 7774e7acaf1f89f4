"""Rule rows of running reductions, fast exponentials and activate2 (see test_rules.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilelang.language as nl
from tilelang.isa.enums import engine, reduce_cmd

A = "sbuf float32[4,8]"
PSUM = "psum float32[4,8]"
HBM = "shared_hbm float32[4,8]"
COLUMN = "sbuf float32[4,1]"
ON_CHIP = "SBUF or PSUM"
T3 = ("trn3", "trn3")

BASE: dict[str, dict[str, Any]] = {
    "tensor_scalar_cumulative": dict(dst=A, src=A, op0=np.add, op1=np.add, imm0=1.0),
    "exponential": dict(dst=A, src=A),
    "activate2": dict(dst=A, op=nl.exp, data=A, imm0=2.0, imm1=1.0, op0=nl.multiply, op1=nl.add),
}
_LOAD = dict(reduce_cmd=reduce_cmd.load_reduce)
_PASS = dict(op0=nl.bypass, op1=nl.bypass)
_REDUCE = dict(reduce_cmd=reduce_cmd.reduce, reduce_op=nl.abs_max)
_MANY = "sbuf float32[4,2,2,1,2]"
_GATHER = "indirect sbuf float32[16,16]"

# fmt: off
ROWS: list[tuple[Any, ...]] = [
    ("tensor_scalar_cumulative", "R1", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("tensor_scalar_cumulative", "R1", "src", "(4, 7)", dict(dst="sbuf float32[4,7]"), dict(dst="sbuf float32[4,2,4]")),
    ("tensor_scalar_cumulative", "R2", "src", "int32", dict(src="sbuf int32[4,8]"), dict(src="sbuf int16[4,8]")),
    ("tensor_scalar_cumulative", "R3", "op0", "raw bits", dict(op0=np.bitwise_and), dict(op0=np.power)),
    ("tensor_scalar_cumulative", "R3", "imm0", "two inputs", dict(imm0=None), dict(op0=np.abs, imm0=None)),
    ("tensor_scalar_cumulative", "R3", "op0", "generation 4", dict(op0=nl.abs_max), dict(op0=nl.abs_max), "trn2",
     "trn3"),
    ("tensor_scalar_cumulative", "R3", "op1", "power", dict(op1=np.power), dict(op1=np.subtract)),
    ("tensor_scalar_cumulative", "R4", "imm0", "float32", dict(imm0="sbuf bfloat16[4,1]"), dict(imm0=COLUMN)),
    ("tensor_scalar_cumulative", "R4", "imm1", "(4, 1)", dict(imm1=A, **_LOAD), dict(imm1=COLUMN, **_LOAD)),
    ("tensor_scalar_cumulative", "R5", "reduce_cmd", "idle", dict(reduce_cmd=reduce_cmd.idle),
     dict(reduce_cmd=reduce_cmd.reduce)),
    ("tensor_scalar_cumulative", "R5", "imm1", "missing", _LOAD, dict(imm1=1.0, **_LOAD)),
    ("tensor_scalar_cumulative", "R5", "imm1", "no effect", dict(imm1=1.0), dict(imm1=1.0, **_LOAD)),
    ("exponential", "R2", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM), *T3),
    ("exponential", "R2", "src", "(4, 7)", dict(dst="sbuf float32[4,7]"), dict(dst="sbuf float32[4,2,4]"), *T3),
    ("exponential", "R2", "dst", "at most 3", dict(dst=_MANY), dict(dst="sbuf float32[4,2,2,2]"), *T3),
    ("exponential", "R3", "src", "tfloat32", dict(src="sbuf tfloat32[4,8]"), dict(src="sbuf uint32[4,8]"), *T3),
    ("exponential", "R4", "dst", "uint32", dict(dst="sbuf uint32[4,8]"), dict(dst="sbuf tfloat32[4,8]"), *T3),
    ("exponential", "R5", "max_value", "float32", dict(max_value="sbuf bfloat16[4,1]"), dict(max_value=COLUMN), *T3),
    ("exponential", "R6", "reduce_cmd", "reset", dict(reduce_cmd=reduce_cmd.reset),
     dict(reduce_cmd=reduce_cmd.reset_reduce), *T3),
    ("exponential", "R7", "reduce_init", "load_reduce only", dict(reduce_init=1.0),
     dict(reduce_init=1.0, **_LOAD), *T3),
    ("exponential", "R7", "reduce_init", "(4, 1)", dict(reduce_init=A, **_LOAD),
     dict(reduce_init=COLUMN, **_LOAD), *T3),
    ("exponential", "R8", "reduce_res", "(4, 1)", dict(reduce_res=A), dict(reduce_res=COLUMN), *T3),
    ("exponential", "R8", "reduce_res", "int32", dict(reduce_res="sbuf int32[4,1]"),
     dict(reduce_res="sbuf tfloat32[4,1]"), *T3),
    ("activate2", "R2", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM), *T3),
    ("activate2", "R2", "data", "(4, 7)", dict(dst="sbuf float32[4,7]"), dict(dst="sbuf float32[4,2,4]"), *T3),
    ("activate2", "R2", "op", "not an activation", dict(op=nl.power), dict(op=nl.prelu), *T3),
    ("activate2", "R3", "op0", "(add, add)", dict(op0=nl.add), dict(op0=nl.subtract, op1=nl.bypass), *T3),
    ("activate2", "R4", "imm0", "(4, 1)", dict(imm0=A), dict(imm0=COLUMN), *T3),
    ("activate2", "R4", "imm1", "(4, 1)", dict(imm1=A), dict(imm1="sbuf int8[4,1]"), *T3),
    ("activate2", "R4", "relu_param", "(4, 1)", dict(relu_param=A), dict(relu_param=COLUMN), *T3),
    ("activate2", "R4", "imm0", "tfloat32", dict(imm0="sbuf tfloat32[4,1]"), dict(imm0="sbuf float16[4,1]"), *T3),
    ("activate2", "R4", "imm1", "tfloat32", dict(imm1="sbuf tfloat32[4,1]"), dict(imm1="sbuf float16[4,1]"), *T3),
    ("activate2", "R4", "relu_param", "tfloat32", dict(relu_param="sbuf tfloat32[4,1]"),
     dict(relu_param="sbuf uint8[4,1]"), *T3),
    ("activate2", "R4", "imm1", "one dtype", dict(imm0=COLUMN, imm1="sbuf bfloat16[4,1]"),
     dict(imm0=COLUMN, imm1=COLUMN), *T3),
    ("activate2", "R6", "reverse0", "bypass", dict(reverse0=True, **_PASS), dict(reverse0=True), *T3),
    ("activate2", "R6", "reverse1", "bypass", dict(reverse1=True, op1=nl.bypass),
     dict(reverse1=True, op1=nl.subtract), *T3),
    ("activate2", "R7", "reduce_op", "multiply", dict(reduce_op=nl.multiply), dict(reduce_op=nl.abs_min), *T3),
    ("activate2", "R7", "reduce_op", "needs reduce_op", dict(reduce_cmd=reduce_cmd.reset_reduce), _REDUCE, *T3),
    ("activate2", "R8", "reduce_cmd", "load_reduce", _LOAD, dict(reduce_cmd=reduce_cmd.reset), *T3),
    ("activate2", "R9", "reduce_res", "(4, 1)", dict(reduce_res=A), dict(reduce_res=COLUMN), *T3),
    ("activate2", "R10", "imm0", "missing", dict(imm0=None), dict(imm0=None, imm1=None, **_PASS), *T3),
    ("activate2", "R10", "imm1", "missing", dict(imm1=None), dict(imm1=None, op1=nl.bypass), *T3),
    ("activate2", "R11", "dst", "scatters into SBUF",
     dict(dst="indirect psum float32[16,16]", data="sbuf float32[16,16]"),
     dict(dst=_GATHER, data="sbuf float32[16,16]"), *T3),
    ("activate2", "R12", "reduce_op", "only the scalar engine", dict(engine=engine.gpsimd, **_REDUCE),
     dict(engine=engine.gpsimd), *T3),
]
