"""The same bits on AVX-512, AVX2 and bare x86-64: kernels of the library run in processes that compile for another
CPU.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Small kernels that use every engine: matmul in three formats, transposes, exp, reductions, casts, integers.
DIGEST = """
import hashlib, sys, warnings
import ml_dtypes, numpy as np
import tilelang, tilelang.nki
sys.path.insert(0, "kernels")
import activation, attention, int8, matmul, rmsnorm, softmax
import nki.language as nl
rng = np.random.default_rng(7)
def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)
bf16, fp8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3
results = [
    attention.attention_forward(normal(64, 130), normal(64, 130), normal(130, 64), True),
    attention.attention_forward(normal(64, 40, dtype=bf16), normal(64, 40, dtype=bf16), normal(40, 64, dtype=bf16)),
    matmul.matmul_blocked(normal(256, 128, dtype=fp8), normal(256, 512, dtype=fp8), nl.bfloat16, True),
    matmul.matmul_tiled(normal(70, 33), normal(70, 45)),
    softmax.softmax(normal(40, 300, dtype=bf16)),
    rmsnorm.rmsnorm(normal(40, 300), normal(1, 300)),
    activation.gelu(normal(40, 300)),
    activation.silu(normal(40, 300, dtype=np.float16)),
    *int8.quantize_rows(normal(40, 300)),
]
for array in results:
    print(hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest())
"""


def _digests(threads: int = 2, **cpu: str) -> list[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_CPU")}
    environment |= {"TILELANG_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT), **cpu}
    done = subprocess.run(
        [sys.executable, "-c", DIGEST], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names CPUs of x86-64")
@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
def test_same_bits_on_other_cpus(cpu: str) -> None:
    features = {"x86-64": "+sse2", "haswell": "+avx2,+fma"}[cpu]
    expected = _digests()
    assert len(expected) == 10
    assert _digests(NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features) == expected


def test_same_bits_on_one_and_four_threads() -> None:
    assert _digests(threads=1) == _digests(threads=4)
