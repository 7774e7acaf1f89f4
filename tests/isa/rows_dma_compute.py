"""Rule rows of dma_compute (see test_rules.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.isa.enums import oob_mode

A = "sbuf float32[4,8]"
HBM = "shared_hbm float32[4,8]"


def tensors(*texts: str) -> Any:
    return lambda tensor: [tensor(text) for text in texts]


def scatter(dst: str = "shared_hbm float32[100,8]", add: str = A, same: bool = True, rows: int = 4) -> dict[str, Any]:
    """Arguments of an indirect sum into rows of `dst`."""
    made: list[Any] = []

    def view(tensor: Any) -> Any:
        if not made:
            table, index = tensor(dst), tensor(f"sbuf int32[{rows},1]")
            made.append(table.ap([[8, 4], [1, 8]], vector_offset=index))
        return made[0]

    def sources(tensor: Any) -> Any:
        other = tensor(dst).ap([[8, 4], [1, 8]], vector_offset=tensor("sbuf int32[4,1]"))
        return [view(tensor) if same else other, tensor(add)]

    return dict(dst=view, srcs=sources)


def gather(table: str = "shared_hbm float32[100,8]", dst: str = A, same: bool = True) -> dict[str, Any]:
    """Arguments of a sum that adds rows of `table` to `dst`."""
    made: list[Any] = []

    def tile(tensor: Any) -> Any:
        if not made:
            made.append(tensor(dst))
        return made[0]

    def sources(tensor: Any) -> Any:
        rows = tensor(table).ap([[8, 4], [1, 8]], vector_offset=tensor("sbuf int32[4,1]"))
        return [tile(tensor) if same else tensor(dst), rows]

    return dict(dst=tile, srcs=sources)


def moved(tensor: Any) -> Any:
    """Rows of a tensor from a register's position on."""
    from tilelang.ir.scalars import VirtualRegister

    return tensor("shared_hbm float32[100,8]").ap([[8, 4], [1, 8]], scalar_offset=VirtualRegister(0), indirect_dim=0)


BASE: dict[str, dict[str, Any]] = {"dma_compute": dict(dst=A, srcs=tensors(A, HBM), reduce_op=np.add)}
_PACKED = "sbuf float8_e4m3fn_x4[4,8]"

# fmt: off
ROWS: list[tuple[Any, ...]] = [
    ("dma_compute", "R1", "dst", "PSUM", dict(dst="psum float32[4,8]"), dict(dst=HBM)),
    ("dma_compute", "R1", "srcs", "at most 16", dict(srcs=tensors(*[A] * 17)), dict(srcs=tensors(*[A] * 16))),
    ("dma_compute", "R2", None, "srcs[1] has 28 elements", dict(srcs=tensors(A, "sbuf float32[4,7]")),
     dict(srcs=tensors(A, "shared_hbm float32[32]"))),
    ("dma_compute", "R3", "reduce_op", "only add", dict(reduce_op=np.maximum), {}),
    ("dma_compute", "R4", "scales", "1 numbers for 2", dict(scales=(1.0,)), dict(scales=(1.0, 1.0))),
    ("dma_compute", "R4", "scales", "must be 1.0", dict(scales=(1.0, 2.0)), dict(scales=[1, 1])),
    ("dma_compute", "R5", "srcs", "must be two, one", dict(dst=scatter()["dst"]), scatter()),
    ("dma_compute", "R5", "unique_indices", "unique indices", dict(unique_indices=False, **scatter()), scatter()),
    ("dma_compute", "R5", "dst", "generation 3", scatter(), scatter(), "trn1", "trn2"),
    ("dma_compute", "R5", "dst", "expected (4, 1)", scatter(rows=5), scatter()),
    ("dma_compute", "R6", "dst", "must be one of the sources", scatter(same=False), scatter()),
    ("dma_compute", "R6", "srcs", "in HBM", scatter(add=HBM), scatter()),
    ("dma_compute", "R7", "dst", "from HBM to an SBUF tile", gather(dst=HBM), gather()),
    ("dma_compute", "R7", "srcs", "must be the other source", gather(same=False), gather()),
    ("dma_compute", "R8", "oob_mode", "vector_offset", dict(oob_mode=oob_mode.skip),
     dict(oob_mode=oob_mode.skip, **gather())),
    ("dma_compute", "R9", "dst", "no sums", dict(dst=_PACKED), dict(dst="sbuf float8_e5m2[4,8]")),
    ("dma_compute", "R11", None, "srcs[1] has a scalar_offset",
     dict(srcs=lambda tensor: [tensor(A), moved(tensor)]), {}),
]
