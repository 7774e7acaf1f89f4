"""Compilation, the disk cache, portability of the bits, and the guards of the record builder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.execute.vector_engine import F32, read, run, sample, write
from tilelang.execute import layout
from tilelang.execute.engines import address, addresses, engine_address, objects, registry

ROOT = Path(__file__).parents[2]

# Runs a chain over every kind of micro-op and prints a digest of all results.
CHAIN = """
import hashlib
import numpy as np
from tests.execute.vector_engine import read, run, sample, tile, write
from tilelang.execute import layout
digest = hashlib.sha256()
rng = np.random.default_rng(0)
x, y = sample(rng, (33, 270), 0.05), sample(rng, (33, 270), 0.05)
small = np.clip(np.nan_to_num(x), -3, 3)
for name in ("bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int8", "uint32"):
    out, back = tile(33, (270,), name), np.zeros_like(x)
    run([*read(0, x, "float32"), *write(0, out, name)], 33, 270)
    run([*read(0, out, name), *write(0, back, "float32")], 33, 270)
    digest.update(back.tobytes())
for steps in (
    [layout.uop("binary.power.tt", 2, 0, 1)],
    [layout.uop("binary.maximum.tt", 2, 0, 1)],
    [layout.uop("activation.exp", 2, 0)],
    [layout.uop("activation.gelu", 2, 0)],
    [layout.uop("activation.rsqrt", 2, 0)],
    [layout.scalar(3, 1.7), layout.scalar(4, -0.3), layout.uop("fma.vv", 2, 0, 3, 4)],
    [layout.scalar(3, 0.0), layout.scan("multiply", "add", 2, 0, 1, 3)],
):
    out = np.zeros_like(x)
    run([*read(0, small, "float32"), *read(1, y, "float32"), *steps, *write(2, out, "float32")], 33, 270)
    digest.update(out.tobytes())
for op in ("add", "maximum"):
    out = np.zeros((33, 1), np.float32)
    steps, segment = layout.reduction(op, 1, 0, 2, 270, 270, 0)
    run([*read(0, small, "float32"), *steps, *write(1, out, "float32")], 33, 270, segment=segment)
    digest.update(out.tobytes())
print(digest.hexdigest())
"""


def python(code: str, **environment: str) -> str:
    """The output of a fresh interpreter."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_bits_do_not_depend_on_the_cpu() -> None:
    """Compiled for a plain x86-64 (no AVX, no FMA) and for this machine."""
    if not os.uname().machine.startswith("x86"):
        pytest.skip("the baseline build is an x86-64 one")
    here = python(CHAIN)
    assert len(here) == 64
    assert python(CHAIN, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="") == here
    assert python(CHAIN, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES="+avx2,+fma") == here


def test_a_warm_process_needs_no_numba(tmp_path: Path) -> None:
    code = """
        import sys
        from tilelang.execute.engines import address, on_compile
        on_compile(lambda name, done, total: print(name))
        address("unary.abs"), address("view")
        print("numba" in sys.modules)
    """
    assert python(code, TILELANG_CACHE_DIR=str(tmp_path)).split() == ["unary.abs", "view", "True"]
    assert python(code, TILELANG_CACHE_DIR=str(tmp_path)).split() == ["False"]
    # Another CPU, another directory.
    assert python(code, TILELANG_CACHE_DIR=str(tmp_path), NUMBA_CPU_NAME="x86-64").split()[-1] == "True"
    assert len(list(tmp_path.glob("*/*"))) == 2


def test_compilations_are_announced_with_their_number(tmp_path: Path) -> None:
    code = """
        from tilelang.execute.engines import addresses, on_compile
        stop = on_compile(lambda name, done, total: print(name, done, total))
        addresses(["view", "resize", "view"])
        stop()
        addresses(["emit"])
    """
    assert python(code, TILELANG_CACHE_DIR=str(tmp_path)).splitlines() == ["view 0 2", "resize 1 2"]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(objects, "cache_directory", lambda: tmp_path)
    return tmp_path


def test_a_damaged_object_is_not_linked(own_cache: Path) -> None:
    body = b"object file"
    objects.write_object("x.y", body)
    assert objects.read_object("x.y") == body
    file = own_cache / "x.y.o"
    file.write_bytes(file.read_bytes()[:-1])
    assert objects.read_object("x.y") is None
    file.write_bytes(b"")
    assert objects.read_object("x.y") is None
    assert [path.name for path in own_cache.iterdir()] == ["x.y.o"]


def test_a_new_cache_removes_stale_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale, recent = tmp_path / "stale", tmp_path / "recent"
    for directory in (stale, recent):
        directory.mkdir()
        (directory / "x.o").write_bytes(b"")
    os.utime(stale, (0, 0))
    monkeypatch.setattr(objects, "cache_directory", lambda: tmp_path / "new")
    objects.write_object("x", b"body")
    assert {path.name for path in tmp_path.iterdir()} == {"new", "recent"}


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(objects, "cache_directory", lambda: tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="TILELANG_CACHE_DIR"):
        objects.write_object("x", b"")


