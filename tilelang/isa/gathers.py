"""Gathers within partitions and shuffles of partitions (isa.md 10.8 to 10.10), and the reduction over partitions."""

from __future__ import annotations

from math import ceil

import numpy as np

from tilelang.isa.cost import MIN_II, gpsimd_cycles
from tilelang.isa.indirect import offset_error
from tilelang.isa.params import BYTE_MASK, INT, OPERATOR, OPTIONAL_INT
from tilelang.isa.rules import dtypes, on_chip, same_extent, same_partitions, semantic
from tilelang.isa.spec import Call, Finding, In, InOut, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import alu

__all__ = ["local_gather", "nc_n_gather", "nc_stream_shuffle", "tensor_partition_reduce"]

_CORE = 16  # partitions of one gpsimd core
_QUADRANT = 32
_UNTOUCHED = 255


def _one_dtype(rule: str, first: str, second: str) -> Rule:
    def test(call: Call) -> Finding | None:
        if call.dtype(first) == call.dtype(second):
            return None
        return Finding(f"{first} is {call.dtype(first)}, {second} {call.dtype(second)}; they must be equal", first)

    return Rule(rule, f"{first} and {second} of one dtype", test)


# -- nc_stream_shuffle


def _mask(call: Call) -> Finding | None:
    mask = call.shuffle_mask
    if len(mask) != _QUADRANT:
        return Finding(f"shuffle_mask has {len(mask)} entries; it must have 32", "shuffle_mask")
    wrong = [entry for entry in mask if not (0 <= entry < _QUADRANT or entry == _UNTOUCHED)]
    if wrong:
        return Finding(f"shuffle_mask holds {wrong[0]}; entries are 0 to 31, or 255: leave untouched", "shuffle_mask")
    return None


def _starts(call: Call) -> list[Finding]:
    span = _QUADRANT * ceil(max(call.P("src"), call.P("dst")) / _QUADRANT)
    allowed = (0,) if span > 64 else (0, 64) if span == 64 else (0, 32, 64, 96)
    return [
        Finding(f"{name} starts at partition {call.values[name].start_partition}; allowed here: {allowed}", name)
        for name in ("dst", "src")
        if call.values[name].start_partition not in allowed
    ]


def _named_partitions(call: Call) -> Finding | None:
    if len(call.shuffle_mask) != _QUADRANT:
        return None
    for row, source in shuffled_rows(call.shuffle_mask, call.P("dst")):
        if source >= call.P("src"):
            message = f"shuffle_mask[{row % _QUADRANT}] names partition {source} of src, which has {call.P('src')}"
            return Finding(message, "shuffle_mask")
    return None


