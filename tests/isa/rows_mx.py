"""Rule rows of microscaling instructions (see test_rules.py)."""

from __future__ import annotations

from typing import Any

T3 = ("trn3", "trn3")
LEFT = "sbuf float8_e4m3fn_x4[32,64]"
RIGHT = "sbuf float8_e5m2_x4[32,128]"
LEFT_SCALE = "sbuf uint8[4,64]"
RIGHT_SCALE = "sbuf float8_e8m0fnu[4,128]"
DST = "psum float32[64,128]"

BASE: dict[str, dict[str, Any]] = {
    "quantize_mx": dict(dst="sbuf float8_e4m3fn_x4[32,8]", src="sbuf bfloat16[32,32]", dst_scale="sbuf uint8[32,8]"),
    "nc_matmul_mx": dict(dst=DST, stationary=LEFT, moving=RIGHT, stationary_scale=LEFT_SCALE, moving_scale=RIGHT_SCALE),
}
_TALL = dict(dst="sbuf float8_e4m3fn_x4[64,8]", src="sbuf bfloat16[64,32]")


def rows_of(text: str, start: int, stop: int) -> Any:
    """Partitions `start` to `stop` of the tensor `text`."""
    return lambda tensor: tensor(text)[start:stop]


def gathered(text: str, index: str) -> Any:
    return lambda tensor: tensor(text).indirect(tensor(index))


def _pair(same: bool) -> dict[str, Any]:
    """`moving` and its scale as views with one index, or with two."""
    kept: dict[str, Any] = {}

    def index(tensor: Any, rows: int, own: bool) -> Any:
        key = f"{rows}{own}"
        if key not in kept:
            kept[key] = tensor(f"sbuf uint32[{rows},8]")
        return kept[key]

    return dict(
        moving=lambda tensor: tensor("sbuf float8_e5m2_x4[32,256]").indirect(index(tensor, 32, True)),
        moving_scale=lambda tensor: tensor("sbuf uint8[32,256]").indirect(index(tensor, 32, same)),
    )


