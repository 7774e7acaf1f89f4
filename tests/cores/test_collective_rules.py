"""What collectives refuse (language.md 6.2, nki-0.7.md 2.7): rules, deadlocks, arguments."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.collectives as ncc
import tilelang.isa as nisa
import tilelang.language as nl
from tests.cores.test_collectives import MODES
from tests.tiles import load, store
from tilelang.errors import TileDeadlockError, TileError, TileRuleError, TileTypeError, TileValueError

# -- what is refused


@pytest.mark.parametrize("options", MODES)
def test_a_deadlock_names_the_ranks(options: dict[str, Any]) -> None:
    def kernel(x: Any, reduces: bool) -> Any:
        src, dst = load(x, nl.private_hbm), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
        if reduces:
            ncc.all_reduce([src], [dst], [[0, 1]], nl.add)
        return store(src)

    x = np.zeros((4, 4), np.float32)
    with pytest.raises(TileDeadlockError, match=r"rank 0 waits at all_reduce for rank 1 \(which has ended\)"):
        tilelang.launch(kernel, [(x, True), (x, False)], **options)


def test_ranks_that_do_not_run() -> None:
    def kernel(x: Any) -> Any:
        ncc.all_reduce([x], [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)], [[0, 1]], nl.add)
        return x

    x = np.zeros((4, 4), np.float32)
    for options in MODES:
        with pytest.raises(TileValueError, match=r"rank 1 is not running(.|\n)*tilelang\.launch"):
            tilelang.simulate(kernel, **options)(x)
        with pytest.raises(TileValueError, match="rank 2 is in no group"):
            tilelang.launch(kernel, [x] * 3, **options)


def _call(function: Callable[..., Any], shape: tuple[int, ...] = (4, 8), **arguments: Any) -> Callable[[Any], Any]:
    """A kernel with one collective on private HBM tensors; `src`, `dst`, … change what is passed."""

    def kernel(x: Any) -> Any:
        given = dict(arguments)
        make = given.pop("make", None) or {}
        source = dict(dtype=nl.float32, buffer=nl.private_hbm) | make.get("src", {})
        target = dict(dtype=nl.float32, buffer=nl.private_hbm) | make.get("dst", {})
        src = nl.ndarray(source.pop("shape", shape), **source)
        dst = nl.ndarray(target.pop("shape", shape), **target)
        copies = given.pop("copies", (1, 1))
        function([src] * copies[0], [dst] * copies[1], **given)
        return x

    return kernel


SBUF, PSUM = dict(buffer=nl.sbuf), dict(buffer=nl.psum)
ONE = [[0]]
GATHER = dict(replica_group=ONE, collective_dim=0)
REDUCE = dict(replica_group=ONE, op=nl.add)
SCATTER = dict(replica_group=ONE, collective_dim=0, op=nl.add)
PERMUTE = dict(source_target_pairs=[(0, 0)])
TWO = [[0, 1]]
# function, rule, arguments that trip it, arguments that just do not
RULES: list[tuple[Any, str, dict[str, Any], dict[str, Any]]] = [
    (ncc.all_reduce, "all_reduce.R1", dict(REDUCE, copies=(2, 1)), REDUCE),
    (ncc.all_reduce, "all_reduce.R2", dict(REDUCE, make=dict(src=SBUF)), dict(REDUCE, make=dict(src=SBUF, dst=SBUF))),
    (ncc.all_reduce, "all_reduce.R2", dict(REDUCE, make=dict(src=PSUM, dst=PSUM)), REDUCE),
    (ncc.all_reduce, "all_reduce.R3", dict(REDUCE, make=dict(dst=dict(dtype=nl.bfloat16))), REDUCE),
    (ncc.all_reduce, "all_reduce.R4", dict(REDUCE, make=dict(dst=dict(shape=(8, 4)))), REDUCE),
    (
        ncc.all_reduce,
        "all_reduce.R6",
        dict(REDUCE, make=dict(src=SBUF, dst=SBUF), copies=(2, 2)),
        dict(REDUCE, copies=(2, 2)),
    ),
    (ncc.all_reduce, "all_reduce.R7", dict(op=nl.add, replica_group=[[0], [1, 2]]), REDUCE),
    (ncc.all_reduce, "all_reduce.R10", dict(replica_group=ONE, op=nl.multiply), REDUCE),
    (ncc.all_gather, "all_gather.R1", dict(GATHER, copies=(1, 2)), GATHER),
    (ncc.all_gather, "all_gather.R2", dict(GATHER, make=dict(dst=SBUF)), GATHER),
    (ncc.all_gather, "all_gather.R3", dict(GATHER, make=dict(dst=dict(dtype=nl.bfloat16))), GATHER),
    (ncc.all_gather, "all_gather.R4", dict(GATHER, replica_group=TWO), GATHER),
    (
        ncc.all_gather,
        "all_gather.R5",
        dict(GATHER, collective_dim=1),
        dict(GATHER, collective_dim=1, make=dict(src=SBUF, dst=SBUF)),
    ),
    (ncc.all_gather, "all_gather.R6", dict(GATHER, make=dict(src=SBUF, dst=SBUF), copies=(2, 2)), GATHER),
    (ncc.all_gather, "all_gather.R7", dict(GATHER, replica_group=[[0], [1, 2]]), GATHER),
    (
        ncc.all_gather,
        "all_gather.R10",
        dict(GATHER, shape=(4, 2, 2), make=dict(src=SBUF, dst=SBUF)),
        dict(GATHER, shape=(4, 2, 2)),
    ),
    (ncc.reduce_scatter, "reduce_scatter.R1", dict(SCATTER, copies=(1, 2)), SCATTER),
    (ncc.reduce_scatter, "reduce_scatter.R2", dict(SCATTER, make=dict(dst=SBUF)), SCATTER),
    (ncc.reduce_scatter, "reduce_scatter.R3", dict(SCATTER, make=dict(dst=dict(dtype=nl.bfloat16))), SCATTER),
    (ncc.reduce_scatter, "reduce_scatter.R4", dict(SCATTER, replica_group=TWO), SCATTER),
    (ncc.reduce_scatter, "reduce_scatter.R5", dict(SCATTER, collective_dim=1), SCATTER),
    (ncc.reduce_scatter, "reduce_scatter.R6", dict(SCATTER, make=dict(src=SBUF, dst=SBUF), copies=(2, 2)), SCATTER),
    (ncc.reduce_scatter, "reduce_scatter.R7", dict(SCATTER, replica_group=[[0], [1, 2]]), SCATTER),
    (ncc.reduce_scatter, "reduce_scatter.R10", dict(SCATTER, op=nl.multiply), SCATTER),
    (ncc.reduce_scatter, "reduce_scatter.R11", dict(SCATTER, replica_group=[[0, 1, 2]]), SCATTER),
    (ncc.all_to_all, "all_to_all.R1", dict(GATHER, copies=(1, 2)), GATHER),
    (ncc.all_to_all, "all_to_all.R2", dict(GATHER, make=dict(src=SBUF, dst=SBUF)), GATHER),
    (ncc.all_to_all, "all_to_all.R3", dict(GATHER, make=dict(dst=dict(dtype=nl.bfloat16))), GATHER),
    (ncc.all_to_all, "all_to_all.R4", dict(GATHER, make=dict(dst=dict(shape=(8, 4)))), GATHER),
    (ncc.all_to_all, "all_to_all.R5", dict(GATHER, collective_dim=1), GATHER),
    (ncc.all_to_all, "all_to_all.R6", dict(GATHER, make=dict(src=SBUF, dst=SBUF), copies=(2, 2)), GATHER),
    (ncc.all_to_all, "all_to_all.R7", dict(GATHER, replica_group=[[0], [1, 2]]), GATHER),
    (ncc.all_to_all, "all_to_all.R11", dict(GATHER, replica_group=[[0, 1, 2]]), dict(GATHER, replica_group=TWO)),
    (ncc.collective_permute, "collective_permute.R1", dict(PERMUTE, copies=(1, 2)), PERMUTE),
    (ncc.collective_permute, "collective_permute.R2", dict(PERMUTE, make=dict(src=SBUF, dst=SBUF)), PERMUTE),
    (ncc.collective_permute, "collective_permute.R3", dict(PERMUTE, make=dict(dst=dict(dtype=nl.bfloat16))), PERMUTE),
    (ncc.collective_permute, "collective_permute.R4", dict(PERMUTE, make=dict(dst=dict(shape=(8, 4)))), PERMUTE),
    (ncc.collective_permute, "collective_permute.R5", dict(PERMUTE, copies=(2, 2)), PERMUTE),
]


@pytest.mark.parametrize("row", RULES, ids=lambda row: row[1])
def test_rules(row: tuple[Any, str, dict[str, Any], dict[str, Any]]) -> None:
    function, rule, trips, passes = row
    x = np.zeros((1, 1), np.float32)
    with pytest.raises(TileRuleError) as caught:
        tilelang.compile(_call(function, **trips), x, mode="reference")
    assert rule in {d.rule for d in caught.value.diagnostics}
    tilelang.compile(_call(function, **passes), x, mode="reference")


def _ring(srcs: Any, dsts: Any, **options: Any) -> None:
    ncc.collective_permute_implicit([[s] for s in srcs], [[d] for d in dsts], options["replica_group"])


RING = dict(replica_group=ONE)


@pytest.mark.parametrize(
    ("rule", "trips"),
    [
        ("permute_reduce.R2", dict(RING, make=dict(src=SBUF, dst=SBUF))),
        ("permute_reduce.R3", dict(RING, make=dict(dst=dict(dtype=nl.bfloat16)))),
        ("permute_reduce.R4", dict(RING, make=dict(dst=dict(shape=(8, 4))))),
        ("permute_reduce.R7", dict(replica_group=[[0], [1, 2]])),
    ],
)
def test_ring_rules(rule: str, trips: dict[str, Any]) -> None:
    x = np.zeros((1, 1), np.float32)
    with pytest.raises(TileRuleError) as caught:
        tilelang.compile(_call(_ring, **trips), x, mode="reference")
    assert rule in {d.rule for d in caught.value.diagnostics}
    tilelang.compile(_call(_ring, **RING), x, mode="reference")


def _v(**changes: Any) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        src = nl.ndarray((8,), dtype=nl.float32, buffer=nl.private_hbm)
        dst = nl.ndarray(
            changes.get("dst", (8,)), changes.get("dtype", nl.float32), changes.get("buffer", nl.private_hbm)
        )
        table = nl.ndarray(changes.get("table", (3, 2)), dtype=changes.get("counts", nl.uint32), buffer=nl.private_hbm)
        function = ncc.all_gather_v if changes.get("gathers") else ncc.all_to_all_v
        function([src] * changes.get("many", 1), [dst], [[0, 1]], table, has_rdispls=changes.get("displaced", False))
        return x

    return kernel


@pytest.mark.parametrize(
    ("rule", "trips", "passes"),
    [
        ("R1", _v(many=2), _v()),
        ("R2", _v(dst=(8, 1), buffer=nl.sbuf), _v()),
        ("R3", _v(dtype=nl.bfloat16), _v()),
        ("R4", _v(table=(4, 2)), _v(table=(4, 2), displaced=True)),
        ("R4", _v(counts=nl.int32), _v()),
        ("R5", _v(dst=(9,)), _v(dst=(10,))),
        ("R6", _v(gathers=True, table=(4, 2), displaced=True), _v(gathers=True)),
    ],
)
def test_variable_length_rules(rule: str, trips: Callable[..., Any], passes: Callable[..., Any]) -> None:
    x = np.zeros((1, 1), np.float32)
    with pytest.raises(TileRuleError) as caught:
        tilelang.compile(trips, x, mode="reference")
    assert f"exchange_v.{rule}" in {d.rule for d in caught.value.diagnostics}
    tilelang.compile(passes, x, mode="reference")


def test_values_of_groups_pairs_and_channels() -> None:
    for wrong in ([[0, 1], [1]], [[-1]]):
        with pytest.raises(TileValueError, match="overlap"):
            ncc.ReplicaGroup(wrong)
    for wrong in ([0, 1], [], [[]], [["a"]], 3):
        with pytest.raises(TileTypeError):
            ncc.ReplicaGroup(wrong)
    assert ncc.ReplicaGroup(((0,), (1,))).groups == ((0,), (1,)) == ncc.ReplicaGroup(replica_groups=[[0], [1]]).groups
    x = np.zeros((4, 8), np.float32)

    def permute(x: Any) -> Any:
        ncc.collective_permute([x], [x], [(0, 1), (0, 2)])

    def channels(x: Any) -> Any:
        ncc.collective_permute_implicit([[x]], [[x]], ONE, channel_ids=[1])

    def flat(x: Any) -> Any:
        ncc.collective_permute_implicit([x], [x], ONE)

    for kernel, error in ((permute, "occurs once"), (channels, "count from 0"), (flat, "one list of one tensor")):
        with pytest.raises(TileError, match=error):
            tilelang.simulate(kernel)(x)


def test_prepare_and_trigger_pair_up() -> None:
    def kernel(x: Any, case: str) -> Any:
        table = nl.ndarray((3, 1), dtype=nl.uint32, buffer=nl.private_hbm)
        arguments = ([x], [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)], ONE, table)
        handle = ncc.all_to_all_v_prepare(*arguments)
        if case == "twice":
            ncc.all_gather_v_prepare(*arguments)
        if case == "other":
            ncc.all_gather_v_trigger(handle)
        if case != "open":
            ncc.all_to_all_v_trigger(handle)
        if case == "again":
            ncc.all_to_all_v_trigger(handle)
        return x

    x = np.zeros(4, np.float32)
    tilelang.compile(kernel, x, "fine", mode="reference")
    for case in ("twice", "other", "open", "again"):
        with pytest.raises(TileTypeError) as caught:
            tilelang.compile(kernel, x, case, mode="reference")
        assert caught.value.diagnostics[0].rule == "ccv.R3"


def test_launch_arguments() -> None:
    def kernel(x: Any, scale: float = 2.0) -> Any:
        tile = load(x, nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
        return store(tile)

    x = np.ones((2, 2), np.float32)
    results = tilelang.launch(kernel, [x, (x,), [x, 3.0], dict(x=x, scale=4.0)])
    assert [float(r[0, 0]) for r in results] == [2.0, 2.0, 3.0, 4.0]
    for wrong in ([], x, None):
        with pytest.raises(TileTypeError, match="arguments of each rank"):
            tilelang.launch(kernel, wrong)


def test_importable_by_its_public_name() -> None:
    import_module("tilelang.nki")
    found = import_module("nki.collectives")
    assert found is ncc and import_module("nki").collectives is ncc


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("what", ["shape", "dtype", "dim"])
def test_ranks_that_disagree_are_named(options: dict[str, Any], what: str) -> None:
    def kernel(x: Any, dim: int) -> Any:
        src = load(x)
        dst = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        if what == "dim":
            shape = (2 * x.shape[0], x.shape[1]) if dim == 0 else (x.shape[0], 2 * x.shape[1])
            ncc.all_gather([src], [nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)], [[0, 1]], dim)
        else:
            ncc.all_reduce([src], [dst], [[0, 1]], nl.add)
        return store(src)

    x = np.zeros((4, 8), np.float32)
    other = {"shape": x[:1].copy(), "dtype": x.astype(np.int32), "dim": x}[what]
    with pytest.raises(TileTypeError, match="rank 0, core 0 has .* rank 1, core 0 ") as caught:
        tilelang.launch(kernel, [(x, 0), (other, int(what == "dim"))], **options)
    assert caught.value.diagnostics[0].rule == "ncc.R12" and "test_collective_rules.py" in str(caught.value)


@pytest.mark.parametrize("options", MODES)
def test_each_rank_writes_memory_of_its_own(options: dict[str, Any]) -> None:
    """One array given to two ranks: a rank reads it as it was, whatever the other has written."""

    def kernel(x: Any, amount: float) -> Any:
        before = store(x)
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=amount)
        nisa.dma_copy(dst=x, src=tile)
        return before

    x = np.ones((4, 8), np.float32)
    assert all((result == 1).all() for result in tilelang.launch(kernel, [(x, 1.0), (x, 2.0)], **options))
    assert (x == 3).all(), "the last rank's"


def test_empty_lists_are_refused() -> None:
    with pytest.raises(TileTypeError, match="all_reduce: srcs: expected at least one tensor"):
        tilelang.compile(_call(ncc.all_reduce, copies=(0, 0), **REDUCE), np.zeros((1, 1), np.float32))
