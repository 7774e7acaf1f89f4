"""The kernel library: replay time, ratio to NumPy doing the same maths in float32, error."""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import KernelBenchmark, choose


class MatmulBf16(KernelBenchmark):
    """Fully blocked matmul in bfloat16 against NumPy's float32 product."""

    file, kernel = "matmul", "matmul_blocked"
    params = choose(["bf16 256x256x600"], ["bf16 1024"])

    def numpy(self, lhs_t: Any, rhs: Any, *static: Any) -> object:
        return lhs_t.T @ rhs


class MatmulFp8(MatmulBf16):
    """Double-row fp8."""

    params = choose(["fp8 double row 512x128x512"], ["fp8 double row 1024"])


class MatmulFp32(MatmulBf16):
    """float32."""

    params = choose(["fp32 256x128x512"], [])


class Attention(KernelBenchmark):
    """Fused attention of one head against unfused NumPy."""

    file, kernel = "attention", "attention_forward"
    params = choose(["bf16 d=64 S=200"], ["bf16 d=128 S=2048", "fp32 d=128 S=2048"])

    def numpy(self, q: Any, k: Any, v: Any, *static: Any) -> object:
        scores = (q.T @ k) * np.float32(1 / np.sqrt(q.shape[0]))
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores @ v


class Softmax(KernelBenchmark):
    """Softmax of rows."""

    file, kernel = "softmax", "softmax"
    params = choose(["fp32 ragged 200x300"], ["fp32 4096x2048"])

    def numpy(self, x: Any) -> object:
        powers = x - x.max(axis=1, keepdims=True)
        np.exp(powers, out=powers)
        powers /= powers.sum(axis=1, keepdims=True)
        return powers


class RmsNorm(KernelBenchmark):
    """RMSNorm of rows."""

    file, kernel = "rmsnorm", "rmsnorm"
    params = choose(["fp32 ragged 200x300"], ["fp32 4096x2048"])

    def numpy(self, x: Any, weight: Any, eps: float = 1e-6) -> object:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + np.float32(eps)) * weight


class Add(KernelBenchmark):
    """Addition: one pass over memory on either side."""

    file, kernel = "add", "add"
    params = choose(["fp32 ragged 130x70"], ["fp32 512x2048"])

    def numpy(self, a: Any, b: Any) -> object:
        return a + b


class Silu(KernelBenchmark):
    """SiLU."""

    file, kernel = "activation", "silu"
    params = choose(["fp32 ragged 130x70"], ["bf16 2048x2048"])

    def numpy(self, x: Any) -> object:
        return x / (np.float32(1) + np.exp(-x))


class Swiglu(Silu):
    """SwiGLU: two inputs."""

    kernel = "swiglu"

    def numpy(self, gate: Any, up: Any = None) -> object:  # the second array is always given
        return gate / (np.float32(1) + np.exp(-gate)) * up


class Gelu(Silu):
    """GELU; NumPy has no erf, so its side is the tanh form."""

    kernel = "gelu"

    def numpy(self, x: Any) -> object:
        inner = np.float32(0.7978846) * (x + np.float32(0.044715) * x * x * x)
        return np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))


class QuantizeRows(KernelBenchmark):
    """Per-row int8 quantisation."""

    file, kernel = "int8", "quantize_rows"
    params = choose(["fp32 ragged 130x70"], ["bf16 1024x2048"])

    def numpy(self, x: Any) -> object:
        scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
        return np.rint(x / scale).astype(np.int8), scale


class Int8Matmul(KernelBenchmark):
    """Exact int8 product; NumPy's side is the float32 product of the same values."""

    file, kernel = "int8", "int8_matmul"
    params = choose(["ragged 1300x40x70"], [])

    def numpy(self, lhs_t: Any, rhs: Any, *static: Any) -> object:
        return lhs_t.T @ rhs