# fmt: off
ROWS: list[tuple[Any, ...]] = [
    ("quantize_mx", "R2", "src", "must be in SBUF", dict(src="psum bfloat16[32,32]"), {}, *T3),
    ("quantize_mx", "R3", "src", "float32", dict(src="sbuf float32[32,32]"), dict(src="sbuf float16[32,32]"), *T3),
    ("quantize_mx", "R4", "dst", "float4_e2m1fn_x4", dict(dst="sbuf float4_e2m1fn_x4[32,8]"),
     dict(dst="sbuf float8_e5m2_x4[32,8]"), *T3),
    ("quantize_mx", "R5", "dst_scale", "int8", dict(dst_scale="sbuf int8[32,8]"),
     dict(dst_scale="sbuf float8_e8m0fnu[32,8]"), *T3),
    ("quantize_mx", "R6", "src", "32, 64, 96 or 128",
     dict(src="sbuf bfloat16[16,32]", dst="sbuf float8_e4m3fn_x4[16,8]"), {}, *T3),
    ("quantize_mx", "R6", "dst", "64 partitions", dict(dst="sbuf float8_e4m3fn_x4[64,8]"), {}, *T3),
    ("quantize_mx", "R7", "src", "multiple of 4", dict(src="sbuf bfloat16[32,33]"), {}, *T3),
    ("quantize_mx", "R7", "dst", "make 8", dict(dst="sbuf float8_e4m3fn_x4[32,9]"), {}, *T3),
    ("quantize_mx", "R8", "dst_scale", "up to 35", dict(dst_scale="sbuf uint8[35,8]", **_TALL),
     dict(dst_scale="sbuf uint8[36,8]", **_TALL), *T3),
    ("quantize_mx", "R9", "dst_scale", "0, 4, 8 or 12", dict(dst_scale=rows_of("sbuf uint8[32,8]", 16, 32)),
     dict(dst_scale=rows_of("sbuf uint8[32,8]", 12, 32)), *T3),
    ("quantize_mx", "R9", "dst_scale", "not in one quadrant", dict(dst_scale=rows_of("sbuf uint8[64,8]", 32, 64)),
     {}, *T3),
    ("nc_matmul_mx", "R2", "moving_scale", "must be in SBUF", dict(moving_scale="psum uint8[4,128]"), {}, *T3),
    ("nc_matmul_mx", "R2", "dst", "must be in PSUM", dict(dst="sbuf float32[64,128]"), {}, *T3),
    ("nc_matmul_mx", "R3", "stationary", "float8_e4m3fn", dict(stationary="sbuf float8_e4m3fn[32,64]"),
     dict(stationary="sbuf float4_e2m1fn_x4[32,64]"), *T3),
    ("nc_matmul_mx", "R4", "moving_scale", "int8", dict(moving_scale="sbuf int8[4,128]"),
     dict(moving_scale="sbuf uint8[4,128]"), *T3),
    ("nc_matmul_mx", "R5", "dst", "float16", dict(dst="psum float16[64,128]"), dict(dst="psum bfloat16[64,128]"), *T3),
    ("nc_matmul_mx", "R6", "moving", "64",
     dict(moving="sbuf float8_e5m2_x4[64,128]", moving_scale="sbuf uint8[64,128]"), {}, *T3),
    ("nc_matmul_mx", "R6", "stationary", "32, 64, 96 or 128",
     dict(stationary="sbuf float8_e4m3fn_x4[16,64]", moving="sbuf float8_e5m2_x4[16,128]"), {}, *T3),
    ("nc_matmul_mx", "R7", "stationary", "must be even",
     dict(stationary="sbuf float8_e4m3fn_x4[32,63]", stationary_scale="sbuf uint8[4,63]", dst="psum float32[63,128]"),
     {}, *T3),
    ("nc_matmul_mx", "R7", "dst", "64 rows", dict(dst="psum float32[32,128]"), {}, *T3),
    ("nc_matmul_mx", "R8", "moving", "exceeds 4096",
     dict(moving="sbuf float8_e5m2_x4[32,4098]", moving_scale="sbuf uint8[4,4098]", dst="psum float32[64,4098]"),
     dict(moving="sbuf float8_e5m2_x4[32,4096]", moving_scale="sbuf uint8[4,4096]", dst="psum float32[64,4096]"), *T3),
    ("nc_matmul_mx", "R8", "dst", "128 columns", dict(dst="psum float32[64,64]"), {}, *T3),
    ("nc_matmul_mx", "R9", "stationary_scale", "63 columns", dict(stationary_scale="sbuf uint8[4,63]"), {}, *T3),
    ("nc_matmul_mx", "R10", "stationary_scale", "up to 3", dict(stationary_scale="sbuf uint8[3,64]"), {}, *T3),
    ("nc_matmul_mx", "R10", "moving_scale", "0, 4, 8 or 12", dict(moving_scale=rows_of("sbuf uint8[8,128]", 2, 8)),
     dict(moving_scale=rows_of("sbuf uint8[8,128]", 4, 8)), *T3),
    ("nc_matmul_mx", "R11", "tile_position", "together", dict(tile_position=(0, 0)),
     dict(tile_position=(0, 0), tile_size=(32, 128)), *T3),
    ("nc_matmul_mx", "R11", "tile_size", "row tiling", dict(tile_position=(0, 0), tile_size=(32, 64)), {}, *T3),
    ("nc_matmul_mx", "R11", "tile_position", "a multiple of the rows", dict(tile_position=(16, 0), tile_size=(32, 128)),
     {}, *T3),
    ("nc_matmul_mx", "R11", "stationary", "the tile has", dict(tile_position=(32, 0), tile_size=(32, 128)), {}, *T3),
    ("nc_matmul_mx", "R13", "moving_scale", "is not",
     dict(moving=gathered("sbuf float8_e5m2_x4[32,256]", "sbuf uint32[32,8]")), _pair(True), *T3),
    ("nc_matmul_mx", "R13", "moving_scale", "another index", _pair(False), _pair(True), *T3),
]
