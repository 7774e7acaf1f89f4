"""Microscaling formats: quantize_mx and nc_matmul_mx (isa.md 11.2, 11.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilelang.ir.tensor import NkiTensor
from tilelang.isa.cost import MIN_II
from tilelang.isa.params import TILE_PAIR, TRISTATE
from tilelang.isa.rules import alias, dtypes, on_chip, semantic
from tilelang.isa.spec import Call, Finding, In, InOut, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import casts, fma, mx

__all__ = ["nc_matmul_mx", "quantize_mx"]

_PACKED = tuple(mx.ELEMENTS)
_SCALES = ("float8_e8m0fnu", "uint8")
_HEIGHTS = (32, 64, 96, 128)


def _height(rule: str, name: str) -> Rule:
    def test(call: Call) -> Finding | None:
        if call.P(name) in _HEIGHTS:
            return None
        return Finding(f"{name} has {call.P(name)} partitions; blocks span 8 of 32, 64, 96 or 128", name)

    return Rule(rule, f"{name} has 32, 64, 96 or 128 partitions", test)


def _scale_rows(call: Call, name: str, like: str) -> Finding | None:
    """The scale tensor `name` reaches the last row that the blocks of `like` use."""
    needed = mx.scale_row(call.P(like) - 1) + 1
    if call.P(name) >= needed:
        return None
    return Finding(
        f"{name} has {call.P(name)} partitions; {call.P(like)} partitions of {like} use scale rows up to {needed - 1}",
        name,
        f"give it at least {needed} partitions: row 32 * (k // 32) + k % 32 // 8 belongs to partition k",
    )


def _scale_start(call: Call, name: str) -> Finding | None:
    start = call.values[name].start_partition
    if start % 32 in (0, 4, 8, 12):
        return None
    return Finding(f"{name} starts at partition {start}; scales start at 0, 4, 8 or 12 of a quadrant of 32", name)


def _quadrant(call: Call) -> Finding | None:
    scale, data = call.dst_scale.start_partition, call.dst.start_partition
    if scale // 32 == data // 32:
        return None
    return Finding(f"dst_scale starts at partition {scale}, dst at {data}: not in one quadrant of 32", "dst_scale")


def _same_rows(call: Call) -> Finding | None:
    if call.P("dst") == call.P("src"):
        return None
    return Finding(f"dst has {call.P('dst')} partitions, src {call.P('src')}", "dst")


def _quarter(call: Call) -> list[Finding]:
    columns = call.F("src")
    if columns % 4:
        return [Finding(f"src has {columns} elements per partition; it must be a multiple of 4", "src")]
    return [
        Finding(f"{name} has {call.F(name)} elements per partition; {columns} of src make {columns // 4}", name)
        for name in ("dst", "dst_scale")
        if call.F(name) != columns // 4
    ]


@instruction(
    operands=dict(dst=Out(), src=In(), dst_scale=InOut(reads=False)),
    engines=("vector",),
    since=4,
    cost=lambda call: max(MIN_II, call.F("src") / 4),
    lanewise=False,
    accuracy="scales exact; elements to nearest even",
    rules=(
        alias("R1", "generation 4 (GEN.R10)"),
        on_chip("R2", "dst", "src", "dst_scale", buffers=("sbuf",)),
        dtypes("R3", "src", ("float16", "bfloat16")),
        dtypes("R4", "dst", ("float8_e5m2_x4", "float8_e4m3fn_x4")),
        dtypes("R5", "dst_scale", _SCALES),
        _height("R6", "src"),
        Rule("R6", "dst has as many partitions as src", _same_rows),
        Rule("R7", "src: a multiple of 4 elements; dst and dst_scale a quarter of them", _quarter),
        Rule("R8", "dst_scale has all scale rows", lambda call: _scale_rows(call, "dst_scale", "src")),
        Rule("R9", "dst_scale starts at 0, 4, 8 or 12 of a quadrant", lambda call: _scale_start(call, "dst_scale")),
        Rule("R9", "dst_scale starts in the quadrant of dst", _quadrant),
    ),
)
def quantize_mx(dst: Tile, src: Tile, dst_scale: Tile, name: str | None = None) -> None:
    """`src` as microscaling numbers: blocks of 8 partitions by 4 adjacent elements share one power of two.

    src: a tile (P, 4 N) of float16 or bfloat16, P 32, 64, 96 or 128. dst: float8_e4m3fn_x4 or float8_e5m2_x4 (P, N).
    dst_scale: float8_e8m0fnu or uint8 with N columns; row 32 * (k // 32) + k % 32 // 8 gets the scale of partition k,
    other rows keep their content. With `E` the exponent of the format's largest power of two (8 or 15) the scale is
    2^(floor(log2(largest magnitude)) - E + 1), code 0 at least: twice that of the OCP sample algorithm, so nothing
    saturates. A block with an infinity or NaN gets scale 255 and NaN elements. All in SBUF. Engine: vector, generation
    4. Source: isa.md 11.3.
    """
    element, _, exponent = mx.ELEMENTS[dst.dtype]
    blocks = src.f32().reshape(src.P // 8, 8, src.F // 4, 4)
    largest = np.where(np.isnan(blocks), np.float32(np.inf), np.abs(blocks)).max(axis=(1, 3))
    code = mx.block_code(largest, np.int32(exponent - 1)).astype(np.uint32)
    factor = np.where(code == 255, np.float32(np.nan), mx.inverse_scale(np.minimum(code, np.uint32(253))))
    scaled = (blocks * factor[:, None, :, None]).astype(np.float32)
    codes = casts.encode(scaled, element).astype(np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)
    dst.store_bits(np.bitwise_or.reduce(codes, axis=-1).reshape(dst.P, dst.F))
    held = dst_scale.bits()
    held[[mx.scale_row(8 * g) for g in range(src.P // 8)]] = code
    dst_scale.store_bits(held)


def _contraction(call: Call) -> Finding | None:
    if call.P("stationary") == call.P("moving"):
        return None
    return Finding(f"stationary has {call.P('stationary')} partitions, moving {call.P('moving')}", "moving")


def _rows(call: Call) -> list[Finding]:
    m, found = call.F("stationary"), []
    if m % 2 or m > 128:
        found.append(Finding(f"stationary free size {m} must be even and at most 128", "stationary"))
    if call.P("dst") != m:
        found.append(Finding(f"dst has {call.P('dst')} partitions; the product has {m} rows", "dst"))
    return found


def _columns(call: Call) -> list[Finding]:
    n, limit, found = call.F("moving"), 8192 if call.dtype("dst") == "bfloat16" else 4096, []
    if n > limit:
        found.append(Finding(f"moving free size {n} exceeds {limit} of a {call.dtype('dst')} dst", "moving"))
    if call.F("dst") != n:
        found.append(Finding(f"dst has {call.F('dst')} elements per partition; the product has {n} columns", "dst"))
    return found


def _scale_columns(call: Call) -> list[Finding]:
    return [
        Finding(f"{name}_scale has {call.F(name + '_scale')} columns, {name} {call.F(name)}", f"{name}_scale")
        for name in ("stationary", "moving")
        if call.F(name + "_scale") != call.F(name)
    ]


def _scale_layout(call: Call) -> list[Finding]:
    names = ("stationary", "moving")
    found = [_scale_rows(call, f"{name}_scale", name) for name in names]
    found += [_scale_start(call, f"{name}_scale") for name in names]
    return [finding for finding in found if finding is not None]


def _tiling(call: Call) -> Finding | None:
    position, size = call.tile_position, call.tile_size
    if not position and not size:
        return None
    if not position or not size:
        return Finding("tile_position and tile_size are given together or not at all", "tile_position")
    if size[0] not in (32, 64, 128) or size[1] != 128:
        return Finding(f"tile_size={size}; row tiling takes (32, 128), (64, 128) or (128, 128)", "tile_size")
    if position[1] != 0 or position[0] % size[0] or not 0 <= position[0] < 128:
        return Finding(
            f"tile_position={position} with tile_size={size}; it is (a multiple of the rows, 0)", "tile_position"
        )
    if call.P("stationary") > size[0] or call.stationary.start_partition != position[0]:
        start, rows = call.stationary.start_partition, call.P("stationary")
        return Finding(
            f"stationary has partitions {start} to {start + rows}; the tile has {size} at {position}", "stationary"
        )
    return None


def _index(tensor: NkiTensor) -> NkiTensor | None:
    dynamic = tensor.dynamic
    return dynamic.source if dynamic is not None and dynamic.kind == "indirect" else None


def _pairs(call: Call) -> list[Finding]:
    found = []
    for name in ("stationary", "moving"):
        data, scale = _index(call.values[name]), _index(call.values[f"{name}_scale"])
        if data is not None and scale is None:
            found.append(Finding(f"{name} is an .indirect view and {name}_scale is not", f"{name}_scale"))
        elif scale is not None and (data is None or data.storage is not scale.storage or data.key != scale.key):
            found.append(Finding(f"{name}_scale is an .indirect view with another index than {name}", f"{name}_scale"))
    return found


@instruction(
    operands=dict(
        dst=InOut(reads=lambda c: c.accumulate is True),
        stationary=In(),
        moving=In(),
        stationary_scale=In(),
        moving_scale=In(),
    ),
    params=dict(tile_position=TILE_PAIR, tile_size=TILE_PAIR, accumulate=TRISTATE),
    engines=("tensor",),
    since=4,
    cost=lambda call: max(min(64, call.F("stationary")), call.F("moving")),
    lanewise=False,
    accuracy="exact products; one fp32 rounding per contraction step, ascending",
    indirect=("dst", "stationary", "moving", "stationary_scale", "moving_scale"),
    rules=(
        alias("R1", "generation 4 (GEN.R10)"),
        on_chip("R2", "stationary", "moving", "stationary_scale", "moving_scale", buffers=("sbuf",)),
        on_chip("R2", "dst", buffers=("psum",)),
        dtypes("R3", ("stationary", "moving"), _PACKED),
        dtypes("R4", ("stationary_scale", "moving_scale"), _SCALES),
        dtypes("R5", "dst", ("float32", "bfloat16")),
        Rule("R6", "equal partition counts of stationary and moving", _contraction),
        _height("R6", "stationary"),
        Rule("R7", "stationary free size even, at most 128, equal to the partitions of dst", _rows),
        Rule("R8", "moving free size within the limit, equal to that of dst", _columns),
        Rule("R9", "scales have the columns of their data", _scale_columns),
        Rule("R10", "scales have all their rows and start at 0, 4, 8 or 12 of a quadrant", _scale_layout),
        Rule("R11", "row tiling only", _tiling),
        semantic("R12", "accumulate as nc_matmul.R16 to R18"),
        Rule("R13", "indirect: data and scale together, with one index (TI.R2)", _pairs),
        alias("R13", "indirect operands (TI.R1, TI.R8)"),
    ),
)
def nc_matmul_mx(
    dst: Tile,
    stationary: Tile,
    moving: Tile,
    stationary_scale: Tile,
    moving_scale: Tile,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    accumulate: bool | None = None,
    name: str | None = None,
) -> None:
    """`dst[M, N] (+)=` the product of two microscaling tensors; each partition holds 4 contraction steps.

    stationary: packed (P, M), M even and at most 128; moving: packed (P, N); P 32, 64, 96 or 128; the packed formats
    may differ. stationary_scale, moving_scale: float8_e8m0fnu or uint8 with M and N columns; partition k takes row
    32 * (k // 32) + k % 32 // 8. All in SBUF. dst: float32 or bfloat16 (M, N) in PSUM. Each output starts at +0 and
    takes, for each partition and then each of its 4 elements, ascending, the exact product of two elements and two
    scales with one rounding to float32; scale 255 makes NaN. accumulate as in nc_matmul. Engine: tensor, generation 4.
    Source: isa.md 11.2.
    """
    rows = [mx.scale_row(k) for k in range(stationary.P)]
    left, right = (mx.unpack(t.bits(), t.dtype).astype(np.float64) for t in (stationary, moving))
    codes = [t.bits()[rows].astype(np.uint32) for t in (stationary_scale, moving_scale)]
    total: NDArray[np.float32] = np.zeros((stationary.F, moving.F), np.float32)
    for k in range(stationary.P):
        scale = mx.joint_scale(codes[0][k][:, None], codes[1][k][None, :])
        for q in range(4):
            total = fma.add_product(left[k, :, q][:, None] * right[k, :, q][None, :] * scale, total)
    product = casts.quiet(total)
    if accumulate is False:
        dst.store(product)
        return
    total = casts.quiet(dst.f32() + product)
    if accumulate is None and dst.written is not None:
        total = np.where(dst.written.reshape(total.shape), total, product)
    dst.store(total)
