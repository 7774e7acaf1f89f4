"""How two views share memory: what decides whether an instruction may read one while it writes the other."""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.ir.tensor import NkiTensor

__all__ = ["DISJOINT", "OVERLAP", "SAME", "is_injective", "relation"]

DISJOINT, SAME, OVERLAP = range(3)


def relation(first: NkiTensor, second: NkiTensor) -> int:
    """`DISJOINT`: no common byte; `SAME`: element k of both is the same memory, for all k, and no other; else
    `OVERLAP`.

    Sufficient tests: what they cannot tell counts as `OVERLAP`. Only storages with explicit addresses alias others.
    """
    a, b = first.storage, second.storage
    if a is b:
        if _same_window(first, second):
            return SAME if _is_injective(first) else OVERLAP
        shift = 0
    elif a.address is None or b.address is None or a.buffer is not b.buffer:
        return DISJOINT
    else:
        shift = b.address[1] - a.address[1]
    if a.on_chip:
        low, high = first.start_partition, second.start_partition
        first_end = low + (first.P - 1) * first.partition_step
        second_end = high + (second.P - 1) * second.partition_step
        if first_end < high or second_end < low:
            return DISJOINT
    (low, high), (start, end) = first.byte_span(), second.byte_span()
    return OVERLAP if low < end + shift and start + shift < high else DISJOINT


def _is_injective(tensor: NkiTensor) -> bool:
    first = 1 if tensor.on_chip else 0  # partitions are apart
    return is_injective(tensor.shape[first:], tensor.strides[first:])


def _same_window(first: NkiTensor, second: NkiTensor) -> bool:
    if first is second:
        return first.dynamic is None or first.dynamic.kind == "scalar"
    if first.offset != second.offset or first.dtype != second.dtype:
        return False
    if first.shape != second.shape or first.strides != second.strides:
        return False
    one, two = first.dynamic, second.dynamic
    if one is None or two is None:
        return one is two
    return one.kind == two.kind == "scalar" and one.source is two.source and one.byte_multiplier == two.byte_multiplier


def is_injective(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no two elements of a window share an address (sufficient: strides nest)."""
    reach = 1
    for step, count in sorted((abs(step), count) for count, step in zip(shape, strides, strict=True) if count > 1):
        if step < reach:
            return False
        reach += step * (count - 1)
    return True
