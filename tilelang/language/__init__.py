"""The namespace `nki.language`: dtypes, regions, creation, operators and wrappers, loops (language.md section 3).

Every function of arithmetic is also an operator token: pass it to an instruction (`op=nl.add`), or call it with tiles.
Beware that `from tilelang.language import *` shadows the builtins abs, all, max, min, range and sum.
"""

from __future__ import annotations

import builtins
from typing import NoReturn

from tilelang.ir.regions import MemoryRegion, is_hbm, is_on_chip, is_psum, is_sbuf
from tilelang.ir.tensor import NkiTensor
from tilelang.language.connect import connect
from tilelang.language.control import (
    affine_range,
    device_print,
    dynamic_range,
    fori_loop,
    no_reorder,
    num_programs,
    program_id,
    program_ndim,
    sequential_range,
    static_range,
    while_loop,
)
from tilelang.language.creation import (
    empty_like,
    full,
    ndarray,
    ones,
    shared_constant,
    shared_identity_matrix,
    zeros,
    zeros_like,
)
from tilelang.language.elementwise import BINARY, TOKENS, UNARY
from tilelang.language.grids import (
    NkiBlockGrid,
    NkiGrid,
    NkiTileGrid,
    alloc_blocks,
    alloc_tiles,
    blocks,
    tiles,
)
from tilelang.language.missing import missing
from tilelang.language.movement import (
    broadcast_to,
    copy,
    ds,
    expand_dims,
    gather_flattened,
    load,
    load_transpose2d,
    matmul,
    store,
    transpose,
    where,
)
from tilelang.language.objects import NKIObject
from tilelang.language.random import dropout, rand, random_seed
from tilelang.language.reductions import REDUCTIONS, mean, rms_norm, softmax, var
from tilelang.language.sizes import tile_size

__all__ = [
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiBlockGrid",
    "NkiGrid",
    "NkiTensor",
    "NkiTileGrid",
    "abs",
    "abs_max",
    "abs_min",
    "add",
    "affine_range",
    "all",
    "alloc_blocks",
    "alloc_tiles",
    "arctan",
    "average",
    "bfloat16",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "blocks",
    "bool_",
    "broadcast_to",
    "bypass",
    "ceil",
    "copy",
    "cos",
    "device_print",
    "divide",
    "dropout",
    "ds",
    "dynamic_range",
    "empty_like",
    "equal",
    "erf",
    "erf_dx",
    "exp",
    "expand_dims",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "floor",
    "fmod",
    "fori_loop",
    "full",
    "gather_flattened",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "gelu_apprx_tanh",
    "gelu_dx",
    "greater",
    "greater_equal",
    "hbm",
    "int8",
    "int16",
    "int32",
    "int64",
    "invert",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "left_shift",
    "less",
    "less_equal",
    "load",
    "load_transpose2d",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mish",
    "mod",
    "multiply",
    "ndarray",
    "negative",
    "no_reorder",
    "not_equal",
    "num_programs",
    "ones",
    "power",
    "prelu",
    "private_hbm",
    "prod",
    "program_id",
    "program_ndim",
    "psum",
    "rand",
    "random_seed",
    "range",
    "reciprocal",
    "relu",
    "right_shift",
    "rms_norm",
    "rsqrt",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "sigmoid",
    "sign",
    "silu",
    "silu_dx",
    "sin",
    "softmax",
    "softplus",
    "sqrt",
    "square",
    "static_range",
    "store",
    "subtract",
    "sum",
    "tan",
    "tanh",
    "tfloat32",
    "tile_size",
    "tiles",
    "transpose",
    "trunc",
    "uint8",
    "uint16",
    "uint32",
    "var",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]

DType = str
bool_ = "bool"
int8 = "int8"
int16 = "int16"
int32 = "int32"
int64 = "int64"
uint8 = "uint8"
uint16 = "uint16"
uint32 = "uint32"
float16 = "float16"
float32 = "float32"
bfloat16 = "bfloat16"
tfloat32 = "tfloat32"
float8_e4m3 = "float8_e4m3"
float8_e4m3fn = "float8_e4m3fn"
float8_e5m2 = "float8_e5m2"
float8_e8m0fnu = "float8_e8m0fnu"
float8_e5m2_x4 = "float8_e5m2_x4"
float8_e4m3fn_x4 = "float8_e4m3fn_x4"
float4_e2m1fn_x4 = "float4_e2m1fn_x4"

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
hbm = private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm

add = BINARY["add"]
subtract = BINARY["subtract"]
multiply = BINARY["multiply"]
divide = BINARY["divide"]
maximum = BINARY["maximum"]
minimum = BINARY["minimum"]
abs_max = BINARY["abs_max"]
abs_min = BINARY["abs_min"]
power = BINARY["power"]
fmod = BINARY["fmod"]
mod = BINARY["mod"]
equal = BINARY["equal"]
not_equal = BINARY["not_equal"]
less = BINARY["less"]
less_equal = BINARY["less_equal"]
greater = BINARY["greater"]
greater_equal = BINARY["greater_equal"]
bitwise_and = BINARY["bitwise_and"]
bitwise_or = BINARY["bitwise_or"]
bitwise_xor = BINARY["bitwise_xor"]
left_shift = BINARY["left_shift"]
right_shift = BINARY["right_shift"]
logical_and = BINARY["logical_and"]
logical_or = BINARY["logical_or"]
logical_xor = BINARY["logical_xor"]

abs = UNARY["abs"]
square = UNARY["square"]
exp = UNARY["exp"]
log = UNARY["log"]
sqrt = UNARY["sqrt"]
tanh = UNARY["tanh"]
arctan = UNARY["arctan"]
sign = UNARY["sign"]
sigmoid = UNARY["sigmoid"]
relu = UNARY["relu"]
gelu = UNARY["gelu"]
gelu_dx = UNARY["gelu_dx"]
gelu_apprx_sigmoid = UNARY["gelu_apprx_sigmoid"]
gelu_apprx_sigmoid_dx = UNARY["gelu_apprx_sigmoid_dx"]
gelu_apprx_tanh = UNARY["gelu_apprx_tanh"]
silu = UNARY["silu"]
silu_dx = UNARY["silu_dx"]
softplus = UNARY["softplus"]
mish = UNARY["mish"]
erf = UNARY["erf"]
erf_dx = UNARY["erf_dx"]
reciprocal = UNARY["reciprocal"]
rsqrt = UNARY["rsqrt"]
negative = UNARY["negative"]
invert = UNARY["invert"]
logical_not = UNARY["logical_not"]
sin = UNARY["sin"]
cos = UNARY["cos"]
tan = UNARY["tan"]
ceil = UNARY["ceil"]
floor = UNARY["floor"]
trunc = UNARY["trunc"]

prelu = TOKENS["prelu"]
bypass = TOKENS["bypass"]
average = TOKENS["average"]

sum = REDUCTIONS["sum"]
max = REDUCTIONS["max"]
min = REDUCTIONS["min"]
prod = REDUCTIONS["prod"]
all = REDUCTIONS["all"]

range = builtins.range
bool = bool_

connect()


def __getattr__(name: str) -> NoReturn:
    missing(name, __all__)
