"""The public names of `nki.isa`: instructions, enumerations, registers, target queries (isa.md 7, 10 to 16)."""

from __future__ import annotations

from typing import Any, NoReturn

from tilelang.devices import resolve_target
from tilelang.errors import NkiValidationError, closest
from tilelang.ir.context import active_builder
from tilelang.ir.program import Instruction as NkiInstruction
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.isa import indirect as indirect
from tilelang.isa import simulated as simulated
from tilelang.isa.activations import activate2, activation, activation_reduce, exponential
from tilelang.isa.arithmetic import reciprocal, scalar_tensor_tensor, tensor_scalar
from tilelang.isa.copies import memset, tensor_copy
from tilelang.isa.cores import core_barrier, sendrecv, sendrecv_compute
from tilelang.isa.dma import dma_copy, dma_transpose
from tilelang.isa.dma_compute import dma_compute
from tilelang.isa.elementwise import tensor_tensor
from tilelang.isa.enums import (
    dge_mode,
    dma_engine,
    engine,
    gpsimd_engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from tilelang.isa.gathers import local_gather, nc_n_gather, nc_stream_shuffle, tensor_partition_reduce
from tilelang.isa.generators import affine_select, iota
from tilelang.isa.matmul import nc_matmul, nc_transpose
from tilelang.isa.mx import nc_matmul_mx, quantize_mx
from tilelang.isa.random import dropout, rand2, rand_get_state, rand_set_state, rng, set_rng_seed
from tilelang.isa.reductions import tensor_reduce, tensor_scalar_cumulative, tensor_scalar_reduce, tensor_tensor_scan
from tilelang.isa.registers import (
    register_alloc,
    register_load,
    register_move,
    register_store,
    scalar_load,
    scalar_store,
)
from tilelang.isa.select import range_select, select_reduce, tensor_copy_predicated
from tilelang.isa.selection import nonzero_with_count, sequence_bounds, topk
from tilelang.isa.statistics import bn_aggr, bn_stats, max8, nc_find_index8, nc_match_replace8

__all__ = [
    "NkiInstruction",
    "NkiScalar",
    "NkiValidationError",
    "VirtualRegister",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "core_barrier",
    "dge_mode",
    "dma_compute",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "exponential",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "matmul_perf_mode",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "nonzero_with_count",
    "oob_mode",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_engine",
    "scalar_load",
    "scalar_store",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "sendrecv_compute",
    "sequence_bounds",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
    "unknown_engine",
    "vector_engine",
]

_DYNAMIC_COPY = "use nisa.tensor_copy with an operand t.ap(..., scalar_offset=index)"
_REMOVED = {
    "tensor_copy_dynamic_src": _DYNAMIC_COPY,
    "tensor_copy_dynamic_dst": _DYNAMIC_COPY,
    "builtin_custom_op": "custom operators have no replacement; write it with instructions",
}


def __getattr__(name: str) -> NoReturn:
    if name in _REMOVED:
        raise AttributeError(f"nki.isa.{name} was removed from NKI; {_REMOVED[name]}")
    raise AttributeError(f"nki.isa has no attribute {name!r}{closest(name, __all__)}")


def _device() -> Any:
    builder = active_builder()
    return resolve_target() if builder is None else builder.device


def get_nc_version() -> nc_version:
    """NeuronCore generation of the running kernel's target, or else of the default target. Source: isa.md 7.3."""
    return nc_version(_device().generation)


def get_nc_sub_version() -> int:
    """Silicon revision within the generation: 0. Source: isa.md 7.3."""
    return 0
