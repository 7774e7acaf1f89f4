"""Rules of `.indirect` operands (isa.md 5.5)."""

from __future__ import annotations

from tilelang.ir.tensor import NkiTensor
from tilelang.isa.spec import Call, Finding, Rule

__all__ = ["INDIRECT_RULES", "indirect_views"]

_GATHERED_FLOATS = ("float16", "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")
_MAIN_SOURCES = ("stationary", "predicate", "src", "data", "data1")
_QUADRANT = 32


def indirect_views(call: Call) -> list[tuple[str, NkiTensor]]:
    """(parameter, tensor) of the `.indirect` operands of `call`."""
    return [(n, t) for n, t in call.tiles() if t.dynamic is not None and t.dynamic.kind == "indirect"]


def _index(tensor: NkiTensor) -> NkiTensor:
    index: NkiTensor = tensor.dynamic.source  # type: ignore[union-attr]
    return index


def _generation(call: Call) -> list[Finding]:
    if call.generation >= 4:
        return []
    message = "{} is an .indirect view, which needs generation 4"
    hint = 'target="trn3", or gather with nisa.local_gather or nisa.nc_n_gather'
    return [Finding(message.format(name), name, hint) for name, _ in indirect_views(call)]


def _operand(call: Call) -> list[Finding]:
    allowed = ", ".join(call.spec.indirect) or "none"
    return [
        Finding(f"{name} cannot be an .indirect view; allowed here: {allowed}", name)
        for name, _ in indirect_views(call)
        if name not in call.spec.indirect
    ]


def _index_start(call: Call) -> list[Finding]:
    return [
        Finding(
            f"the index of {name} starts at partition {_index(tensor).start_partition}; it must be a multiple of 32",
            name,
        )
        for name, tensor in indirect_views(call)
        if _index(tensor).storage.address is not None and _index(tensor).start_partition % _QUADRANT
    ]


def _apart(first: NkiTensor, second: NkiTensor) -> bool:
    """Both were placed by hand, on different partitions; the placement of other tiles is ours."""
    placed = first.storage.address is not None and second.storage.address is not None
    return placed and first.start_partition != second.start_partition


def _gathered_start(call: Call) -> list[Finding]:
    return [
        Finding(
            f"{name} starts at partition {tensor.start_partition}, its index at {_index(tensor).start_partition}; "
            "a gathered source and its index start at the same partition",
            name,
        )
        for name, tensor in indirect_views(call)
        if call.reads(name) and not call.writes(name) and _apart(tensor, _index(tensor))
    ]


def _main(call: Call) -> tuple[str, NkiTensor] | None:
    found = dict(call.tiles())
    name = next((name for name in _MAIN_SOURCES if name in found), None)
    return None if name is None else (name, found[name])


def _scattered(call: Call, buffer: str, engine: bool) -> Finding | None:
    """The start of the index of a scattered dst against what decides it; `engine`: on the tensor engine."""
    dst, main = call.values.get("dst"), _main(call)
    if main is None or not isinstance(dst, NkiTensor) or (call.engine == "tensor") != engine:
        return None
    if dst.dynamic is None or dst.dynamic.kind != "indirect" or call.buffer(main[0]) != buffer:
        return None
    name, other = main
    if buffer == "psum":
        if other.dynamic is None or other.dynamic.kind != "indirect":
            return None
        name, other = f"the index of {name}", _index(other)
    if not _apart(_index(dst), other):
        return None
    return Finding(
        f"the index of dst starts at partition {_index(dst).start_partition}, {name} at {other.start_partition}; "
        "they start at the same partition",
        "dst",
    )


def _tile_position(call: Call) -> Finding | None:
    position = call.values.get("tile_position")
    scattered = any(name == "dst" for name, _ in indirect_views(call))
    if call.engine != "tensor" or not scattered or not position or tuple(position) == (0, 0):
        return None
    return Finding(f"dst is an .indirect view and tile_position is {tuple(position)}", "tile_position", "leave it out")


def _gathered_dtype(call: Call) -> list[Finding]:
    if call.spec.name != "nc_matmul":
        return []
    return [
        Finding(f"{name} is gathered and has dtype {tensor.dtype}; it must be {', '.join(_GATHERED_FLOATS)}", name)
        for name, tensor in indirect_views(call)
        if name != "dst" and tensor.dtype not in _GATHERED_FLOATS
    ]


def _transposed(call: Call) -> Finding | None:
    if call.values.get("is_transpose") and any(name == "moving" for name, _ in indirect_views(call)):
        return Finding("moving is an .indirect view, which is_transpose does not take", "moving")
    return None


def _undecided(call: Call) -> Finding | None:
    if "accumulate" in call.values and call.accumulate is None and any(n == "dst" for n, _ in indirect_views(call)):
        return Finding(
            "dst is an .indirect view and accumulate is None: which elements were written before is not tracked there",
            "dst",
            "pass accumulate=True or accumulate=False",
        )
    return None


INDIRECT_RULES = (
    Rule("TI.R1", ".indirect operands need generation 4", _generation),
    Rule("TI.R2", ".indirect only on the operands the instruction lists", _operand),
    Rule("TI.R4", "the index of a hand-placed .indirect operand starts at a multiple of 32 partitions", _index_start),
    Rule("TI.R5", "a gathered source starts at the partition of its index", _gathered_start),
    Rule("TI.R6", "source in SBUF: the index of dst starts at its partition", lambda c: _scattered(c, "sbuf", False)),
    Rule("TI.R7", "source in PSUM: the index of dst starts with its index", lambda c: _scattered(c, "psum", False)),
    Rule("TI.R8", "tensor engine: the index of dst starts with stationary", lambda c: _scattered(c, "sbuf", True)),
    Rule("TI.R8", "tensor engine: tile_position is (0, 0) with a scattered dst", _tile_position),
    Rule("TI.R8", "moving is not gathered in a transpose", _transposed),
    Rule("TI.R9", "the tensor engine gathers 16- and 8-bit floats", _gathered_dtype),
    Rule("LANG.R223", "accumulate is given where dst is scattered", _undecided),
)
