"""Instructions between the two cores of a launch (isa.md 10.11, 10.12; nki-0.7.md 2.5)."""

from __future__ import annotations

from typing import Any

from tilelang.errors import TileTypeError
from tilelang.isa.enums import dma_engine as DmaEngine
from tilelang.isa.enums import engine as Engine
from tilelang.isa.meeting import Meeting, Party, Place, World
from tilelang.isa.params import ENGINE, INT, OPERATOR, Param, enum_param
from tilelang.isa.rules import alias, on_chip, same_extent, semantic
from tilelang.isa.spec import Call, Finding, In, Operand, Out, Rule, instruction
from tilelang.isa.tile import Tile
from tilelang.numerics import alu

__all__ = ["core_barrier", "sendrecv", "sendrecv_compute"]

_GPSIMD_BYTES = {4: 1024, 2: 512, 1: 256}  # per partition, by item size
_REDUCTIONS = ("add", "maximum", "minimum")


def _cores(value: Any) -> tuple[int, ...]:
    items = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(item, bool) or not isinstance(item, int) for item in items):
        raise TileTypeError(f"expected core ids such as (0, 1), got {value!r}")
    return items


def _both(key: Any, place: Place) -> Meeting:
    return Meeting(key, frozenset(Place(place.rank, core) for core in (0, 1)))


def _alone(key: Any, place: Place) -> Meeting:
    return Meeting(key, frozenset((place,)))


def _two_cores(call: Call) -> Finding | None:
    if call.lnc == 2:
        return None
    return Finding(f"{call.spec.name} needs two cores; this launch has one", None, "launch with kernel[2](…)")


def _same_dtype(call: Call) -> Finding | None:
    if call.dtype("dst") == call.dtype("src"):
        return None
    return Finding(f"dst is {call.dtype('dst')}, src {call.dtype('src')}; they must be equal", "dst")


def _ranks(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} is {call.values[name]}; core ids are 0 and 1", name)
        for name in ("send_to_rank", "recv_from_rank")
        if call.values[name] not in (0, 1)
    ]


# -- core_barrier


def _core_ids(call: Call) -> Finding | None:
    if call.cores in ((0, 1), (0,)):
        return None
    return Finding(f"cores is {call.cores}; expected (0, 1)", "cores")


def _shared_data(call: Call) -> Finding | None:
    if call.buffer("data") == "shared_hbm":
        return None
    return Finding(f"data is {call.describe('data')}; a barrier orders writes to shared HBM", "data")


def _barrier_meeting(call: Call, place: Place, world: World) -> Meeting:
    if world.cores == 1 or len(call.cores) == 1:
        return _alone("core_barrier", place)
    return _both("core_barrier", place)


