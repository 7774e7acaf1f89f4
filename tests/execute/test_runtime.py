"""Running programs: threads, capacity, several Python threads, fork, interrupts, precision, memory of the core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang import jit, simulate
from tilelang.errors import TileCapacityError, TileTypeError, TileValueError, TileWarning
from tilelang.execute.runtime import default_threads, machines

X = np.random.default_rng(7).standard_normal((128, 96)).astype(np.float32)
ROOT = Path(__file__).parents[2]


@jit
def chain(x: Any, steps: int = 3) -> Any:
    """Rows scaled, transposed blocks added: work for every thread, and barriers."""
    tile = nl.load(x)
    turned = nl.ndarray((32, 32), nl.float32)
    for _ in range(steps):
        nisa.nc_transpose(turned, tile[0:32, 0:32], engine=nisa.engine.vector)
        nisa.tensor_tensor(tile[0:32, 32:64], turned, tile[0:32, 0:32], op=nl.add)
        nisa.tensor_scalar(tile, tile, nl.multiply, 1.25)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def expected(x: Any, steps: int = 3) -> Any:
    tile = x.copy()
    for _ in range(steps):
        tile[:32, 32:64] = tile[:32, :32].T + tile[:32, :32]
        tile *= np.float32(1.25)
    return tile


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 16, 128])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    result = simulate(chain, threads=threads)(X)
    np.testing.assert_array_equal(result.view(np.uint32), expected(X).view(np.uint32))


def test_threads_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_NUM_THREADS", "3")
    assert default_threads() == 3
    np.testing.assert_array_equal(chain(X), expected(X))
    for wrong in ("0", "129", "two", "-1", "1.5"):
        monkeypatch.setenv("TILELANG_NUM_THREADS", wrong)
        with pytest.raises(TileValueError, match=f"TILELANG_NUM_THREADS='{wrong}'"):
            chain(X)
        simulate(chain, threads=2)(X)
    monkeypatch.delenv("TILELANG_NUM_THREADS")
    assert 1 <= default_threads() <= 128


def test_python_threads_share_the_core() -> None:
    """Calls of several Python threads, in all modes at once, wait for each other and mix nothing up."""
    kernels = [
        simulate(chain, mode=mode, threads=n)
        for mode, n in (("native", 2), ("native", 1), ("reference", None), ("debug", None))
    ]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(6):
                data = X + np.float32(number + step)
                np.testing.assert_array_equal(
                    kernels[(number + step) % 4](data, 1 + number % 3), expected(data, 1 + number % 3)
                )
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not failures and not any(worker.is_alive() for worker in workers)


def test_debug_mode_shows_contents_to_its_own_thread_only() -> None:
    inside, outside = threading.Event(), threading.Event()
    seen: list[Any] = []

    def debugged(x: Any) -> None:
        tile = nl.load(x)
        inside.set()
        assert outside.wait(30)
        seen.append(tile[0:1, 0:1].item())

    def traced(x: Any) -> None:
        assert inside.wait(30)
        try:
            nl.load(x)[0:1, 0:1].item()
        except TypeError as error:
            seen.append(str(error))
        finally:
            outside.set()

    worker = threading.Thread(target=lambda: simulate(debugged, mode="debug")(X))
    worker.start()
    simulate(traced)(X)
    worker.join(30)
    assert "does not exist while the kernel is traced" in seen[0] and seen[1] == X[0, 0]


def in_child(action: Any) -> int:
    """Exit code of a forked child that does `action`; -1 when it hangs."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if action() else 1)
        finally:
            os._exit(2)
    for _ in range(600):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork() -> None:
    kernel = simulate(chain, threads=2)
    kernel(X)
    assert (
        in_child(lambda: (kernel(X) == expected(X)).all() and (simulate(chain, threads=3)(X) == expected(X)).all()) == 0
    )
    np.testing.assert_array_equal(kernel(X), expected(X))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_runs() -> None:
    kernel = simulate(chain, threads=2)
    kernel(X)
    with machines(1)[0].lock:
        held = threading.Event()
        release = threading.Event()

        def hold() -> None:
            with machines(1)[0].lock:
                held.set()
                release.wait(30)

        other = threading.Thread(target=hold)
        other.start()
    assert held.wait(30)
    try:
        assert in_child(lambda: (kernel(X) == expected(X)).all()) == 0
    finally:
        release.set()
        other.join(30)


# -- interrupts --------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import signal, sys, time
import numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may have been started without it
import tilelang.isa as nisa, tilelang.language as nl
from tilelang import simulate

def endless(x, n):
    tile = nl.load(x)
    def body(i):
        nisa.tensor_scalar(tile, tile, nl.multiply, 1.0)
    nl.fori_loop(0, n, body)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out

