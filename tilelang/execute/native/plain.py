"""Records of engine functions of their own: after the header rows, first partition and parameters, then operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.execute import layout
from tilelang.execute.native.template import Lowering, Record

__all__ = ["add_plain"]


def add_plain(
    lowering: Lowering, name: str, params: Sequence[int], operands: Sequence[str], like: str = "dst", **options: Any
) -> Record:
    """Add a record of engine function `name` that walks the rows of operand `like`.

    `operands` are parameters of the call in the order the engine expects them; one that was not given has address 0.
    Operands whose rows other threads own go into `cross`.
    """
    rows = lowering.tensor(like)
    words = [0] * layout.PLAIN_PARAMS
    words[layout.PLAIN_ROWS], words[layout.PLAIN_FIRST] = rows.P, rows.start_partition
    words += params
    addresses = []
    for operand in operands:
        if lowering.call.values[operand] is None:
            words += [0] * layout.OPERAND_WORDS
            continue
        addresses.append((len(words), lowering.slot(operand)))
        words += lowering.operand(operand)
    words[layout.H_LENGTH] = len(words)
    cross = {lowering.slot(operand) for operand in options.pop("cross", ())}
    cross |= {i for _, i in addresses if lowering.tensors[i].start_partition != rows.start_partition}
    functions = [(layout.H_FN, name)]
    return lowering.add(words, addresses, functions, cross=frozenset(cross), start=rows.start_partition, **options)