def test_unknown_functions_are_named() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        address("nonsense.add")
    with pytest.raises(KeyError):
        address("binary.nonsense.tt")


def test_addresses_are_stable() -> None:
    found = addresses(["pipeline", "view"])
    assert found == {"pipeline": engine_address("pipeline"), "view": address("view")}
    assert len(set(found.values())) == 2


def test_every_family_has_a_module() -> None:
    package = Path(registry.__file__).parent
    assert {path.stem for path in package.glob("*.py")} >= set(registry._MODULES.values())


def test_operands_merge_dims() -> None:
    words = layout.operand(2, 2, 999, [(3, 80), (1, 7), (4, 20), (10, 2)], 64)
    assert words == [64, 2, 999, 1, 1, 1, 1, 120, 0, 0, 0, 2]
    assert layout.is_contiguous(words, 2)
    words = layout.operand(2, 2, 999, [(3, 100), (10, 2)])
    assert words == [0, 2, 999, 2, 1, 1, 3, 10, 0, 0, 100, 2]
    assert not layout.is_contiguous(words, 2)
    assert layout.operand(0, 4, 8, [])[3:] == [1, 1, 1, 1, 1, 0, 0, 0, 4]
    with pytest.raises(ValueError, match="at most 4"):
        layout.operand(0, 4, 8, [(2, 1000), (2, 300), (2, 90), (2, 20), (2, 8)])


def test_column_registers_have_one_purpose() -> None:
    with pytest.raises(ValueError, match="register 3 is filled twice"):
        layout.pipeline([layout.scalar(3, 1.0), layout.scalar(3, 2.0)], 1, 0, 1)
    with pytest.raises(ValueError, match=r"registers \[3\]"):
        layout.pipeline([layout.scalar(3, 1.0), layout.uop("unary.abs", 3, 0)], 1, 0, 1)
    layout.pipeline([layout.scalar(3, 1.0), layout.accumulate("add", 3, 0)], 1, 0, 1)


def test_limits_of_a_record() -> None:
    widest = layout.MAX_WHOLE_ROW_BYTES // 4
    layout.pipeline([], 1, 0, widest, block=layout.WHOLE_ROW)
    with pytest.raises(ValueError, match=f"{widest} columns"):
        layout.pipeline([], 1, 0, widest + 1, block=layout.WHOLE_ROW)
    with pytest.raises(ValueError, match="item=8"):
        layout.pipeline([layout.fill(0, 8, 1)], 1, 0, 1)
    uops, segment = layout.reduction("add", 1, 0, 2, 300, 600, 0)
    with pytest.raises(ValueError, match="WHOLE_ROW"):
        layout.pipeline(uops, 1, 0, 600, block=layout.WHOLE_ROW, segment=segment)


def test_the_widest_whole_row_fits_in_scratch() -> None:
    columns = layout.MAX_WHOLE_ROW_BYTES // 4
    x = sample(np.random.default_rng(1), (2, columns), 0.0)
    out = np.zeros_like(x)
    chain = [uop for k in range(8) for uop in [layout.uop("unary.negative", k + 1, k)]]
    run([*read(0, x, "float32"), *chain, *write(8, out, "float32")], 2, columns, block=layout.WHOLE_ROW)
    assert np.array_equal(out, x)


def test_whole_row_reduction_of_segments() -> None:
    x = np.random.default_rng(2).standard_normal((5, 3, 300)).astype(F32)
    out = np.zeros((5, 3), F32)
    uops, segment = layout.reduction("maximum", 1, 0, 2, 300, 900, None, block=layout.WHOLE_ROW)
    run(
        [*read(0, x, "float32"), *uops, *write(1, out, "float32")],
        5,
        900,
        block=layout.WHOLE_ROW,
        segment=segment,
    )
    assert np.array_equal(out, x.max(2))


def test_object_files_are_reproducible(tmp_path: Path) -> None:
    """Two processes with caches of their own make the same machine code."""
    code = """
        from tilelang.execute.engines import address, objects
        address("binary.add.tt")
        print(objects.read_object("binary.add.tt").hex())
    """
    first, second = (python(code, TILELANG_CACHE_DIR=str(tmp_path / part)) for part in ("a", "b"))
    assert hashlib.sha256(first.encode()).digest() == hashlib.sha256(second.encode()).digest()


def test_concurrent_first_use(tmp_path: Path) -> None:
    code = """
        import threading
        from tilelang.execute.engines import address
        found = []
        threads = [threading.Thread(target=lambda: found.append(address("resize"))) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(found), len(set(found)))
    """
    assert python(code, TILELANG_CACHE_DIR=str(tmp_path)) == "8 1"


def test_no_warning_from_a_writable_cache(own_cache: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objects.write_object("a", b"b")