x = np.ones((128, 2048), np.float32)
kernel = simulate(endless, threads=int(sys.argv[1]))
assert (kernel(x, 3) == x).all()
print("ready", flush=True)
start = time.monotonic()
try:
    kernel(x, 2**31 - 1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
else:
    sys.exit("the program ended")
assert (kernel(x, 3) == x).all()
print("usable", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
@pytest.mark.parametrize("threads", [1, 2])
def test_interrupts_leave_the_process_usable(threads: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(threads)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out == "interrupted\nusable\n" and process.returncode == 0, errors


# -- memory ------------------------------------------------------------------------------------------------------------


def tiles(count: int) -> Any:
    """A kernel with `count` tiles of 8 KiB per partition live at once."""

    def kernel(x: Any) -> Any:
        live = [nl.ndarray((128, 2048), nl.float32) for _ in range(count)]
        for number, tile in enumerate(live):
            nisa.memset(tile, float(number))
        for tile in live[1:]:
            nisa.tensor_tensor(live[0], live[0], tile, op=nl.add)
        out = nl.ndarray((128, 2048), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, live[0])
        return out

    return kernel


@pytest.mark.parametrize(
    ("target", "count", "fits"),
    [
        ("trn2", 25, True),
        ("trn2", 27, False),
        ("trn1", 21, True),
        ("trn1", 25, False),
        ("trn3", 29, True),
        ("trn3", 31, False),
    ],
)
def test_sbuf_capacity(target: str, count: int, fits: bool, recwarn: pytest.WarningsRecorder) -> None:
    result = simulate(tiles(count), target=target)(X)
    assert (result == sum(range(count))).all(), "what does not fit runs nevertheless"
    found = [str(w.message) for w in recwarn if w.category is TileWarning]
    assert len(found) == (0 if fits else 1)
    if not fits:
        assert f"{count * 8192} bytes per partition of SBUF are live at once; {target} has" in found[0]
        assert "allocated at" in found[0] and "test_runtime.py" in found[0]
        with pytest.raises(TileCapacityError, match="SBUF are live at once"):
            simulate(tiles(count), target=target, strict=True)(X)


@pytest.mark.parametrize(("count", "fits"), [(8, True), (9, False)])
def test_psum_capacity(count: int, fits: bool, recwarn: pytest.WarningsRecorder) -> None:
    def kernel(x: Any) -> Any:
        live = [nl.ndarray((128, 512), nl.float32, buffer=nl.psum) for _ in range(count)]
        for tile in live:
            nisa.memset(tile, 1.0)
        total = nl.zeros((128, 512), nl.float32)
        for tile in live:
            nisa.tensor_tensor(total, total, tile, op=nl.add)
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    assert (simulate(kernel)(X) == count).all()
    found = [str(w.message) for w in recwarn if w.category is TileWarning]
    assert len(found) == (0 if fits else 1)
    assert fits or f"{count * 2048} bytes per partition of PSUM are live at once; trn2 has 16384" in found[0]


def test_compile_reports_capacity() -> None:
    with pytest.warns(TileWarning, match="bytes per partition of SBUF"):
        tilelang.compile(tiles(27), X)


def test_memory_that_no_host_should_give_is_refused() -> None:
    def kernel(x: Any) -> None:
        nisa.memset(nl.ndarray((128, 2**24), nl.float32)[:, 0:4], 0.0)

    with pytest.raises(TileCapacityError, match="67108864 bytes per partition"):
        simulate(kernel)(X)


def test_tiles_reuse_memory_of_the_dead() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for _ in range(200):
            tile = nl.load(x)
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
            nl.store(out, tile)
        return out

    np.testing.assert_array_equal(simulate(kernel)(X), X + 1)
    assert tilelang.compile(kernel, X)._specialisation.codes[0].placement.width["sbuf"] <= 1024


def test_native_runs_check_what_they_are_given() -> None:
    """The last line of defence: arrays of other sizes never reach the engines."""
    specialisation = tilelang.compile(chain, X)._specialisation
    native, result = specialisation.native, specialisation.program.result.storage.index
    np.testing.assert_array_equal(native.run([X], 1)[result], expected(X))
    for wrong in (X[:64], X[:, ::2], np.asfortranarray(X), X.astype(np.float16)):
        with pytest.raises(TileTypeError, match="was traced, the argument is"):
            native.run([wrong], 1)
    with pytest.raises(ValueError, match="zip"):
        native.run([X, X], 1)


# -- precision ---------------------------------------------------------------------------------------------------------


def third(x: Any) -> Any:
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 1 / 3)
    nisa.tensor_scalar(tile, tile, nl.multiply, 3.0)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_precise_fp_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    low = X.astype(ml_dtypes.bfloat16)
    wide = low.astype(np.float32)
    exact = simulate(third)(low)
    assert exact.dtype == ml_dtypes.bfloat16
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    for mode in ("native", "reference", "debug"):
        high = simulate(third, mode=mode)(low)
        assert high.dtype == np.float32
        np.testing.assert_array_equal(high, (wide * np.float32(1 / 3)) * np.float32(3))
    np.testing.assert_array_equal(simulate(third, precision="exact")(low), exact)


def test_views_of_low_precision_are_refused_with_precision_high() -> None:
    def kernel(x: Any) -> Any:
        return x.view(nl.uint16)

    for mode in ("native", "reference", "debug"):
        with pytest.raises(NotImplementedError, match='precision="exact"'):
            simulate(kernel, mode=mode, precision="high")(X.astype(ml_dtypes.bfloat16))


def test_accumulators_start_at_zero_in_every_run() -> None:
    def kernel(x: Any) -> Any:
        tile, result = nl.load(x), nl.ndarray((128, 1), nl.float32)
        nisa.tensor_scalar_reduce(tile, tile, nl.add, 0.0, nl.add, result, reduce_cmd=nisa.reduce_cmd.reduce)
        out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    first = simulate(kernel)(X)
    np.testing.assert_array_equal(simulate(kernel)(X), first)
    np.testing.assert_array_equal(simulate(kernel, mode="reference")(X), first)
