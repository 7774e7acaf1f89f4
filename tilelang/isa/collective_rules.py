"""Rules of collectives (language.md 6.1, 6.2): lists that pair up, memories, dtypes, shapes, dims, groups."""

from __future__ import annotations

from collections.abc import Callable

from tilelang.isa.rules import alias, semantic
from tilelang.isa.spec import Call, Finding, Rule

__all__ = [
    "COMMON",
    "GROUPED",
    "along",
    "collective_dim",
    "divisible",
    "memory",
    "reduction_op",
    "shapes",
    "two_dims",
]

_HBM = ("private_hbm", "shared_hbm")
_REDUCTIONS = ("add", "maximum", "minimum")


def _lists(call: Call) -> Finding | None:
    if len(call.srcs) == len(call.dsts) and call.srcs:
        return None
    return Finding(f"srcs has {len(call.srcs)} tensors, dsts {len(call.dsts)}; they pair up", "dsts")


def memory(*allowed: str) -> Rule:
    """All operands lie in HBM; with "sbuf" among `allowed`, or all in SBUF."""

    def test(call: Call) -> Finding | None:
        buffers = {tensor.buffer.value for _, tensor in call.tiles()}
        if buffers <= set(_HBM) or ("sbuf" in allowed and buffers == {"sbuf"}):
            return None
        where = "all in HBM, or all in SBUF" if "sbuf" in allowed else "in HBM"
        return Finding(f"operands are in {', '.join(sorted(buffers))}; {call.spec.name} takes tensors {where}", "srcs")

    return Rule("R2", "all operands in HBM" + (", or all in SBUF" if "sbuf" in allowed else ""), test)


def _coalesced(call: Call) -> Finding | None:
    if len(call.srcs) == 1 or call.srcs[0].buffer.value != "sbuf":
        return None
    return Finding(f"srcs has {len(call.srcs)} tensors in SBUF; several at once only in HBM", "srcs")


def _dtypes(call: Call) -> Finding | None:
    for src, dst in zip(call.srcs, call.dsts, strict=False):
        if src.dtype != dst.dtype:
            return Finding(f"dsts has {dst.dtype} where srcs has {src.dtype}; they must be equal", "dsts")
    return None


def shapes(expected: Callable[[Call, tuple[int, ...], int], tuple[int, ...] | None], text: str) -> Rule:
    """Shapes of destinations: `expected(call, shape of the source, group size)`."""

    def test(call: Call) -> Finding | None:
        size = len(call.replica_group[0]) if "replica_group" in call.values else 1
        if not 0 <= call.values.get("collective_dim", 0) < len(call.srcs[0].shape):
            return None
        for src, dst in zip(call.srcs, call.dsts, strict=False):
            wanted = expected(call, tuple(src.shape), size)
            if wanted is not None and tuple(dst.shape) != wanted:
                what = f"{tuple(src.shape)} and a group of {size} give {wanted}"
                return Finding(f"dsts has shape {tuple(dst.shape)}; srcs of {what}", "dsts")
        return None

    return Rule("R4", text, test)


def collective_dim(hbm: tuple[int, ...], sbuf: tuple[int, ...]) -> Rule:
    """`collective_dim` is one of `hbm`, or of `sbuf` for tensors there."""

    def test(call: Call) -> Finding | None:
        allowed = sbuf if call.srcs[0].buffer.value == "sbuf" else hbm
        if call.collective_dim in allowed:
            return None
        return Finding(f"collective_dim is {call.collective_dim}; allowed here: {allowed}", "collective_dim")

    return Rule("R5", "collective_dim", test)


def two_dims(call: Call) -> Finding | None:
    """SBUF tensors have two dims."""
    if call.srcs[0].buffer.value != "sbuf" or len(call.srcs[0].shape) == 2:
        return None
    return Finding(f"srcs has shape {tuple(call.srcs[0].shape)}; in SBUF tensors are 2-D here", "srcs")


def divisible(call: Call) -> Finding | None:
    """The group divides the length along the collective dim."""
    size = len(call.replica_group[0])
    for src in call.srcs:
        if 0 <= call.collective_dim < len(src.shape) and src.shape[call.collective_dim] % size:
            length = src.shape[call.collective_dim]
            return Finding(
                f"srcs has {length} along dim {call.collective_dim}; a group of {size} must divide it", "srcs"
            )
    return None


def reduction_op(call: Call) -> Finding | None:
    """`op` is a reduction of collectives."""
    if call.op in _REDUCTIONS:
        return None
    return Finding(f"op is {call.op}; allowed: {', '.join(_REDUCTIONS)}", "op")


def _equal_groups(call: Call) -> Finding | None:
    if len({len(group) for group in call.replica_group}) == 1:
        return None
    return Finding("the groups have different sizes", "replica_group")


def along(shape: tuple[int, ...], dim: int, length: int) -> tuple[int, ...]:
    """`shape` with `length` along `dim`."""
    return (*shape[:dim], length, *shape[dim + 1 :])


COMMON = (
    Rule("R1", "srcs and dsts pair up", _lists),
    Rule("R3", "equal dtypes", _dtypes),
    semantic("R8", "all sources are read before any destination is written"),
    alias("R12", "all ranks make the same call (ncc.R12, a TileTypeError when it runs)"),
)
GROUPED = (
    *COMMON,
    Rule("R6", "several tensors only in HBM", _coalesced),
    Rule("R7", "groups of one size", _equal_groups),
    alias("R9", "groups do not overlap (ncc.R9, a TileValueError)"),
)
