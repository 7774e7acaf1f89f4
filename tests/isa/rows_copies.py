"""Rule rows of tensor_tensor, copies, DMA and the tensor engine (see test_rules.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.isa.enums import dge_mode, engine, matmul_perf_mode, oob_mode
from tilelang.isa.operators import register_token

Tensor = Callable[[str], Any]

A = "sbuf float32[4,8]"
HBM = "shared_hbm float32[4,8]"
PSUM = "psum float32[4,8]"
ON_CHIP = "SBUF or PSUM"


def abs_max() -> None:
    """Stands for `nl.abs_max`."""


register_token(abs_max, "abs_max")

BASE: dict[str, dict[str, Any]] = {
    "tensor_tensor": dict(dst=A, data1=A, data2=A, op=np.add),
    "tensor_copy": dict(dst=A, src=A),
    "memset": dict(dst=A, value=1),
    "dma_copy": dict(dst=A, src=HBM),
    "dma_transpose": dict(dst="sbuf bfloat16[64,16]", src="shared_hbm bfloat16[16,64]"),
    "nc_matmul": dict(dst="psum float32[32,64]", stationary="sbuf bfloat16[128,32]", moving="sbuf bfloat16[128,64]"),
    "nc_transpose": dict(dst="psum float32[64,128]", data="sbuf float32[128,64]"),
}

_BITS = dict(op=np.bitwise_or, dst="sbuf uint16[4,8]", data1="sbuf int16[4,8]", data2="sbuf uint16[4,8]")
_PACKED = "sbuf float8_e4m3fn_x4[4,8]"


def gather(
    index: str = "sbuf int32[4,1]", base: str = "shared_hbm float32[100,8]", shape: tuple[int, ...] = (4, 8)
) -> Any:
    """A tensor of `shape` whose rows are those of `base` that the tile `index` names."""
    steps = [int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))]
    pattern = [[step, count] for step, count in zip(steps, shape)]
    return lambda tensor: tensor(base).ap(pattern, vector_offset=tensor(index))


def shifted(text: str, elements: int) -> Any:
    """The tensor `text` without its first `elements` columns."""
    return lambda tensor: tensor(text)[:, elements:]


_INDEX = "sbuf uint32[16,1]"
_ROWS = "shared_hbm bfloat16[100,64]"
_FP8 = dict(
    stationary="sbuf float8_e4m3[128,2,32]", moving="sbuf float8_e5m2[128,2,64]", perf_mode=matmul_perf_mode.double_row
)
_TILED = dict(stationary="sbuf bfloat16[32,32]", moving="sbuf bfloat16[32,64]")

# fmt: off
ROWS: list[tuple[Any, ...]] = [
    # tensor_tensor
    ("tensor_tensor", "R1", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("tensor_tensor", "R1", "data2", "both in PSUM", dict(data1=PSUM, data2=PSUM), dict(data2=PSUM)),
    ("tensor_tensor", "R2", "data2", "nisa.tensor_scalar", dict(data2="sbuf float32[4,1]"),
     dict(data2="sbuf float32[4,2,4]")),
    ("tensor_tensor", "R2", "data1", "dst has 4", dict(data1="sbuf float32[5,8]"), {}),
    ("tensor_tensor", "R3", "op", "binary", dict(op=np.abs), dict(op=np.logical_and)),
    ("tensor_tensor", "R4", "engine", "vector engine", {**_BITS, "engine": engine.gpsimd}, _BITS),
    ("tensor_tensor", "R4", "dst", ".view(nl.uint32)", dict(op=np.bitwise_or), _BITS),
    ("tensor_tensor", "R4", "data2", "equal item sizes", {**_BITS, "data2": "sbuf int8[4,8]"},
     {**_BITS, "data2": "sbuf int16[4,8]"}),
    ("tensor_tensor", "R6", None, "trn3", dict(op=abs_max), dict(op=abs_max), "trn2", "trn3"),
    ("tensor_tensor", "GEN.R5", "data1", "gpsimd", dict(op=np.power, data1=PSUM), dict(op=np.add, data1=PSUM)),
    # tensor_copy
    ("tensor_copy", "R1", "src", ON_CHIP, dict(src=HBM), dict(src=PSUM)),
    ("tensor_copy", "R2", "src", "dst has 8", dict(src="sbuf float32[4,9]"), dict(src="sbuf int8[4,2,4]")),
    ("tensor_copy", "R4", "dst", "packed", dict(src=_PACKED), dict(src=_PACKED, dst=_PACKED)),
    ("tensor_copy", "GEN.R10", "engine", "generation 3", dict(engine=engine.scalar), dict(engine=engine.scalar),
     "trn1", "trn2"),
    ("tensor_copy", "GEN.R11", "engine", "vector, gpsimd, scalar", dict(engine=engine.tensor),
     dict(engine=engine.gpsimd)),
    # memset
    ("memset", "R1", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("memset", "R3", "value", "int", dict(dst="sbuf int8[4,8]", value=2.0), dict(dst="sbuf int8[4,8]", value=2)),
    ("memset", "R3", "value", "int", dict(dst="sbuf uint32[4,8]", value=0.5), dict(dst="sbuf uint32[4,8]", value=0.0)),
    ("memset", "R4", "value", "only 0", dict(dst=_PACKED), dict(dst=_PACKED, value=0)),
    ("memset", "R6", "value", "-128 to 127", dict(dst="sbuf int8[4,8]", value=128),
     dict(dst="sbuf int8[4,8]", value=-128)),
    ("memset", "R6", "value", "0 to 4294967295", dict(dst="sbuf uint32[4,8]", value=-1),
     dict(dst="sbuf uint32[4,8]", value=2**32 - 1)),
    ("memset", "R7", "dst", "at most 4", dict(dst="sbuf float32[4,1,2,2,2,2]"), dict(dst="sbuf float32[4,2,2,2,2]")),
    # dma_copy
    ("dma_copy", "R1", "src", "nisa.tensor_copy", dict(src=PSUM), dict(src=A)),
    ("dma_copy", "R1", "dst", "PSUM", dict(dst=PSUM), dict(dst=HBM)),
    ("dma_copy", "R2", "src", "(4, 8)", dict(src="shared_hbm float32[4,9]"), dict(src="shared_hbm float32[32]")),
    ("dma_copy", "R4", "src", "packed", dict(src="shared_hbm float8_e4m3fn_x4[4,8]"),
     dict(dst=_PACKED, src="shared_hbm float8_e4m3fn_x4[4,8]")),
    ("dma_copy", "R4", "src", "int64", dict(src="shared_hbm int64[4,8]"),
     dict(dst="sbuf int64[4,8]", src="shared_hbm int64[4,8]")),
    ("dma_copy", "R5", "src", "one side", dict(src=gather(), dst=gather()), dict(dst=gather(), src=A)),
    ("dma_copy", "R5", "src", "(4, 1)", dict(src=gather("sbuf int32[4,2]")),
     dict(src=gather("sbuf uint32[4,1]"))),
    ("dma_copy", "DGE.R1", "dge_mode", "generation 3", dict(dge_mode=dge_mode.hwdge), dict(dge_mode=dge_mode.hwdge),
     "trn1", "trn2"),
    ("dma_copy", "DGE.R2", "dge_mode", "swdge", dict(src=gather(), dge_mode=dge_mode.hwdge),
     dict(src=gather(), dge_mode=dge_mode.swdge)),
    ("dma_copy", "DGE.R3", "dge_mode", ".view()", dict(src="shared_hbm bfloat16[4,8]", dge_mode=dge_mode.hwdge),
     dict(src="shared_hbm bfloat16[4,8]", dge_mode=dge_mode.swdge)),
    ("dma_copy", "DGE.R4", "engine", "hwdge", dict(engine=engine.sync),
     dict(engine=engine.sync, dge_mode=dge_mode.hwdge)),
    ("dma_copy", "DGE.R4", "engine", "scalar or sync", dict(engine=engine.vector, dge_mode=dge_mode.hwdge),
     dict(engine=engine.scalar, dge_mode=dge_mode.hwdge)),
    ("dma_copy", "DGE.R6", "priority", "trn3", dict(priority=0), dict(priority=0), "trn2", "trn3"),
    ("dma_copy", "DGE.R6", "priority", "0 (highest) to 3", dict(priority=4), dict(priority=3), "trn3", "trn3"),
    ("dma_copy", "DGE.R7", "src", "generation 3", dict(src=gather()), dict(src=gather()), "trn1", "trn2"),
    # dma_transpose
    ("dma_transpose", "R1", "src", "rank 2, 3 or 4", dict(src="shared_hbm bfloat16[64]", dst="sbuf bfloat16[64,1]"),
     {}),
    ("dma_transpose", "R1", "axes", "(1, 0)", dict(axes=(0, 1)), dict(axes=(1, 0))),
    ("dma_transpose", "R2", "dst", "(64, 16)", dict(dst="sbuf bfloat16[16,64]"), {}),
    ("dma_transpose", "R3", "dst", "SBUF", dict(dst="shared_hbm bfloat16[64,16]"), dict(src="sbuf bfloat16[16,64]")),
    ("dma_transpose", "R3", "src", "nisa.tensor_copy", dict(src="psum bfloat16[16,64]"), {}),
    ("dma_transpose", "R4", "dst", "keeps the dtype", dict(dst="sbuf float16[64,16]"), {}),
    ("dma_transpose", "R4", "src", "2- and 4-byte", dict(dst="sbuf int8[64,16]", src="shared_hbm int8[16,64]"),
     dict(dst="sbuf float32[64,16]", src="shared_hbm float32[16,64]")),
    ("dma_transpose", "R5", "dge_mode", "unknown or hwdge", dict(dge_mode=dge_mode.swdge),
     dict(dge_mode=dge_mode.none)),
    ("dma_transpose", "R6", "src", "16",
     dict(dst="sbuf bfloat16[64,17]", src="shared_hbm bfloat16[17,64]", dge_mode=dge_mode.hwdge),
     dict(dge_mode=dge_mode.hwdge)),
    ("dma_transpose", "R6", "src", "1, 2, 4, 8, 16",
     dict(dst="sbuf bfloat16[64,16,3]", src="shared_hbm bfloat16[3,16,64]", dge_mode=dge_mode.hwdge),
     dict(dst="sbuf bfloat16[64,8,2]", src="shared_hbm bfloat16[2,8,64]", dge_mode=dge_mode.hwdge)),
    ("dma_transpose", "R7", "src", "at most 128",
     dict(dst="sbuf bfloat16[129,16]", src="shared_hbm bfloat16[16,129]", dge_mode=dge_mode.hwdge),
     dict(dst="sbuf bfloat16[128,16]", src="shared_hbm bfloat16[16,128]", dge_mode=dge_mode.hwdge)),
    ("dma_transpose", "DGE.R2", "dge_mode", "swdge", dict(src=gather(_INDEX, _ROWS, (16, 64)), dge_mode=dge_mode.hwdge),
     dict(src=gather(_INDEX, _ROWS, (16, 64)), dge_mode=dge_mode.swdge)),
    ("dma_transpose", "R9", "src", "2-byte",
     dict(src=gather(_INDEX, "shared_hbm float32[100,64]", (16, 64)),
     dst="sbuf float32[64,16]"), dict(src=gather(_INDEX, _ROWS, (16, 64)))),
    ("dma_transpose", "R10", "src", "uint32", dict(src=gather("sbuf int32[16,1]", _ROWS, (16, 64))), {}),
    ("dma_transpose", "R10", "src", "16..128", dict(src=gather("sbuf uint32[8,2]", _ROWS, (16, 64))), {}),
    ("dma_transpose", "R11", "oob_mode", "dynamic", dict(oob_mode=oob_mode.skip),
     dict(src=gather(_INDEX, _ROWS, (16, 64)), oob_mode=oob_mode.skip)),
    ("dma_transpose", "R13", "dst", "32", dict(dst=shifted("sbuf bfloat16[64,17]", 1), dge_mode=dge_mode.hwdge),
     dict(dge_mode=dge_mode.hwdge)),
    ("dma_transpose", "DGE.R1", "dge_mode", "generation 3", dict(dge_mode=dge_mode.hwdge), {}, "trn1", "trn1"),
    ("dma_transpose", "DGE.R6", "priority", "trn3", dict(priority=1), dict(priority=1), "trn2", "trn3"),
    ("dma_transpose", "DGE.R7", "src", "generation 3", dict(src=gather(_INDEX, _ROWS, (16, 64))), {}, "trn1", "trn1"),
    # nc_matmul
    ("nc_matmul", "R1", "dst", "PSUM", dict(dst="sbuf float32[32,64]"), {}),
    ("nc_matmul", "R1", "moving", "nisa.tensor_copy", dict(moving="psum bfloat16[128,64]"), {}),
    ("nc_matmul", "R2", "moving", "must be equal", dict(moving="sbuf bfloat16[127,64]"), {}),
    ("nc_matmul", "R3", "stationary", "128", dict(stationary="sbuf bfloat16[128,129]", dst="psum float32[129,64]"),
     dict(stationary="sbuf bfloat16[128,128]", dst="psum float32[128,64]")),
    ("nc_matmul", "R3", "dst", "(32, 64)", dict(dst="psum float32[1,64]"), {}),
    ("nc_matmul", "R4", "dst", "(32, 64)", dict(dst="psum float32[32,65]"), dict(dst="psum float32[32,8,8]")),
    ("nc_matmul", "R4", "moving", "512 on trn2", dict(moving="sbuf bfloat16[128,513]", dst="psum float32[32,513]"),
     dict(moving="sbuf bfloat16[128,2,256]", dst="psum float32[32,512]")),
    ("nc_matmul", "R4", "moving", "4096 on trn3", dict(moving="sbuf bfloat16[128,4097]", dst="psum float32[32,4097]"),
     dict(moving="sbuf bfloat16[128,4096]", dst="psum float32[32,4096]"), "trn3", "trn3"),
    ("nc_matmul", "R5", "moving", "bfloat16", dict(moving="sbuf int8[128,64]"),
     dict(moving="sbuf float8_e4m3[128,64]")),
    ("nc_matmul", "R5", "stationary", "up to 240", dict(stationary="sbuf float8_e4m3fn[128,32]"),
     dict(stationary="sbuf float8_e4m3fn[128,32]"),
     "trn2", "trn3"),
    ("nc_matmul", "R6", "moving", "float32 or tfloat32", dict(stationary="sbuf float32[128,32]"),
     dict(stationary="sbuf float32[128,32]", moving="sbuf tfloat32[128,64]")),
    ("nc_matmul", "R7", "moving", "448",
     dict(stationary="sbuf float8_e4m3[128,32]", moving="sbuf float8_e4m3fn[128,64]"),
     dict(stationary="sbuf float8_e5m2[128,32]", moving="sbuf float8_e4m3fn[128,64]"), "trn3", "trn3"),
    ("nc_matmul", "R8", "dst", "nisa.tensor_copy", dict(dst="psum bfloat16[32,64]"), dict(dst="psum bfloat16[32,64]"),
     "trn2", "trn3"),
    ("nc_matmul", "R9", None, "generation 3", _FP8, _FP8, "trn1", "trn2"),
    ("nc_matmul", "R9", "moving", "fp8", {**_FP8, "moving": "sbuf bfloat16[128,2,64]"}, _FP8),
    ("nc_matmul", "R9", "stationary", "[K, 2", {**_FP8, "stationary": "sbuf float8_e4m3[128,64]"}, _FP8),
    ("nc_matmul", "R10", "tile_position", "together", dict(tile_position=(0, 0)),
     dict(tile_position=(0, 0), tile_size=(128, 128))),
    ("nc_matmul", "R11", "tile_size", "(32, 64, 128)", {**_TILED, "tile_position": (0, 0), "tile_size": (16, 128)},
     {**_TILED, "tile_position": (0, 0), "tile_size": (32, 32)}),
    ("nc_matmul", "R11", "tile_size", "(64, 128)", {**_TILED, "tile_position": (0, 0), "tile_size": (32, 128)},
     {**_TILED, "tile_position": (0, 0), "tile_size": (64, 64)}, "trn1", "trn1"),
    ("nc_matmul", "R12", "tile_position", "128 x 128", dict(tile_position=(0, 96), tile_size=(128, 64)),
     dict(dst="psum@64 float32[32,64]", tile_position=(0, 64), tile_size=(128, 64))),
    ("nc_matmul", "R13", "stationary", "64 rows", dict(tile_position=(0, 0), tile_size=(64, 128)),
     dict(stationary="sbuf bfloat16[64,32]", moving="sbuf bfloat16[64,64]", tile_position=(0, 0), tile_size=(64, 128))),
    ("nc_matmul", "R13", "dst", "writes to 32", dict(tile_position=(0, 32), tile_size=(128, 32)),
     dict(tile_position=(0, 32), tile_size=(128, 32), dst="psum@32 float32[32,64]")),
    ("nc_matmul", "R14", "dst", "float16",
     dict(moving="sbuf bfloat16[128,128]", dst="psum float16[32,128]", is_transpose=True),
     dict(moving="sbuf bfloat16[128,128]", dst="psum bfloat16[32,128]", is_transpose=True)),
    ("nc_matmul", "R15", "moving", "128 x 128", dict(is_transpose=True),
     dict(moving="sbuf bfloat16[128,128]", dst="psum float32[32,128]", is_transpose=True)),
    ("nc_matmul", "R19", "dst", "2048 bytes", dict(dst=shifted("psum float32[32,576]", 512 - 32)),
     dict(dst=shifted("psum float32[32,576]", 512))),
    # nc_transpose
    ("nc_transpose", "R1", "dst", "SBUF into PSUM", dict(engine=engine.tensor, dst="sbuf float32[64,128]"),
     dict(engine=engine.tensor)),
    ("nc_transpose", "R1", "data", "128 x 128", dict(data="sbuf float32[128,129]", dst="psum float32[129,128]"),
     dict(data="sbuf float32[128,128]", dst="psum float32[128,128]")),
    ("nc_transpose", "R2", "data", "32 x 32", dict(dst="sbuf float32[64,128]"),
     dict(data="sbuf float32[32,32]", dst="sbuf float32[32,32]")),
    ("nc_transpose", "R2", "data", "32 x 32", dict(data="psum float32[128,128]", dst="psum float32[128,128]"),
     dict(data="psum float32[32,16]", dst="sbuf float32[16,32]")),
    ("nc_transpose", "R2", "data", ON_CHIP, dict(data="shared_hbm float32[128,64]"), {}),
    ("nc_transpose", "R3", "dst", "64 partitions of 128", dict(dst="psum float32[128,64]"),
     dict(dst="psum float32[64,2,64]")),
    ("nc_transpose", "R4", "dst", "keeps the dtype", dict(data="sbuf float32[128,64]", dst="psum bfloat16[64,128]"),
     dict(data="sbuf bfloat16[128,64]")),
    ("nc_transpose", "R4", "data", "floats only", dict(data="sbuf int16[128,64]", dst="psum int16[64,128]"),
     dict(data="sbuf int16[128,64]", dst="psum int16[64,128]"), "trn1", "trn2"),
    ("nc_transpose", "R4", "data", "16-bit PSUM", dict(data="sbuf float8_e5m2[128,64]", dst="psum float8_e5m2[64,128]"),
     dict(data="sbuf float8_e5m2[128,64]", dst="psum float8_e5m2[64,128]"), "trn2", "trn1"),
    ("nc_transpose", "GEN.R11", "engine", "tensor, vector", dict(engine=engine.scalar), {}),
]
# fmt: on
