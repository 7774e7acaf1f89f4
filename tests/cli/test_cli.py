"""The command line: cases, scripts, errors and exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilelang.cases import cases_of, load_module, max_ulp, random_array, relative_error, run_case
from tilelang.errors import TileError, TileValueError

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=FACTOR)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
CASES = """
TILELANG_CASES = {
    "double": [
        {
            "label": "small",
            "args": lambda rng: (rng.standard_normal((128, 16)).astype(np.float32),),
            "reference": lambda x: 2.0 * x.astype(np.float64),
            "tolerance": 0.0,
            "targets": ("trn2",),
        }
    ]
}
"""


def tilelang(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "tilelang", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def kernel_file(folder: Path, factor: str, *, cases: bool = True) -> Path:
    path = folder / "twice.py"
    path.write_text(KERNEL.replace("FACTOR", factor) + (CASES if cases else ""))
    return path


def test_cases_within_tolerance(tmp_path: Path) -> None:
    done = tilelang("run", str(kernel_file(tmp_path, "2.0")))
    assert done.returncode == 0, done.stderr
    assert "double: small" in done.stdout and "ok" in done.stdout and "128x16" in done.stdout and "trn2" in done.stdout


@pytest.mark.parametrize("mode", ["native", "reference", "debug"])
def test_a_missed_tolerance_fails(tmp_path: Path, mode: str) -> None:
    done = tilelang("run", str(kernel_file(tmp_path, "2.5")), "--mode", mode)
    assert done.returncode == 1
    assert "FAILED" in done.stdout and "1 of 1 cases miss their tolerance" in done.stderr


def test_a_broken_rule_shows_the_diagnostic_only(tmp_path: Path) -> None:
    done = tilelang("run", str(kernel_file(tmp_path, "tile[:, 0:2]")))
    assert done.returncode == 1
    assert "tensor_scalar.R2" in done.stderr and "hint:" not in done.stderr.splitlines()[0]
    assert "twice.py:13" in done.stderr and "Traceback" not in done.stderr


def test_random_inputs_and_the_program_as_text(tmp_path: Path) -> None:
    path = kernel_file(tmp_path, "2.0", cases=False)
    done = tilelang("run", f"{path}:double", "--shape", "64x32:bf16")
    assert done.returncode == 0, done.stderr
    assert "result bfloat16[64, 32]" in done.stdout
    shown = tilelang("show", f"{path}:double", "--shape", "64x32:bf16", "--target", "trn3")
    assert shown.returncode == 0, shown.stderr
    assert "vector.tensor_scalar(" in shown.stdout and "target=trn3" in shown.stdout


def test_scripts_run_with_their_arguments(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        KERNEL.replace("FACTOR", "2.0") + "import sys\nprint(sys.argv[1:], double(np.ones((2, 3), np.float32)).sum())\n"
    )
    done = tilelang("run", str(script), "alpha", "7")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['alpha', '7'] 12.0\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "absent.py"], "no such file"),
        (["run", "kernels/softmax.py", "--target", "trn9"], "trn9"),
        (["run", "kernels/softmax.py", "--mode", "eager"], "native, reference, debug"),
        (["show", "kernels/softmax.py"], "--shape"),
    ],
)
def test_bad_usage(arguments: list[str], text: str) -> None:
    done = tilelang(*arguments)
    assert done.returncode == 2
    assert text in done.stderr and "Traceback" not in done.stderr


def test_files_that_are_no_source(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(bytes(range(256)))
    for path, text in ((tmp_path, "directory"), (tmp_path / "binary.py", "no Python source")):
        done = tilelang("run", str(path))
        assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


def test_a_script_that_calls_none_of_its_kernels_says_so(tmp_path: Path) -> None:
    path = kernel_file(tmp_path, "2.0", cases=False)
    done = tilelang("run", str(path))
    assert done.returncode == 0
    assert "called no kernel" in done.stderr and "twice.py:double --shape" in done.stderr


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("3", "must map names of kernels to lists of cases"),
        ("{'double': 3}", "must map names of kernels to lists of cases"),
        ("{'absent': []}", "has no such kernel"),
        ("{3: []}", "has no such kernel"),
        ("{'double': [3]}", "is int, not a dict"),
        ("{'double': [{}]}", "lacks 'args'"),
        ("{'double': [dict(CASE, oops=1)]}", "unknown key 'oops'"),
        ("{'double': [dict(CASE, args=3)]}", "args is 3, not a function"),
        ("{'double': [dict(CASE, args=lambda rng: 3)]}", "gives int, not a tuple"),
        ("{'double': [dict(CASE, tolerance='a')]}", "tolerance is 'a'"),
        ("{'double': [dict(CASE, tolerance=float('nan'))]}", "tolerance is nan"),
        ("{'double': [dict(CASE, targets='trn2')]}", "not a tuple of devices"),
        ("{'double': [dict(CASE, targets=('trn9',))]}", "trn9"),
    ],
)
def test_broken_case_tables(tmp_path: Path, table: str, text: str) -> None:
    path = kernel_file(tmp_path, "2.0")
    source = (
        path.read_text().replace("import nki\n", "import tilelang as nki\n").replace("import nki.", "import tilelang.")
    )
    path.write_text(source + f"\nCASE = TILELANG_CASES['double'][0]\nTILELANG_CASES = {table}\n")
    sys.modules.pop("twice", None)
    with pytest.raises(TileError, match=re.escape(text)):
        for case in cases_of(load_module(path)):
            run_case(case, target="trn2")


def test_devices_and_version() -> None:
    assert "usable, bytes" in tilelang("devices").stdout
    assert tilelang("--version").stdout.startswith("tilelang ")


def test_random_arrays() -> None:
    rng = np.random.default_rng(0)
    assert random_array("4x5:bf16", rng).dtype.name == "bfloat16"
    assert random_array("4", rng).shape == (4,) and random_array("3x2:int8", rng).dtype == np.int8
    with pytest.raises(TileValueError, match="128x512"):
        random_array("4xx", rng)


def test_errors_are_measured_in_the_result_format() -> None:
    reference = np.array([1.0, 2.0, 4.0])
    assert max_ulp((reference * (1 + 2.0**-23)).astype(np.float32), reference) == 1.0
    assert max_ulp(np.array([3, 5], np.int8), np.array([3.0, 7.0])) == 2.0
    assert relative_error(np.array([1.0, 2.0, 5.0]), reference) == 0.25
    assert relative_error(np.array([np.nan, 2.0, 4.0]), reference) == float("inf")