@instruction(
    operands=dict(data=Operand()),
    params=dict(cores=Param("core ids", _cores), engine=ENGINE),
    engines=("gpsimd", "tensor", "vector", "scalar", "sync"),
    since=3,
    cost=lambda call: 0.0,
    lanewise=False,
    accuracy="exact",
    meeting=_barrier_meeting,
    rules=(
        alias("R1", "generation 3 (GEN.R10)"),
        Rule("R2", "cores is (0, 1)", _core_ids),
        Rule("R3", "data is in shared HBM", _shared_data, warn=True),
    ),
)
def core_barrier(
    data: Tile,
    cores: Any = (0, 1),
    engine: Engine = Engine.gpsimd,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """Neither core passes until both are here; what either wrote to shared HBM before is seen by both afterwards.

    data: the shared HBM tensor that is handed over (any tensor is accepted). cores: (0, 1); one id, or a launch on one
    core, makes it a no-op. Generation 3 on. Source: isa.md 10.12, nki-0.7.md 2.6.
    """


# -- sendrecv


def _gpsimd_bytes(call: Call) -> Finding | None:
    if call.dma_engine is not DmaEngine.gpsimd_dma:
        return None
    size = call.fmt("src").itemsize
    used, limit = call.F("src") * size, _GPSIMD_BYTES.get(size, 1024)
    if used <= limit:
        return None
    return Finding(
        f"src has {used} bytes per partition; gpsimd_dma moves at most {limit} of a {8 * size}-bit dtype",
        "src",
        "use dma_engine.dma, or several calls",
    )


def _send_meeting(call: Call, place: Place, world: World) -> Meeting:
    if call.send_to_rank == call.recv_from_rank == place.core:
        return _alone("sendrecv", place)
    return _both(("sendrecv", call.pipe_id), place)


@instruction(
    operands=dict(src=In(), dst=Out()),
    params=dict(send_to_rank=INT, recv_from_rank=INT, pipe_id=INT, dma_engine=enum_param(DmaEngine)),
    engines=("dma",),
    since=3,
    cost=lambda call: 0.0,
    lanewise=False,
    accuracy="exact",
    meeting=_send_meeting,
    rules=(
        Rule("R1", "a launch on two cores (generation 3: GEN.R10)", _two_cores),
        on_chip("R2", "src", "dst", buffers=("sbuf",)),
        same_extent("R2", "src", "dst"),
        Rule("R2", "equal dtypes", _same_dtype),
        Rule("R3", "ranks are core ids 0 and 1", _ranks),
        Rule("R4", "bytes per partition of gpsimd_dma", _gpsimd_bytes),
        semantic("R5", "the other core makes the matching call (seen when it runs)"),
    ),
    legacy=("mask", "dtype"),
)
def sendrecv(
    src: Tile,
    dst: Tile,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: DmaEngine = DmaEngine.dma,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """Exchange tiles between the two cores: my `src` goes to core `send_to_rank`, my `dst` gets what
    `recv_from_rank` sent.

    src, dst: SBUF, equal shape and dtype. Both cores make the call; calls of one `pipe_id` pair up in program order.
    Sources are read before any destination is written. send_to_rank = recv_from_rank = the own core: a plain copy.
    Generation 3 on, two cores. Source: isa.md 10.11.
    """
    sent = {}
    for party in parties:
        sent[party.place.core, party.send_to_rank] = party.src.bits()
    for party in parties:
        wanted = (party.recv_from_rank, party.place.core)
        if wanted not in sent:
            raise _unmatched(f"core {party.place.core} receives from core {wanted[0]}, which sends elsewhere")
        bits = sent[wanted]
        if bits.shape != (party.dst.P, party.dst.F) or bits.dtype != party.dst.fmt.carrier:
            raise _unmatched(
                f"core {wanted[0]} sends {bits.dtype}{list(bits.shape)}, "
                f"core {wanted[1]} expects {party.dst.dtype}{list(party.dst.shape)}"
            )
        party.dst.store_bits(bits)


def _unmatched(message: str) -> TileTypeError:
    return TileTypeError(f"sendrecv: {message}", rule="sendrecv.R5", hint="both cores make mirrored calls")


# -- sendrecv_compute


def _one_memory(call: Call) -> Finding | None:
    found = {call.buffer("src"), call.buffer("dst")}
    if found in ({"sbuf"}, {"private_hbm"}):
        return None
    return Finding(
        f"src is in {call.buffer('src')}, dst in {call.buffer('dst')}; both lie in sbuf, or both in private_hbm", "dst"
    )


def _reduction(call: Call) -> Finding | None:
    if call.reduce_op in _REDUCTIONS:
        return None
    return Finding(f"reduce_op is {call.reduce_op}; allowed: {', '.join(_REDUCTIONS)}", "reduce_op")


@instruction(
    operands=dict(src=In(), dst=Out()),
    params=dict(send_to_rank=INT, recv_from_rank=INT, reduce_op=OPERATOR),
    engines=("dma",),
    since=3,
    cost=lambda call: 0.0,
    lanewise=False,
    accuracy="one operation in float32, rounded once",
    meeting=lambda call, place, world: _both("sendrecv_compute", place),
    rules=(
        Rule("R1", "a launch on two cores (generation 3: GEN.R10)", _two_cores),
        Rule("R1", "ranks are core ids 0 and 1", _ranks),
        Rule("R2", "both in sbuf or both in private HBM", _one_memory),
        Rule("R3", "reduce_op in add, maximum, minimum", _reduction),
        same_extent("R4", "src", "dst"),
        Rule("R4", "equal dtypes", _same_dtype),
        alias("R5", "matching calls of both cores (sendrecv.R5)"),
    ),
)
def sendrecv_compute(
    src: Tile,
    dst: Tile,
    send_to_rank: int,
    recv_from_rank: int,
    reduce_op: str,
    name: str | None = None,
    *,
    parties: list[Party],
) -> None:
    """`dst = reduce_op(src, src of the other core)` on both cores: float32 inside, one rounding, own operand first.

    src, dst: both SBUF or both private HBM, equal shape and dtype on both cores. reduce_op: add, maximum or minimum.
    Calls pair up in program order. Generation 3 on, two cores. Source: nki-0.7.md 2.5.
    """
    values = [party.src.f32() for party in parties]
    for me, party in enumerate(parties):
        other = parties[1 - me]
        if values[1 - me].shape != (party.dst.P, party.dst.F) or party.reduce_op != other.reduce_op:
            raise _unmatched(
                f"core {party.place.core} calls sendrecv_compute with {party.reduce_op} on {list(party.dst.shape)}, "
                f"core {other.place.core} with {other.reduce_op} on {list(other.dst.shape)}"
            )
        party.dst.store(alu.BINARY[party.reduce_op](values[me], values[1 - me]))
