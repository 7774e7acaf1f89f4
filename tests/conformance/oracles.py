"""What each instruction's base call (tests/isa/rows_*.py) gives, in float64 from the spec alone (isa.md 8 to 15).

An oracle takes the operands by name, float64 of shape (P, F), and returns the expected ones. Instructions whose results
are no function of that kind are in `ELSEWHERE`, with the file that tests them against their definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ELSEWHERE", "ORACLES"]

Array = NDArray[np.float64]
Values = dict[str, Any]


def _scan(v: Values) -> Values:
    state, out = np.zeros(v["data0"].shape[0]), np.empty_like(v["data0"])
    for f in range(out.shape[1]):
        state = v["data0"][:, f] * state + v["data1"][:, f]
        out[:, f] = state
    return {"dst": out}


def _shuffled(v: Values) -> Values:
    return {"dst": v["src"].copy()}  # rows 0 to 15 of the mask are the identity


def _gathered(v: Values) -> Values:
    return {"dst": np.take_along_axis(v["data"], v["indices"].astype(np.int64), axis=1)}


def _largest(v: Values) -> Values:
    return {"dst": np.sort(v["src"], axis=1)[:, :-9:-1]}


def _partly(v: Values) -> Values:
    return {"dst": np.where(v["predicate"] != 0, v["src"], v["dst"])}


def _between(v: Values) -> Values:
    f = np.arange(v["on_true_tile"].shape[1])
    kept = (f >= v["bound0"]) & (f < v["bound1"])
    return {"dst": np.where(kept, v["on_true_tile"], -3.4028235e38)}


def _diagonal(v: Values) -> Values:
    rows, columns = np.indices(v["on_true_tile"].shape)
    return {"dst": np.where(rows - columns == 0, v["on_true_tile"], 0.0)}


def _with_sum(function: Callable[[Array], Array]) -> Callable[[Values], Values]:
    def oracle(v: Values) -> Values:
        result = function(v["data"])
        return {"dst": result, "reduce_res": result.sum(1, keepdims=True)}

    return oracle


ORACLES: dict[str, Callable[[Values], Values]] = {
    "tensor_tensor": lambda v: {"dst": v["data1"] + v["data2"]},
    "tensor_copy": lambda v: {"dst": v["src"]},
    "memset": lambda v: {"dst": np.ones_like(v["dst"])},
    "dma_copy": lambda v: {"dst": v["src"]},
    "dma_transpose": lambda v: {"dst": v["src"].T},
    # The tile was written before, so accumulate=None adds to it.
    "nc_matmul": lambda v: {"dst": v["dst"] + v["stationary"].T @ v["moving"]},
    "nc_transpose": lambda v: {"dst": v["data"].T},
    "dma_compute": lambda v: {"dst": sum(v["srcs"])},
    "tensor_scalar_cumulative": lambda v: {"dst": np.cumsum(v["src"] + 1.0, axis=1)},
    "exponential": lambda v: {"dst": np.exp(v["src"])},
    "activate2": lambda v: {"dst": np.exp(v["data"] * 2.0 + 1.0)},
    "nc_stream_shuffle": _shuffled,
    "nc_n_gather": _gathered,
    "tensor_partition_reduce": lambda v: {"dst": v["data"].sum(0, keepdims=True)},
    "tensor_copy_predicated": _partly,
    "range_select": _between,
    "select_reduce": lambda v: {"dst": np.where(v["predicate"] != 0, v["on_true"], 0.0)},
    "iota": lambda v: {"dst": np.tile(np.arange(8.0), (4, 1))},
    "affine_select": _diagonal,
    "activation": lambda v: {"dst": np.exp(v["data"])},
    "activation_reduce": _with_sum(np.exp),
    "tensor_scalar": lambda v: {"dst": v["data"] + 1.0},
    "scalar_tensor_tensor": lambda v: {"dst": (v["data"] + 1.0) * v["operand1"]},
    "reciprocal": lambda v: {"dst": 1.0 / v["data"]},
    "tensor_reduce": lambda v: {"dst": v["data"].reshape(4, 4, 8).sum(2)},
    "tensor_scalar_reduce": _with_sum(lambda x: 2.0 * x),
    "tensor_tensor_scan": _scan,
    "max8": _largest,
}

_STATISTICS = "tests/isa/test_statistics.py"
_RANDOM = "tests/conformance/test_random_agree.py"
_GATHERS = "tests/conformance/test_gathers_agree.py"
_REGISTERS = "tests/trace/test_loops.py"
ELSEWHERE = {
    "bn_aggr": _STATISTICS,
    "bn_stats": _STATISTICS,
    "dropout": _RANDOM,
    "local_gather": _GATHERS,
    "nc_find_index8": _STATISTICS,
    "nc_match_replace8": _GATHERS,
    "nc_matmul_mx": "tests/conformance/test_mx_agree.py",
    "nonzero_with_count": _GATHERS,
    "quantize_mx": "tests/conformance/test_mx_agree.py",
    "rand2": _RANDOM,
    "rand_get_state": _RANDOM,
    "rand_set_state": _RANDOM,
    "rng": _RANDOM,
    "sequence_bounds": _GATHERS,
    "set_rng_seed": _RANDOM,
    "topk": _GATHERS,
    # What has no single call on one core.
    "core_barrier": "tests/cores/test_two_cores.py",
    "register_load": _REGISTERS,
    "register_move": _REGISTERS,
    "register_store": _REGISTERS,
    "sendrecv": "tests/cores/test_two_cores.py",
    "scalar_load": _REGISTERS,
    "scalar_store": _REGISTERS,
    "sendrecv_compute": "tests/cores/test_two_cores.py",
}