def shuffled_rows(mask: tuple[int, ...], rows: int) -> list[tuple[int, int]]:
    """(row of dst, row of src) of every row that a shuffle writes."""
    return [
        (row, row // _QUADRANT * _QUADRANT + mask[row % _QUADRANT])
        for row in range(rows)
        if mask[row % _QUADRANT] != _UNTOUCHED
    ]


def _equal_free(call: Call) -> Finding | None:
    if call.F("dst") == call.F("src"):
        return None
    return Finding(f"dst has {call.F('dst')} elements per partition, src {call.F('src')}; they must be equal", "dst")


@instruction(
    operands=dict(dst=InOut(reads=lambda call: _UNTOUCHED in call.shuffle_mask), src=In()),
    params=dict(shuffle_mask=BYTE_MASK),
    engines=("vector",),
    cost=lambda call: max(MIN_II, call.F("dst")),
    lanewise=False,
    accuracy="exact",
    rules=(
        on_chip("R1", "dst", "src"),
        _one_dtype("R2", "dst", "src"),
        Rule("R2", "equal elements per partition", _equal_free),
        Rule("R3", "32 entries, 0 to 31 or 255", _mask),
        Rule("R4", "start partitions", _starts),
        Rule("R5", "entries name partitions of src", _named_partitions),
    ),
)
def nc_stream_shuffle(dst: Tile, src: Tile, shuffle_mask: tuple[int, ...], name: str | None = None) -> None:
    """Permute partitions within each group of 32: row i of a group of `dst` = row `shuffle_mask[i]` of that of `src`.

    dst, src: SBUF or PSUM, one dtype, equal elements per partition; partition counts may differ, dst may be src: all
    reads come before the writes. shuffle_mask: 32 ints, 0 to 31; 255 leaves the partition as it is. Engine: vector.
    Source: isa.md 10.8.
    """
    content, values = dst.bits(), src.bits()
    for row, source in shuffled_rows(shuffle_mask, dst.P):
        content[row] = values[source]
    dst.store_bits(content)


# -- local_gather, nc_n_gather


def _cores(call: Call) -> Finding | None:
    rows = (call.P("src_buffer"), call.P("index"), call.P("dst"))
    if len(set(rows)) == 1 and rows[0] % _CORE == 0:
        return None
    message = f"src_buffer has {rows[0]} partitions, index {rows[1]}, dst {rows[2]}; equal, and a multiple of 16"
    return Finding(message, "index")


def _index_limit(call: Call) -> int:
    return int(call.F("index")) * _CORE


def _valid(call: Call) -> int:
    return _index_limit(call) if call.num_valid_indices is None else int(call.num_valid_indices)


def _index_count(call: Call) -> Finding | None:
    most = min(_index_limit(call), int(call.device.limits["local_gather_max_indices_per_core"]))
    if 1 <= _valid(call) <= most:
        return None
    return Finding(f"{_valid(call)} indices for each core of 16 partitions; there may be 1 to {most}", "index")


def _runs(call: Call) -> Finding | None:
    if call.num_elem_per_idx in (1, 2, 4, 8, 16, 32):
        return None
    return Finding(f"num_elem_per_idx is {call.num_elem_per_idx}; allowed: 1, 2, 4, 8, 16, 32", "num_elem_per_idx")


def _gathered_size(call: Call) -> Finding | None:
    size = _valid(call) * call.num_elem_per_idx
    if size == call.F("dst"):
        return None
    return Finding(
        f"{_valid(call)} indices of {call.num_elem_per_idx} elements make {size}, dst has {call.F('dst')}",
        "dst",
        f"allocate dst with {size} elements per partition, or set num_valid_indices",
    )


def _local_gather_cycles(call: Call) -> float:
    """150 + elements * C (rulings 12: multiply)."""
    run, size, width = call.num_elem_per_idx, call.fmt("dst").itemsize, 4
    per_element = ((28 + width * run) / (width * run)) / min(4 / size, run)
    return 150 + _valid(call) * run * per_element


@instruction(
    operands=dict(dst=Out(), src_buffer=In(), index=In()),
    params=dict(num_elem_per_idx=INT, num_valid_indices=OPTIONAL_INT),
    engines=("gpsimd",),
    cost=_local_gather_cycles,
    lanewise=False,
    accuracy="exact",
    rules=(
        on_chip("R1", "dst", "src_buffer", "index", buffers=("sbuf",)),
        Rule("R2", "equal partition counts, a multiple of 16", _cores),
        dtypes("R3", "index", ("uint16",)),
        _one_dtype("R4", "dst", "src_buffer"),
        Rule("R5", "num_elem_per_idx", _runs),
        Rule("R6", "indices per core", _index_count),
        Rule("R7", "elements per partition of dst", _gathered_size),
        semantic("R8", "an index outside the partition is an error when it runs"),
    ),
)
def local_gather(
    dst: Tile,
    src_buffer: Tile,
    index: Tile,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> None:
    """Gather runs of elements; 16 partitions (one gpsimd core) share the indices in their rows of `index`.

    `dst[p, j * e + k] = src_buffer[p, flat[j] + k]`, e = num_elem_per_idx (1 to 32, a power of two), flat = the core's
    16 rows of `index` read down the columns, the first `num_valid_indices` of them. SBUF; index uint16; dst and
    src_buffer of one dtype. Raises TileBoundsError for a run outside the partition. Engine: gpsimd.
    Source: isa.md 10.9.
    """
    rows, run = dst.P, num_elem_per_idx
    count = dst.F // run
    table = index.bits().astype(np.int64).reshape(rows // _CORE, _CORE, -1)
    flat = table.transpose(0, 2, 1).reshape(rows // _CORE, -1)[:, :count]
    wrong = np.argwhere(flat + run > src_buffer.F)
    if len(wrong):
        core, position = wrong[0].tolist()
        raise offset_error(int(flat[core, position]), position, src_buffer.F, "local_gather")
    places = np.repeat((flat[:, :, None] + np.arange(run)).reshape(rows // _CORE, -1), _CORE, axis=0)
    dst.store_bits(np.take_along_axis(src_buffer.bits(), places, axis=1))


@instruction(
    operands=dict(dst=Out(), data=In(), indices=In()),
    engines=("gpsimd",),
    cost=lambda call: 150 * ceil(call.F("dst") / 512) + call.F("dst"),
    accuracy="exact",
    rules=(
        on_chip("R1", "dst", "data", "indices", buffers=("sbuf",)),
        same_partitions("R1", "dst", "data", "indices"),
        dtypes("R2", "indices", ("uint32",)),
        _one_dtype("R2", "dst", "data"),
        same_extent("R3", "dst", "indices"),
        semantic("R4", "an index outside the partition is an error when it runs"),
    ),
)
def nc_n_gather(dst: Tile, data: Tile, indices: Tile, name: str | None = None) -> None:
    """Gather elements within each partition: `dst[p, j] = data[p, indices[p, j]]`.

    SBUF, equal partition counts; indices uint32, as many as dst has elements; dst and data of one dtype. Raises
    TileBoundsError for an index outside the partition. Engine: gpsimd. Source: isa.md 10.10.
    """
    places = indices.bits().astype(np.int64)
    wrong = np.argwhere(places >= data.F)
    if len(wrong):
        row, position = wrong[0].tolist()
        raise offset_error(int(places[row, position]), position, data.F, "nc_n_gather")
    dst.store_bits(np.take_along_axis(data.bits(), places, axis=1))


# -- tensor_partition_reduce

_PARTITION_OPS = ("add", "average", "maximum", "bitwise_or", "bitwise_and")


def _allowed_op(call: Call) -> Finding | None:
    if call.op in _PARTITION_OPS:
        return None
    return Finding(f"op is {call.op}; allowed: {', '.join(_PARTITION_OPS)}", "op")


def _one_row(call: Call) -> Finding | None:
    if call.P("dst") == 1 and call.F("dst") == call.F("data"):
        return None
    return Finding(f"dst is {tuple(call.dst.shape)}; it must be one partition of {call.F('data')} elements", "dst")


def _bitwise_dtypes(call: Call) -> Finding | None:
    if not call.op.startswith("bitwise"):
        return None
    if call.dtype("dst") == call.dtype("data") and call.fmt("data").kind in ("int", "uint"):
        return None
    message = f"data is {call.dtype('data')}, dst {call.dtype('dst')}; {call.op} needs one integer dtype"
    return Finding(message, "data")


@instruction(
    operands=dict(dst=Out(), data=In()),
    params=dict(op=OPERATOR),
    engines=("gpsimd",),
    cost=lambda call: gpsimd_cycles(call.F("data") * max(1, ceil(np.log2(call.P("data"))))),
    lanewise=False,
    accuracy="exact rounding of each step, in ascending order; int32 sums exact",
    rules=(
        on_chip("R1", "dst", "data", buffers=("sbuf",)),
        Rule("R2", "op", _allowed_op),
        Rule("R3", "dst is one partition with the elements of data", _one_row),
        Rule("R4", "bitwise: one integer dtype", _bitwise_dtypes),
    ),
)
def tensor_partition_reduce(dst: Tile, op: str, data: Tile, name: str | None = None) -> None:
    """Reduce over partitions: `dst[0, f]` = op over p of `data[p, f]`, ascending.

    dst (1, F), data (P, F), SBUF. op: add, average (the sum divided by P), maximum in float32, rounded once (int32 into
    int32 adds and compares exactly, sums wrap); bitwise_or, bitwise_and of one integer dtype. Engine: gpsimd. Source:
    isa.md 12.5.
    """
    if op.startswith("bitwise") or (op != "average" and dst.dtype == data.dtype == "int32"):
        total = data.bits()
        for row in range(1, data.P):
            total[0] = alu.INTEGER[op](total[0], total[row])
        dst.store_bits(total[:1])
        return
    values = data.f32()
    result = values[0]
    for row in range(1, data.P):
        result = alu.BINARY["add" if op == "average" else op](result, values[row])
    dst.store(alu.BINARY["divide"](result, np.float32(data.P)) if op == "average" else result)
