"""Rule rows of vector instructions: arithmetic, reductions, statistics (see test_rules.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.isa.enums import engine, reduce_cmd
from tilelang.isa.operators import register_token

A = "sbuf float32[4,8]"
HBM = "shared_hbm float32[4,8]"
PSUM = "psum float32[4,8]"
COLUMN = "sbuf float32[4,1]"
ON_CHIP = "SBUF or PSUM"


def abs_max() -> None:
    """Stands for `nl.abs_max`."""


register_token(abs_max, "abs_max")

BASE: dict[str, dict[str, Any]] = {
    "tensor_scalar": dict(dst=A, data=A, op0=np.add, operand0=1.0),
    "scalar_tensor_tensor": dict(dst=A, data=A, op0=np.add, operand0=1.0, op1=np.multiply, operand1=A),
    "reciprocal": dict(dst=A, data=A),
    "tensor_reduce": dict(dst="sbuf float32[4,4]", op=np.add, data="sbuf float32[4,4,8]", axis=2),
    "tensor_scalar_reduce": dict(dst=A, data=A, op0=np.multiply, operand0=2.0, reduce_op=np.add, reduce_res=COLUMN),
    "tensor_tensor_scan": dict(dst=A, data0=A, data1=A, initial=0.0, op0=np.multiply, op1=np.add),
    "bn_stats": dict(dst="sbuf float32[4,6]", data=A),
    "bn_aggr": dict(dst="sbuf float32[4,2]", data="sbuf float32[4,6]"),
    "max8": dict(dst=A, src="sbuf float32[4,2,8]"),
    "nc_find_index8": dict(dst="sbuf uint32[4,8]", data="sbuf float32[4,2,8]", vals=A),
}

_BITS = dict(dst="sbuf int16[4,8]", data="sbuf uint16[4,8]", op0=np.bitwise_and, operand0=255)
_WIDE = dict(dst="sbuf int32[4,8]", data="sbuf int32[4,8]", operand0=3)
_GATHER = "indirect sbuf float32[16,16]"
_ROWS16 = "sbuf float32[16,16]"

# fmt: off
ROWS: list[tuple[Any, ...]] = [
    # tensor_scalar
    ("tensor_scalar", "R1", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("tensor_scalar", "R1", "data", ON_CHIP, dict(data=HBM), dict(data=PSUM)),
    ("tensor_scalar", "R1", "data", "against (4, 7)", dict(dst="sbuf float32[4,7]"), dict(dst="sbuf float32[4,2,4]")),
    ("tensor_scalar", "R1", "data", "dst has 3", dict(dst="sbuf float32[3,8]"), dict(dst="sbuf bfloat16[4,8]")),
    ("tensor_scalar", "R2", "operand0", "(4, 1)", dict(operand0="sbuf float32[4,2]"), dict(operand0=COLUMN)),
    ("tensor_scalar", "R2", "operand0", "(4, 1)", dict(operand0="sbuf float32[3,1]"),
     dict(operand0="psum float32[4,1]")),
    ("tensor_scalar", "R2", "operand1", "(4, 1)", dict(op1=np.add, operand1=A), dict(op1=np.add, operand1=COLUMN)),
    ("tensor_scalar", "R2", "operand0", "two inputs", dict(operand0=None), dict(op0=np.abs, operand0=None)),
    ("tensor_scalar", "R3", "operand1", "op1", dict(operand1=2.0), dict(op1=np.add, operand1=2.0)),
    ("tensor_scalar", "R3", "operand1", "number or a tile", dict(op1=np.add), dict(op1=np.abs)),
    ("tensor_scalar", "R4", "op0", "nisa.activation(op=nl.exp)", dict(op0=np.exp), dict(op0=np.power)),
    ("tensor_scalar", "R4", "op0", "nisa.reciprocal", dict(op0=np.divide), dict(op0=np.maximum)),
    ("tensor_scalar", "R4", "op1", "not together", {**_BITS, "op1": np.add, "operand1": 1},
     {**_BITS, "op1": np.left_shift, "operand1": 1}),
    ("tensor_scalar", "R5", "engine", "vector engine", {**_BITS, "engine": engine.scalar},
     {**_BITS, "engine": engine.vector}),
    ("tensor_scalar", "R5", "data", ".view(nl.uint32)", dict(op0=np.bitwise_and, operand0=1), _BITS),
    ("tensor_scalar", "R5", "dst", "equal item sizes", {**_BITS, "dst": "sbuf int32[4,8]"},
     {**_BITS, "dst": "sbuf uint16[4,8]"}),
    ("tensor_scalar", "R5", "operand0", "int", {**_BITS, "operand0": 1.0}, {**_BITS, "operand0": "sbuf int16[4,1]"}),
    ("tensor_scalar", "R5", "operand0", "16 bits", {**_BITS, "operand0": 65536}, {**_BITS, "operand0": 65535}),
    ("tensor_scalar", "R6", "operand0", "float32", dict(operand0="sbuf bfloat16[4,1]"), dict(operand0=COLUMN)),
    ("tensor_scalar", "R6", "operand0", "float32", {**_WIDE, "operand0": "sbuf int32[4,1]", "dst": A},
     {**_WIDE, "operand0": "sbuf int32[4,1]"}),
    ("tensor_scalar", "R7", "engine", "(multiply, add), multiply or add", dict(op0=np.subtract, engine=engine.scalar),
     dict(op0=np.multiply, op1=np.add, operand1=1.0, engine=engine.scalar)),
    ("tensor_scalar", "R7", "engine", "trn2", dict(op0=np.add, op1=np.multiply, operand1=2, engine=engine.scalar),
     dict(op0=np.subtract, engine=engine.scalar), "trn2", "trn3"),
    ("tensor_scalar", "R7", "engine", "gpsimd", dict(op0=np.power, engine=engine.scalar),
     dict(op0=np.maximum, engine=engine.scalar), "trn3", "trn3"),
    ("tensor_scalar", "GEN.R10", "engine", "generation 3", dict(engine=engine.scalar), dict(engine=engine.scalar),
     "trn1", "trn2"),
    ("tensor_scalar", "GEN.R11", "engine", "vector, scalar, gpsimd", dict(engine=engine.tensor),
     dict(engine=engine.vector)),
    ("tensor_scalar", "R8", "engine", "rsqrt and power", dict(engine=engine.gpsimd),
     dict(op0=np.power, engine=engine.gpsimd)),
    ("tensor_scalar", "R9", "operand1", "None or 0", dict(op1=np.abs, operand1=1.0), dict(op1=np.abs, operand1=0.0)),
    ("tensor_scalar", "R9", "operand1", "None or 0", dict(op1=np.abs, operand1=COLUMN),
     dict(op1=np.abs, operand1=None)),
    ("tensor_scalar", "R10", "op0", "generation 4", dict(op0=np.square, operand0=0), dict(op0=np.square, operand0=0),
     "trn2", "trn3"),
    ("tensor_scalar", "GEN.R5", "data", "gpsimd", dict(op0=np.power, data=PSUM), dict(op0=np.add, data=PSUM)),
    ("tensor_scalar", "R12", "data", "32-bit integer form",
     dict(dst="sbuf int32[16,16]", data="indirect sbuf int32[16,16]", operand0=1), dict(dst=_ROWS16,
     data=_GATHER), "trn3", "trn3"),
    ("tensor_scalar", "TI.R1", "data", "generation 4", dict(dst=_ROWS16, data=_GATHER),
     dict(dst=_GATHER, data=_ROWS16), "trn2", "trn3"),
    # scalar_tensor_tensor
    ("scalar_tensor_tensor", "R1", "operand1", ON_CHIP, dict(operand1=HBM), dict(operand1=PSUM)),
    ("scalar_tensor_tensor", "R1", "operand1", "both in PSUM", dict(data=PSUM, operand1=PSUM),
     dict(data=PSUM, dst=PSUM)),
    ("scalar_tensor_tensor", "R2", "operand1", "against (4, 8)", dict(operand1=COLUMN),
     dict(operand1="sbuf float32[4,4,2]")),
    ("scalar_tensor_tensor", "R3", "operand0", "float16", dict(operand0="sbuf int32[4,1]"),
     dict(operand0="sbuf bfloat16[4,1]")),
    ("scalar_tensor_tensor", "R3", "operand0", "two inputs", dict(operand0=None), dict(op0=np.abs, operand0=None)),
    ("scalar_tensor_tensor", "R4", "op0", "raw bits", dict(op0=np.bitwise_or), dict(op0=np.logical_or)),
    ("scalar_tensor_tensor", "R4", "op1", "operator of two", dict(op1=np.abs), dict(op1=np.less)),
    ("scalar_tensor_tensor", "GEN.R10", "op0", "generation 4", dict(op0=np.square, operand0=0),
     dict(op0=np.square, operand0=0),
     "trn2", "trn3"),
    ("scalar_tensor_tensor", "TI.R2", "data", "none", dict(dst=_ROWS16, data=_GATHER, operand1=_ROWS16), {}, "trn3",
     "trn3"),
    ("scalar_tensor_tensor", "ACC.R3", "reduce_cmd", "reset_reduce, reduce", dict(reduce_cmd=reduce_cmd.idle),
     dict(reduce_cmd=reduce_cmd.reduce)),
    ("scalar_tensor_tensor", "R6", "reduce_op", "add, multiply, maximum, minimum", dict(reduce_op=np.subtract),
     dict(reduce_op=np.maximum)),
    ("scalar_tensor_tensor", "ACC.R5", "reduce_res", "(4, 1)", dict(reduce_res="sbuf float32[4,2]"),
     dict(reduce_res=COLUMN)),
    ("scalar_tensor_tensor", "ACC.R5", "reduce_res", ON_CHIP, dict(reduce_res="private_hbm float32[4,1]"),
     dict(reduce_res="psum float32[4,1]")),
    # reciprocal
    ("reciprocal", "R1", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("reciprocal", "R1", "data", "dst has 9", dict(dst="sbuf float32[4,9]"), dict(dst="sbuf float16[4,8]")),
    ("reciprocal", "GEN.R3", "data", "128", dict(dst="sbuf float32[129,8]", data="sbuf float32[129,8]"),
     dict(dst="sbuf float32[128,8]", data="sbuf float32[128,8]")),
    # tensor_reduce
    ("tensor_reduce", "R1", "data", ON_CHIP, dict(data="shared_hbm float32[4,4,8]"), dict(data="psum float32[4,4,8]")),
    ("tensor_reduce", "R1", "data", "dst has 4", dict(data="sbuf float32[5,4,8]"), dict(data="sbuf float16[4,4,8]")),
    ("tensor_reduce", "R2", "axis", "2 or (1, 2)", dict(axis=1), dict(axis=-1)),
    ("tensor_reduce", "R2", "axis", "nc_matmul", dict(axis=(0, 1, 2)), dict(axis=[2, 1], dst=COLUMN)),
    ("tensor_reduce", "R2", "axis", "2 or (1, 2)", dict(axis=3), dict(axis=[1, 2], dst=COLUMN)),
    ("tensor_reduce", "R2", "axis", "last ones", dict(axis=()), dict(axis=(-2, -1), dst=COLUMN)),
    ("tensor_reduce", "R3", "op", "bitwise_and", dict(op=np.power), dict(op=np.subtract)),
    ("tensor_reduce", "R3", "op", "nl.exp", dict(op=np.exp), dict(op=np.max)),
    ("tensor_reduce", "R4", "data", ".view(nl.uint32)", dict(op=np.bitwise_or),
     dict(op=np.bitwise_or, data="sbuf int32[4,4,8]", dst="sbuf uint32[4,4]")),
    ("tensor_reduce", "R4", "dst", "equal item sizes",
     dict(op=np.bitwise_or, data="sbuf int32[4,4,8]", dst="sbuf uint8[4,4]"),
     dict(op=np.bitwise_or, data="sbuf int8[4,4,8]", dst="sbuf uint8[4,4]")),
    ("tensor_reduce", "R4", "negate", "False",
     dict(op=np.bitwise_or, data="sbuf int32[4,4,8]", dst="sbuf int32[4,4]", negate=True), dict(negate=True)),
    ("tensor_reduce", "R5", "dst", "leaves 4", dict(dst=COLUMN), dict(dst="sbuf float32[4,4,1]", keepdims=True)),
    ("tensor_reduce", "R5", "dst", "leaves 1", dict(axis=(1, 2)), dict(axis=(1, 2), dst="psum bfloat16[4,1]")),
    # tensor_scalar_reduce
    ("tensor_scalar_reduce", "R1", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("tensor_scalar_reduce", "R1", "data", "dst has 9", dict(dst="sbuf float32[4,9]"), dict(dst="sbuf float32[4,4,2]")),
    ("tensor_scalar_reduce", "R1", "data", "at most 3", dict(data="sbuf float32[4,2,2,2,1]"),
     dict(data="sbuf float32[4,2,2,2]")),
    ("tensor_scalar_reduce", "R2", "op0", "raw bits", dict(op0=np.left_shift), dict(op0=np.greater)),
    ("tensor_scalar_reduce", "R2", "operand0", "float32", dict(operand0="sbuf int32[4,1]"), dict(operand0=COLUMN)),
    ("tensor_scalar_reduce", "R2", "operand0", "None or 0", dict(op0=np.abs), dict(op0=np.abs, operand0=0)),
    ("tensor_scalar_reduce", "R2", "op0", "generation 4", dict(op0=np.square, operand0=None),
     dict(op0=np.square, operand0=None),
     "trn2", "trn3"),
    ("tensor_scalar_reduce", "R3", "reverse0", "not supported", dict(reverse0=True), dict(reverse0=False)),
    ("tensor_scalar_reduce", "R4", "reduce_op", "add, multiply, maximum, minimum", dict(reduce_op=np.logical_or),
     dict(reduce_op=np.minimum)),
    ("tensor_scalar_reduce", "R5", "reduce_cmd", "load_reduce", dict(reduce_cmd=reduce_cmd.reset),
     dict(reduce_cmd=reduce_cmd.load_reduce, reduce_init=1.0)),
    ("tensor_scalar_reduce", "R6", "reduce_init", "load_reduce", dict(reduce_cmd=reduce_cmd.load_reduce),
     dict(reduce_cmd=reduce_cmd.reduce)),
    ("tensor_scalar_reduce", "R6", "reduce_init", "load_reduce only", dict(reduce_init=0.0), {}),
    ("tensor_scalar_reduce", "R6", "reduce_init", "float32",
     dict(reduce_cmd=reduce_cmd.load_reduce, reduce_init="sbuf float16[4,1]"),
     dict(reduce_cmd=reduce_cmd.load_reduce, reduce_init=COLUMN)),
    ("tensor_scalar_reduce", "R7", "reduce_res", "(4, 1)", dict(reduce_res=A), dict(reduce_res=None)),
    # tensor_tensor_scan
    ("tensor_tensor_scan", "R1", "data0", ON_CHIP, dict(data0=HBM), dict(data0=PSUM)),
    ("tensor_tensor_scan", "R1", "data1", "both in PSUM", dict(data0=PSUM, data1=PSUM), dict(data1=PSUM)),
    ("tensor_tensor_scan", "R2", "data1", "dst has 8", dict(data1=COLUMN), dict(data1="sbuf bfloat16[4,2,4]")),
    ("tensor_tensor_scan", "R3", "initial", "(4, 1)", dict(initial=A), dict(initial="sbuf int8[4,1]")),
    ("tensor_tensor_scan", "R4", "op0", "operator of two", dict(op0=np.abs), dict(op0=np.logical_and)),
    ("tensor_tensor_scan", "R4", "op1", "raw bits", dict(op1=np.bitwise_and), dict(op1=np.maximum)),
    ("tensor_tensor_scan", "GEN.R10", "op0", "generation 4", dict(op0=abs_max), dict(op0=abs_max), "trn2", "trn3"),
    # bn_stats, bn_aggr
    ("bn_stats", "R1", "data", ON_CHIP, dict(data=HBM), dict(data=PSUM)),
    ("bn_stats", "R1", "data", "dst has 4", dict(data="sbuf float32[5,8]"), dict(data="sbuf float32[4,1]")),
    ("bn_stats", "R2", "data", "at most 512", dict(data="sbuf float32[4,513]"), dict(data="sbuf float32[4,2,256]")),
    ("bn_stats", "R3", "dst", "must have 6", dict(dst="sbuf float32[4,7]"), dict(dst="sbuf bfloat16[4,2,3]")),
    ("bn_aggr", "R1", "dst", ON_CHIP, dict(dst="private_hbm float32[4,2]"), dict(dst="psum float32[4,2]")),
    ("bn_aggr", "R1", "data", "dst has 4", dict(data="sbuf float32[3,6]"), {}),
    ("bn_aggr", "R2", "data", "multiple of 3", dict(data="sbuf float32[4,8]"), dict(data="sbuf float32[4,3,3]")),
    ("bn_aggr", "R3", "dst", "must have 2", dict(dst=COLUMN), dict(dst="sbuf float32[4,2,1]")),
    # max8, nc_find_index8
    ("max8", "R1", "src", ON_CHIP, dict(src="shared_hbm float32[4,16]"), dict(src="psum float32[4,16]")),
    ("max8", "R1", "src", "dst has 4", dict(src="sbuf float32[8,16]"), {}),
    ("max8", "R2", "src", "8 to 16384", dict(src="sbuf float32[4,7]"), dict(src=A)),
    ("max8", "R2", "src", "8 to 16384", dict(src="sbuf float32[4,16385]"), dict(src="sbuf float32[4,16384]")),
    ("max8", "R2", "src", "at most 2", dict(src="sbuf float32[4,2,2,2]"), dict(src="sbuf float32[4,4,2]")),
    ("max8", "R2", "dst", "at most 1", dict(dst="sbuf float32[4,4,2]"), dict(dst="sbuf bfloat16[4,8]")),
    ("max8", "R2", "dst", "must have 8", dict(dst="sbuf float32[4,9]"), {}),
    ("nc_find_index8", "R1", "data", ON_CHIP, dict(data=HBM), dict(data=PSUM)),
    ("nc_find_index8", "R1", "vals", "dst has 4", dict(vals="sbuf float32[5,8]"), {}),
    ("nc_find_index8", "R2", "data", "8 to 16384", dict(data="sbuf float32[4,7]"), dict(data=A)),
    ("nc_find_index8", "R2", "vals", "at most 2", dict(vals="sbuf float32[4,2,2,2]"), dict(vals="sbuf float32[4,2,4]")),
    ("nc_find_index8", "R2", "vals", "must have 8", dict(vals="sbuf float32[4,7]"), {}),
    ("nc_find_index8", "R3", "dst", "uint16, uint32", dict(dst="sbuf int32[4,8]"), dict(dst="sbuf uint16[4,8]")),
    ("nc_find_index8", "R3", "dst", "must have 8", dict(dst="sbuf uint32[4,9]"), {}),
]
# fmt: on
