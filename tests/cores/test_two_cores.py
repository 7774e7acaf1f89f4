"""Launches on two cores (language.md 5, isa.md 10.11, 10.12): identity, shared memory, exchange, deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.tiles import load
from tilelang.errors import TileDeadlockError, TileRuleError, TileTypeError, TileValueError, TileWarning

RUNS = [dict(mode="native", threads=n) for n in (1, 2, 3)] + [dict(mode="reference"), dict(mode="debug")]
X = np.random.default_rng(7).standard_normal((128, 64), dtype=np.float32)


def run(kernel: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The kernel on two cores in every mode, twice natively; all must agree to the bit."""
    launched = [tilelang.simulate(tilelang.jit(kernel)[2], **options, **choice) for choice in RUNS]
    results = [launch(*[a.copy() if isinstance(a, np.ndarray) else a for a in args]) for launch in launched]
    results.append(launched[0](*[a.copy() if isinstance(a, np.ndarray) else a for a in args]))
    first = [np.asarray(part) for part in (results[0] if isinstance(results[0], tuple) else (results[0],))]
    for other in results[1:]:
        parts = other if isinstance(other, tuple) else (other,)
        assert [p.tobytes() for p in parts] == [p.tobytes() for p in first]
    return results[0]


def test_each_core_knows_itself_and_writes_its_part() -> None:
    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        assert nl.num_programs() == 2 and nl.program_ndim() == 1 and core in (0, 1)
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(core + 1))
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    assert np.array_equal(run(kernel, X), np.stack([X, 2 * X]))


def test_private_memory_is_private() -> None:
    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm, name="scratch")
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(core))
        nisa.dma_copy(dst=mine, src=tile)
        nisa.core_barrier(data=out, cores=(0, 1))
        nisa.dma_copy(dst=out[core], src=mine)
        return out

    assert np.array_equal(run(kernel, X), np.stack([X, X + 1]))


@pytest.mark.parametrize("name", ["", "handed"])
def test_a_barrier_hands_shared_hbm_over(name: str) -> None:
    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        shared = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm, name=name)
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = load(x)
        for _ in range(3):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(core + 1))
            nisa.dma_copy(dst=shared[core], src=tile)
            nisa.core_barrier(data=shared, cores=(0, 1))
            nisa.dma_copy(dst=tile, src=shared[1 - core])
            nisa.core_barrier(data=shared, cores=[0, 1], engine=nisa.engine.vector)
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    values = [X, X]
    for _ in range(3):
        values = [values[1] + np.float32(2), values[0] + np.float32(1)]
    assert np.array_equal(run(kernel, X), np.stack(values))


def test_what_no_core_wrote_is_poisoned() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((3, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[nl.program_id(0)], src=load(x))
        return out

    result = run(kernel, X)
    assert np.array_equal(result[:2], np.stack([X, X])) and np.isnan(result[2]).all()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.uint8, np.int32])
def test_sendrecv_exchanges_snapshots(dtype: Any) -> None:
    x = np.arange(2 * 32 * 24).reshape(2, 32, 24).astype(dtype)

    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = load(x[core])
        nisa.sendrecv(src=tile, dst=tile, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    assert np.array_equal(run(kernel, x), x[::-1])


def test_sendrecv_of_strided_views_and_to_itself() -> None:
    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        out = nl.ndarray((2, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(1 + core))
        nisa.sendrecv(tile[32:64, 0:64:2], tile[64:96, 1:64:2], 1 - core, 1 - core, 3, nisa.dma_engine.gpsimd_dma)
        nisa.sendrecv(tile[0:32], tile[96:128], core, core, 4)
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    expected = [X.copy() * np.float32(c + 1) for c in (0, 1)]
    before = [e.copy() for e in expected]
    for core in (0, 1):
        expected[core][64:96, 1::2] = before[1 - core][32:64, ::2]
        expected[core][96:128] = before[core][0:32]
    assert np.array_equal(run(kernel, X), np.stack(expected))


@pytest.mark.parametrize(("op", "numpy"), [(nl.add, np.add), (nl.maximum, np.maximum), (nl.minimum, np.minimum)])
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.private_hbm])
def test_sendrecv_compute(op: Any, numpy: Any, buffer: Any) -> None:
    x = np.random.default_rng(1).standard_normal((2, 128, 32)).astype(ml_dtypes.bfloat16)

    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        source = nl.ndarray((128, 32), dtype=x.dtype, buffer=buffer)
        target = nl.ndarray((128, 32), dtype=x.dtype, buffer=buffer)
        nisa.dma_copy(dst=source, src=x[core])
        nisa.sendrecv_compute(source, target, 1 - core, 1 - core, op)
        nisa.dma_copy(dst=out[core], src=target)
        return out

    wide = x.astype(np.float32)
    expected = np.stack([numpy(wide[0], wide[1]), numpy(wide[1], wide[0])]).astype(ml_dtypes.bfloat16)
    assert np.array_equal(run(kernel, x), expected)


