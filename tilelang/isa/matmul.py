"""Instructions of the tensor engine: nc_matmul and nc_transpose (isa.md 10.7, 11.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilelang.isa.cost import MIN_II
from tilelang.isa.enums import engine as Engine
from tilelang.isa.enums import matmul_perf_mode as PerfMode
from tilelang.isa.params import BOOL, ENGINE, PERF_MODE, TILE_PAIR, TRISTATE
from tilelang.isa.rules import alias, on_chip, semantic
from tilelang.isa.spec import Call, Finding, In, InOut, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import casts, fma

__all__ = ["is_double_row", "nc_matmul", "nc_transpose"]

_FP8 = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")
_FP32 = ("float32", "tfloat32")
_OPERANDS = ("float8_e4m3", "float8_e5m2", "bfloat16", "float16", "tfloat32", "float32")
BANK_BYTES = 2048


def is_double_row(call: Call) -> bool:
    """True for `perf_mode=double_row`: two contraction rows per partition."""
    return call.perf_mode is PerfMode.double_row


def _columns(call: Call, name: str) -> int:
    """Free size of an operand without the leading 2 of double row."""
    free = call.F(name)
    return free // 2 if is_double_row(call) and free % 2 == 0 else free


def _contraction(call: Call) -> Finding | None:
    if call.P("stationary") != call.P("moving"):
        return Finding(
            f"stationary {call.stationary.shape} and moving "
            f"{call.moving.shape} contract over {call.P('stationary')} and "
            f"{call.P('moving')} partitions; they must be equal",
            "moving",
        )
    return None


def _rows(call: Call) -> Finding | None:
    m = _columns(call, "stationary")
    if m > 128:
        return Finding(
            f"stationary free size {m} exceeds 128", "stationary", "tile it by nl.tile_size.gemm_stationary_fmax"
        )
    if call.P("dst") != m:
        n = _columns(call, "moving")
        return Finding(f"dst is {call.dst.shape}; the product has shape ({m}, {n}), so dst needs {m} partitions", "dst")
    return None


def _free_limit(call: Call) -> int:
    if call.generation < 4:
        return 512
    return 8192 if call.dtype("dst") == "bfloat16" else 4096


def _free(call: Call) -> list[Finding]:
    n, limit, found = _columns(call, "moving"), _free_limit(call), []
    if n > limit:
        found.append(
            Finding(
                f"moving free size {n} exceeds {limit} on {call.target}",
                "moving",
                "tile the moving operand by nl.tile_size.gemm_moving_fmax",
            )
        )
    if call.F("dst") != n:
        m = _columns(call, "stationary")
        found.append(
            Finding(f"dst is {call.dst.shape}; the product has shape ({m}, {n}), so {n} elements per partition", "dst")
        )
    return found


def _operand_dtypes(call: Call) -> list[Finding]:
    found = []
    for name in ("stationary", "moving"):
        dtype = call.dtype(name)
        if dtype == "float8_e4m3fn":
            if call.generation < 4:
                found.append(
                    Finding(
                        f"{name} is float8_e4m3fn (OCP, up to 448), which multiplies from "
                        f"generation 4 on; {call.target} has float8_e4m3 (IEEE, up to 240)",
                        name,
                        'use nl.float8_e4m3, or target="trn3"',
                    )
                )
        elif dtype not in _OPERANDS:
            hint = (
                "convert it to bfloat16 with nisa.tensor_copy: int8 values are exact"
                if call.fmt(name).is_integer
                else None
            )
            found.append(Finding(f"{name} is {dtype}; matmul operands are {', '.join(_OPERANDS)}", name, hint))
    return found


def _mixed_fp32(call: Call) -> Finding | None:
    a, b = call.dtype("stationary"), call.dtype("moving")
    if (a in _FP32) != (b in _FP32):
        return Finding(
            f"stationary is {a} and moving {b}; with a 32-bit operand the other must be float32 or tfloat32 too",
            "moving",
        )
    return None


def _mixed_e4m3(call: Call) -> Finding | None:
    pair = {call.dtype("stationary"), call.dtype("moving")}
    if pair == {"float8_e4m3", "float8_e4m3fn"}:
        return Finding("stationary and moving mix float8_e4m3 (up to 240) and float8_e4m3fn (up to 448)", "moving")
    return None


def _dst_dtype(call: Call) -> Finding | None:
    if call.is_transpose:
        return None
    allowed = ("float32", "bfloat16") if call.generation >= 4 else ("float32",)
    if call.dtype("dst") not in allowed:
        return Finding(
            f"dst is {call.dtype('dst')}; on {call.target} a matmul writes {' or '.join(allowed)}",
            "dst",
            "accumulate in float32 and convert with nisa.tensor_copy",
        )
    return None


def _double_row(call: Call) -> Finding | None:
    if not is_double_row(call):
        return None
    if call.generation < 3:
        return Finding(
            f'perf_mode=double_row needs generation 3 (target="trn2"); the target is {call.target}', "perf_mode"
        )
    for name in ("stationary", "moving"):
        if call.dtype(name) not in _FP8:
            return Finding(f"double_row multiplies fp8; {name} is {call.dtype(name)}", name)
        shape = call.values[name].shape
        if len(shape) < 3 or shape[1] != 2:
            return Finding(f"double_row takes operands [K, 2, …]; {name} is {shape}", name)
    if call.is_transpose:
        return Finding("double_row and is_transpose exclude each other", "perf_mode")
    if call.tile_size and call.tile_size[1] != 128:
        return Finding(f"double_row and column tiling (tile_size={call.tile_size}) exclude each other", "tile_size")
    return None


def _tiling_given(call: Call) -> Finding | None:
    if bool(call.tile_position) != bool(call.tile_size):
        return Finding("tile_position and tile_size are given together or not at all", "tile_position")
    return None


def _tiling(call: Call) -> tuple[int, int, int, int] | None:
    if call.tile_position and call.tile_size:
        return (*call.tile_position, *call.tile_size)
    return None


def _tile_sizes(call: Call) -> Finding | None:
    tiling = _tiling(call)
    if tiling is None:
        return None
    sizes = (64, 128) if call.generation < 3 else (32, 64, 128)
    if tiling[2] not in sizes or tiling[3] not in sizes or any(n % 32 for n in tiling):
        return Finding(
            f"tile_size {call.tile_size} at {call.tile_position}: sizes are {sizes} and all numbers multiples of 32",
            "tile_size",
        )
    return None


def _tile_place(call: Call) -> Finding | None:
    tiling = _tiling(call)
    if tiling is None or min(tiling[2:]) < 1:
        return None
    row, column, rows, columns = tiling
    if row % rows or column % columns or row + rows > 128 or column + columns > 128 or row < 0 or column < 0:
        return Finding(
            f"tile_position {call.tile_position} with tile_size {call.tile_size}: "
            "positions are multiples of the size, inside 128 x 128",
            "tile_position",
        )
    return None


def _tile_fit(call: Call) -> list[Finding]:
    tiling = _tiling(call)
    if tiling is None:
        return []
    row, column, rows, columns = tiling
    found = []
    if call.P("stationary") > rows:
        found.append(Finding(f"K = {call.P('stationary')} exceeds the {rows} rows of tile_size", "stationary"))
    if _columns(call, "stationary") > columns:
        found.append(
            Finding(f"M = {_columns(call, 'stationary')} exceeds the {columns} columns of tile_size", "stationary")
        )
    if rows < 128:
        for name in ("stationary", "moving"):
            if call.values[name].start_partition != row:
                found.append(
                    Finding(
                        f"{name} starts at partition {call.values[name].start_partition}; row tiling reads from {row}",
                        name,
                    )
                )
    if columns < 128 and call.dst.start_partition != column:
        found.append(
            Finding(f"dst starts at partition {call.dst.start_partition}; column tiling writes to {column}", "dst")
        )
    return found


def _transpose_dtype(call: Call) -> Finding | None:
    if not call.is_transpose or call.dtype("dst") in ("float32", call.dtype("stationary")):
        return None
    return Finding(
        f"a transpose of {call.dtype('stationary')} writes the same dtype (or float32), not {call.dtype('dst')}", "dst"
    )


def _transpose_identity(call: Call) -> Finding | None:
    if call.is_transpose and call.F("moving") != call.P("stationary"):
        return Finding(
            f"is_transpose takes a {call.P('stationary')} x "
            f"{call.P('stationary')} identity as moving, got {call.moving.shape}",
            "moving",
        )
    return None


def _one_bank(call: Call) -> Finding | None:
    if call.generation >= 4 or call.buffer("dst") != "psum":
        return None
    low, high = call.dst.byte_span()
    if low // BANK_BYTES != (high - 1) // BANK_BYTES:
        return Finding(
            f"dst covers bytes {low} to {high} of each partition; one matmul writes one bank of {BANK_BYTES} bytes",
            "dst",
        )
    return None


def _number_of_passes(call: Call) -> int:
    if call.dtype("stationary") not in _FP32 or "tfloat32" in (call.dtype("stationary"), call.dtype("moving")):
        return 1
    if call.is_transpose and call.generation >= 3:
        return 2
    return 2 if call.is_stationary_onezero or call.is_moving_onezero else 4


def _matmul_cost(call: Call) -> float:
    m, n = _columns(call, "stationary"), _columns(call, "moving")
    return _number_of_passes(call) * max(min(64, m), n)


@instruction(
    operands=dict(dst=InOut(reads=lambda c: c.accumulate is True), stationary=In(), moving=In()),
    params=dict(
        is_stationary_onezero=BOOL,
        is_moving_onezero=BOOL,
        is_transpose=BOOL,
        accumulate=TRISTATE,
        tile_position=TILE_PAIR,
        tile_size=TILE_PAIR,
        perf_mode=PERF_MODE,
    ),
    engines=("tensor",),
    cost=_matmul_cost,
    lanewise=False,
    accuracy="one fp32 fused multiply-add per contraction step, ascending",
    indirect=("dst", "stationary", "moving"),
    rules=(
        on_chip("R1", "stationary", "moving", buffers=("sbuf",)),
        on_chip("R1", "dst", buffers=("psum",)),
        Rule("R2", "equal partition counts of stationary and moving, at most 128", _contraction),
        Rule("R3", "stationary free size at most 128, equal to the partitions of dst", _rows),
        Rule("R4", "moving free size within the limit, equal to that of dst", _free),
        Rule("R5", "operand dtypes", _operand_dtypes),
        Rule("R6", "a 32-bit operand needs a 32-bit partner", _mixed_fp32),
        Rule("R7", "float8_e4m3 and float8_e4m3fn never together", _mixed_e4m3),
        Rule("R8", "dst dtype", _dst_dtype),
        Rule("R9", "double_row", _double_row),
        Rule("R10", "tile_position and tile_size together", _tiling_given),
        Rule("R11", "tile sizes", _tile_sizes),
        Rule("R12", "tile positions", _tile_place),
        Rule("R13", "operands fit the tile and start on it", _tile_fit),
        Rule("R14", "is_transpose: dst dtype", _transpose_dtype),
        Rule("R15", "is_transpose: moving is an identity", _transpose_identity),
        semantic("R16", "accumulate is None, True or False (anything else is a TypeError)"),
        semantic(
            "R17",
            "accumulate=True on elements no matmul has overwritten is undefined: fresh memory is poisoned with NaN",
        ),
        semantic("R18", "accumulating onto data of another instruction adds to it (undefined on generations 2 and 3)"),
        Rule(
            "R19",
            "generations 2 and 3: dst within one PSUM bank",
            _one_bank,
            hint="split the free dimension at 512 float32",
        ),
        alias("R20", "indirect operands (TI.R1, TI.R2, TI.R8, TI.R9)"),
        alias("R21", "no packed or integer operand (R5, DT.R1)"),
    ),
)
def nc_matmul(
    dst: Tile,
    stationary: Tile,
    moving: Tile,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    perf_mode: PerfMode = PerfMode.none,
    name: str | None = None,
) -> None:
    """`dst[M, N] (+)= stationary[K, M].T @ moving[K, N]` on the tensor engine.

    `stationary`, `moving` in SBUF, `dst` in PSUM; K, M <= 128. Each output starts at +0 and takes one fp32 fused
    multiply-add per k, ascending, then one add into PSUM
    when accumulating. `accumulate`: False overwrites, True adds, None overwrites elements of the tile not yet written
    and adds to the rest.
    `perf_mode=double_row`: fp8 operands [K, 2, …], contraction 2K (k outer). `is_transpose` (generation 3 on):
    bit-exact pass of the stationary through an identity.
    The one/zero hints and tiling have no numerical effect. Source: isa.md 11.1.
    """
    if is_transpose and _passes_bits(dst):
        picked = np.argmax(moving.f32() != 0, axis=0)
        _write_transposed(dst, stationary.bits().T[:, picked], stationary)
        return
    a, b = _values(stationary), _values(moving)
    if perf_mode is PerfMode.double_row:
        a, b = (x.reshape(2 * x.shape[0], x.shape[1] // 2) for x in (a, b))
    product = _product(a, b)
    if accumulate is False:
        dst.store(product)
        return
    total = casts.quiet(dst.f32() + product)
    if accumulate is None and dst.written is not None:
        total = np.where(dst.written.reshape(total.shape), total, product)
    dst.store(total)


def _values(operand: Tile) -> NDArray[np.float32]:
    """An operand as float32; tfloat32 is rounded to its 10 mantissa bits when read."""
    if operand.dtype != "tfloat32":
        return operand.f32()
    return casts.decode(casts.encode(operand.bits().view(np.float32), "tfloat32"), "tfloat32")


def _product(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """a.T @ b with one fp32 FMA per k, ascending, from +0."""
    total = np.zeros((a.shape[1], b.shape[1]), np.float32)
    for k in range(a.shape[0]):
        total = fma.fma(a[k][:, None], b[k][None, :], total)
    return casts.quiet(total)


def _passes_bits(dst: Tile) -> bool:
    """Generation 3 on transposes bits; generation 2 multiplies by the identity, so NaN and Inf spread (isa.md 10.7)."""
    return dst.machine is None or dst.machine.generation >= 3


def _write_transposed(dst: Tile, bits: NDArray[np.generic], source: Tile) -> None:
    if dst.fmt is source.fmt:
        dst.store_bits(bits)
    else:
        dst.store(casts.decode(np.ascontiguousarray(bits), source.fmt.name))


def _pe(call: Call) -> bool:
    return call.engine == "tensor"


def _choose_transpose(call: Call) -> str:
    return "vector" if call.buffer("dst") == "sbuf" or call.buffer("data") == "psum" else "tensor"


def _pe_shape(call: Call) -> Finding | None:
    if not _pe(call):
        return None
    if call.buffer("data") != "sbuf" or call.buffer("dst") != "psum":
        return Finding(
            "the tensor engine transposes SBUF into PSUM; data is "
            f"in {call.buffer('data')}, dst in {call.buffer('dst')}",
            "dst",
        )
    if call.P("data") > 128 or call.F("data") > 128:
        return Finding(f"data is {call.data.shape}; the tensor engine transposes at most 128 x 128", "data")
    return None


def _vector_shape(call: Call) -> Finding | None:
    if not _pe(call) and (call.P("data") > 32 or call.F("data") > 32):
        return Finding(
            f"data is {call.data.shape}; the vector engine transposes at most 32 x 32",
            "data",
            "transpose into a PSUM tile (tensor engine, up to 128 x 128), or in 32 x 32 blocks",
        )
    return None


def _swapped(call: Call) -> Finding | None:
    if call.P("dst") != call.F("data") or call.F("dst") != call.P("data"):
        return Finding(
            f"dst is {call.dst.shape}; the transpose of {call.data.shape} "
            f"has {call.F('data')} partitions of {call.P('data')}",
            "dst",
        )
    return None


def _transpose_same_dtype(call: Call) -> Finding | None:
    data, dst = call.fmt("data"), call.fmt("dst")
    if data is dst:
        return None
    if _pe(call) and dst.name == "float32" and data.is_float and data.itemsize == 2:
        return None
    return Finding(f"dst is {dst.name}, data {data.name}; a transpose keeps the dtype", "dst")


def _integer_transpose(call: Call) -> Finding | None:
    if _pe(call) and call.generation < 3 and not call.fmt("data").is_float:
        return Finding(
            f"data is {call.dtype('data')}; on {call.target} the tensor engine transposes floats only",
            "data",
            "cast to float32 first",
        )
    return None


def _fp8_transpose(call: Call) -> Finding | None:
    if _pe(call) and call.generation >= 3 and call.dtype("data") in _FP8:
        return Finding(
            f"data is {call.dtype('data')}: the device writes 16-bit PSUM elements here; values are kept as fp8", "data"
        )
    return None


def _transpose_cost(call: Call) -> float:
    if not _pe(call):
        return max(MIN_II, call.F("data"))
    base = max(call.P("data"), min(64, call.F("data")))
    if call.fmt("data").itemsize == 4:
        return base * (2 if call.generation >= 3 else 4)
    return base


@instruction(
    operands=dict(dst=Out(), data=In()),
    params=dict(engine=ENGINE),
    engines=("tensor", "vector"),
    choose=_choose_transpose,
    cost=_transpose_cost,
    lanewise=False,
    accuracy="exact (generation 2 on the tensor engine: NaN and Inf contaminate their row)",
    rules=(
        on_chip("R2", "data", "dst"),
        Rule("R1", "tensor engine: SBUF to PSUM, at most 128 x 128", _pe_shape),
        Rule("R2", "vector engine: at most 32 x 32", _vector_shape),
        Rule("R3", "dst has the swapped extents", _swapped),
        Rule("R4", "equal dtypes; float32 dst for 16-bit floats on the tensor engine", _transpose_same_dtype),
        Rule("R4", "generation 2 on the tensor engine: floats only", _integer_transpose),
        Rule("R4", "fp8 on the tensor engine", _fp8_transpose, warn=True),
        alias("R5", "engine in {unknown, tensor, vector} (GEN.R11)"),
        alias("R6", "packed dtypes rejected (DT.R1)"),
    ),
)
def nc_transpose(dst: Tile, data: Tile, engine: Engine = Engine.unknown, name: str | None = None) -> None:
    """`dst[f, p] = data[p, f]`: a 2-D transpose, bit for bit; extra free dims are flattened.

    Engine tensor (`dst` in PSUM, up to 128 x 128) or vector (`dst` in SBUF, up to 32 x 32), chosen from the
    destination. Source: isa.md 10.7.
    """
    if engine is Engine.tensor and not _passes_bits(dst):
        values = _values(data)
        dst.store(_product(values, np.eye(values.shape[0], dtype=np.float32)))
    else:
        _write_transposed(dst, data.bits().T, data)
