"""Planning of `t.rearrange`: which dims to split, how to permute, which to merge. Names only, no layouts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilelang.errors import TileRuleError, TileTypeError, TileValueError
from tilelang.ir.handle import Handle

__all__ = ["plan"]

_HINT = "patterns look like ('p', ('a', 'b')), ('p', 'b', 'a') with fixed_sizes={'a': 4}"


def plan(
    tensor: Handle, source: Any, target: Any, fixed_sizes: dict[str, int] | None
) -> tuple[list[list[int]], list[int], list[tuple[int, int]]]:
    """(sizes each source dim splits into, order of the split dims, (start, end) pairs to merge one after the other).

    Raises TileTypeError for malformed patterns, TileValueError for names or sizes that do not fit.
    """
    groups = _groups(source, "src_pattern")
    targets = _groups(target, "dst_pattern")
    names = [name for group in groups for name in group]
    wanted = [name for group in targets for name in group]
    for label, found in (("src_pattern", names), ("dst_pattern", wanted)):
        if len(set(found)) != len(found):
            raise TileValueError(f"rearrange: a name stands twice in {label} {found}", rule="LANG.R217", hint=_HINT)
    if set(names) != set(wanted):
        raise TileValueError(
            f"rearrange: {sorted(set(names) ^ set(wanted))} stand on one side only", rule="LANG.R217", hint=_HINT
        )
    if len(groups) != len(tensor.shape):
        raise TileValueError(
            f"rearrange: src_pattern has {len(groups)} dims, {tensor.describe()} has {len(tensor.shape)}",
            rule="LANG.R217",
            hint=_HINT,
        )
    sizes = fixed_sizes if fixed_sizes is not None else {}
    if not isinstance(sizes, dict) or any(type(size) is not int or size < 1 for size in sizes.values()):
        raise TileTypeError(
            f"rearrange: fixed_sizes={fixed_sizes!r:.80} is not a dict of names and positive ints", rule="LANG.R217"
        )
    if unknown := [name for name in sizes if name not in names]:
        raise TileValueError(f"rearrange: fixed_sizes names {unknown}, which src_pattern lacks", rule="LANG.R217")
    splits = [_split(tensor, dim, group, sizes) for dim, group in enumerate(groups)]
    merges = [(dim, dim + len(group) - 1) for dim, group in enumerate(targets) if len(group) > 1]
    return splits, [names.index(name) for name in wanted], merges


def _groups(pattern: Any, label: str) -> list[tuple[str, ...]]:
    if not isinstance(pattern, (tuple, list)) or not pattern:
        raise TileTypeError(f"rearrange: {label}={pattern!r} is not a tuple of names", rule="LANG.R217", hint=_HINT)
    groups = [tuple(entry) if isinstance(entry, (tuple, list)) else (entry,) for entry in pattern]
    if any(not group or not all(isinstance(name, str) for name in group) for group in groups):
        raise TileTypeError(
            f"rearrange: {label}={pattern!r} holds something that is neither a name nor a tuple of names",
            rule="LANG.R217",
            hint=_HINT,
        )
    return groups


def _split(tensor: Handle, dim: int, group: Sequence[str], sizes: dict[str, int]) -> list[int]:
    total = tensor.shape[dim]
    open_names = [name for name in group if name not in sizes]
    known = prod(sizes[name] for name in group if name in sizes)
    if len(open_names) > 1:
        raise TileValueError(
            f"rearrange: the sizes of {open_names} in dim {dim} of {tensor.describe()} are unknown; "
            "one may be left out",
            rule="LANG.R217",
            hint="give the others in fixed_sizes",
        )
    if known < 1 or total % known or (not open_names and known != total):
        raise TileRuleError(
            f"rearrange: {dict((name, sizes.get(name)) for name in group)} do not multiply to {total}, "
            f"the size of dim {dim} of {tensor.describe()}",
            rule="LANG.R217",
        )
    return [sizes.get(name, total // known) for name in group]