def test_meetings_inside_device_loops_and_dynamic_views() -> None:
    x = np.random.default_rng(2).standard_normal((2, 32, 4, 16), dtype=np.float32)

    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        out = nl.ndarray((2, 32, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = load(x[core].reshape((32, 64)))

        def body(i: Any) -> None:
            view = tile.ap([[64, 32], [1, 16]], scalar_offset=i * 16, indirect_dim=1)
            nisa.sendrecv(view, view, 1 - core, 1 - core, 0)

        nl.fori_loop(0, 4, body, 2)
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    expected = x.copy()
    expected[:, :, 0], expected[:, :, 2] = x[::-1, :, 0], x[::-1, :, 2]
    assert np.array_equal(run(kernel, x), expected.reshape(2, 32, 64))


def test_written_arguments_are_shared() -> None:
    def kernel(x: Any, out: Any) -> Any:
        core = nl.program_id(0)
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(core))
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    assert np.array_equal(run(kernel, X, np.zeros((2, 128, 64), np.float32)), np.stack([X, X + 1]))


@pytest.mark.parametrize("options", RUNS)
def test_deadlocks_say_who_waits_where(options: dict[str, Any]) -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = load(x)
        if nl.program_id(0) == 0:
            nisa.sendrecv(tile, tile, 1, 1, pipe_id=0)
        else:
            nisa.core_barrier(data=out, cores=(0, 1))
        nisa.dma_copy(dst=out, src=tile)
        return out

    with pytest.raises(TileDeadlockError) as caught:
        tilelang.simulate(tilelang.jit(kernel)[2], **options)(X)
    text = str(caught.value)
    assert "core 0 waits at sendrecv for core 1" in text and "core 1 waits at core_barrier for core 0" in text
    assert text.count("test_two_cores.py") == 2


@pytest.mark.parametrize("options", RUNS)
def test_a_core_that_ends_early_is_named(options: dict[str, Any]) -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.core_barrier(data=out, cores=(0, 1))
        nisa.dma_copy(dst=out, src=load(x))
        return out

    with pytest.raises(TileDeadlockError, match=r"core 0 waits at core_barrier for core 1 \(which has ended\)"):
        tilelang.simulate(tilelang.jit(kernel)[2], **options)(X)


@pytest.mark.parametrize("options", RUNS)
def test_calls_that_do_not_match_are_reported(options: dict[str, Any]) -> None:
    def kernel(x: Any, case: str) -> Any:
        core = nl.program_id(0)
        tile = load(x)
        part = tile[:, 0 : 32 + core] if case == "shape" else tile
        nisa.sendrecv(part, part, 1 - core, core if case == "ranks" else 1 - core, pipe_id=0)
        return x

    for case in ("shape", "ranks"):
        with pytest.raises(TileTypeError) as caught:
            tilelang.simulate(tilelang.jit(kernel)[2], **options)(X, case)
        assert caught.value.diagnostics[0].rule == "sendrecv.R5"
        assert "test_two_cores.py" in str(caught.value)


@pytest.mark.parametrize("options", RUNS)
def test_errors_of_one_core_end_the_launch(options: dict[str, Any]) -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.core_barrier(data=out, cores=(0, 1))
        if nl.program_id(0) == 1:
            raise KeyError("user's own")
        nisa.core_barrier(data=out, cores=(0, 1))
        return out

    with pytest.raises(KeyError, match="user's own"):
        tilelang.simulate(tilelang.jit(kernel)[2], **options)(X)


def test_cores_must_agree_on_shared_tensors_and_results() -> None:
    def shapes(x: Any) -> Any:
        nl.ndarray((2 + nl.program_id(0), 4), dtype=x.dtype, buffer=nl.shared_hbm, name="table")
        return x

    def returns(x: Any) -> Any:
        first = nl.ndarray((2, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        second = nl.ndarray((2, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        return second if nl.program_id(0) else first

    for kernel, message in ((shapes, "core 0 allocates .*2, 4.*core 1 .*3, 4"), (returns, "return different")):
        for mode in ("native", "debug"):
            with pytest.raises(TileTypeError, match=message):
                tilelang.simulate(tilelang.jit(kernel)[2], mode=mode)(X)


def test_one_core_barriers_are_nothing_and_exchanges_errors() -> None:
    def barrier(x: Any, cores: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=load(x))
        nisa.core_barrier(out, cores)
        return out

    for cores in ((0, 1), [0, 1], (0,), 0):
        for options in RUNS:
            assert np.array_equal(tilelang.simulate(barrier, **options)(X, cores), X)
    with pytest.raises(TileRuleError, match="core_barrier.R2"):
        tilelang.simulate(barrier)(X, (0, 2))

    def exchange(x: Any) -> Any:
        tile = load(x)
        nisa.sendrecv(tile, tile, 1, 1, 0)

    with pytest.raises(TileRuleError, match=r"sendrecv.R1.*two cores"):
        tilelang.simulate(exchange)(X)


def _send(**changes: Any) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        tile = nl.ndarray((128, 512), dtype=changes.get("dtype", nl.float32), buffer=changes.get("buffer", nl.sbuf))
        other = nl.ndarray((128, 512), dtype=changes.get("other", tile.dtype), buffer=nl.sbuf)
        columns = changes.get("columns", 256)
        nisa.sendrecv(
            tile[:, 0:columns],
            other[:, 0 : changes.get("received", columns)],
            changes.get("to", 1 - core),
            1 - core,
            0,
            changes.get("dma_engine", nisa.dma_engine.gpsimd_dma),
        )
        return x

    return kernel


@pytest.mark.parametrize(
    ("rule", "trips", "passes"),
    [
        ("GEN.R10", _send(), _send()),
        ("sendrecv.R2", _send(buffer=nl.psum), _send()),
        ("sendrecv.R2", _send(received=255), _send()),
        ("sendrecv.R2", _send(other=nl.bfloat16), _send()),
        ("sendrecv.R3", _send(to=2), _send()),
        ("sendrecv.R4", _send(columns=257), _send(columns=256)),
        ("sendrecv.R4", _send(dtype=nl.bfloat16, columns=257), _send(dtype=nl.bfloat16, columns=256)),
        ("sendrecv.R4", _send(dtype=nl.uint8, columns=257), _send(dtype=nl.uint8, columns=256)),
        ("sendrecv.R4", _send(columns=300), _send(columns=300, dma_engine=nisa.dma_engine.dma)),
    ],
)
def test_sendrecv_rules(rule: str, trips: Callable[..., Any], passes: Callable[..., Any]) -> None:
    launch = tilelang.jit(trips)[1 if rule == "GEN.R10" else 2]
    with pytest.raises(TileRuleError) as caught:
        tilelang.compile(launch, X, target="trn1" if rule == "GEN.R10" else "trn2")
    assert rule in {d.rule for d in caught.value.diagnostics}
    tilelang.compile(tilelang.jit(passes)[2], X)


def _compute(**changes: Any) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        core = nl.program_id(0)
        src = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        dst = nl.ndarray(
            changes.get("shape", (128, 8)), changes.get("dtype", nl.float32), changes.get("buffer", nl.sbuf)
        )
        nisa.sendrecv_compute(src, dst, changes.get("to", 1 - core), 1 - core, changes.get("op", nl.add))
        return x

    return kernel


@pytest.mark.parametrize(
    ("rule", "trips"),
    [
        ("R1", _compute(to=3)),
        ("R2", _compute(buffer=nl.private_hbm)),
        ("R3", _compute(op=nl.multiply)),
        ("R4", _compute(shape=(128, 9))),
        ("R4", _compute(dtype=nl.bfloat16)),
    ],
)
def test_sendrecv_compute_rules(rule: str, trips: Callable[..., Any]) -> None:
    with pytest.raises(TileRuleError) as caught:
        tilelang.compile(tilelang.jit(trips)[2], X)
    assert f"sendrecv_compute.{rule}" in {d.rule for d in caught.value.diagnostics}
    tilelang.compile(tilelang.jit(_compute())[2], X)
    with pytest.raises(TileRuleError, match=r"sendrecv_compute.R1"):
        tilelang.compile(_compute(), X)


def test_barrier_on_sbuf_warns() -> None:
    def kernel(x: Any) -> Any:
        nisa.core_barrier(load(x), (0, 1))
        return x

    with pytest.warns(TileWarning, match=r"core_barrier.R3"):
        tilelang.compile(tilelang.jit(kernel)[2], X)


def test_the_environment_sets_the_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((nl.num_programs(), 1), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=float(nl.program_id(0)))
        nisa.dma_copy(dst=out[nl.program_id(0) : nl.program_id(0) + 1], src=tile)
        return out

    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert tilelang.simulate(kernel)(X).ravel().tolist() == [0.0, 1.0]
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG")
    assert tilelang.simulate(kernel)(X).ravel().tolist() == [0.0]
    with pytest.raises(TileValueError, match="trn1"):
        tilelang.simulate(tilelang.jit(kernel)[2], target="trn1")(X)
