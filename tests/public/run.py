"""Runs public tutorial kernels, unmodified, from checkouts that the caller names; not part of the test tiers.

    python -m tests.public.run --samples DIR --ports DIR

DIR of `--samples` is a checkout of aws-neuron/nki-samples (all tutorials; a contributed matmul), DIR of
`--ports` one of varuntej07/aws-nki (the same, tensor addition, transpose, attention v1 to v8a). Prints one line a
kernel: its largest error relative to the largest value of a float64 NumPy reference.
Exit code 1 when one fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

TUTORIALS = Path("src/nki_samples/tutorials")
Check = tuple[str, Callable[[], Any], Callable[[], Any], float]


def load(path: Path) -> ModuleType:
    """The kernel file at `path`, its folder importable."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"public_{abs(hash(path))}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def matmuls(root: Path) -> Iterator[Check]:
    """The five versions of the matrix-multiplication tutorial, bfloat16."""
    module = load(root / TUTORIALS / "matrix_multiplication/matrix_multiplication_nki_kernels.py")
    rng = np.random.default_rng(0)
    for name in sorted(n for n in vars(module) if n.startswith("nki_matmul")):
        k, m, n = (128, 64, 512) if "basic" in name else (2048,) * 3 if "fully" in name else (1024,) * 3
        a, b = (rng.standard_normal((k, width)).astype(ml_dtypes.bfloat16) for width in (m, n))
        kernel = getattr(module, name)
        yield (
            f"{name} {k}x{m}x{n}",
            lambda kernel=kernel, a=a, b=b: kernel(a, b),
            lambda a=a, b=b: a.astype(np.float64).T @ b.astype(np.float64),
            2.0**-7,
        )


def microscaling(root: Path) -> Iterator[Check]:
    """The MX tutorial, with the data and the goldens of its own utilities."""
    import tilelang.language as nl

    folder = root / TUTORIALS / "mxfp-matmul"
    kernels, host = load(folder / "mx_kernels.py"), load(folder / "mx_cpu_utils.py")
    np.random.seed(0)
    e5m2, e2m1 = (ml_dtypes.float8_e5m2, nl.float8_e5m2_x4), (ml_dtypes.float4_e2m1fn, nl.float4_e2m1fn_x4)
    for kind, packed in (e5m2, e2m1):
        _, _, left, left_scale = host.generate_stabilized_mx_data(kind, (128, 512))
        _, _, right, right_scale = host.generate_stabilized_mx_data(kind, (128, 2048))
        given = (left, left_scale, right, right_scale)
        yield (
            f"mx offline quantized {kind.__name__}",
            lambda given=given, packed=packed: kernels.kernel_offline_quantized_mx_matmul(*given, packed),
            lambda g=given, kind=kind: host.nc_matmul_mx_golden(g[0], g[2], g[1], g[3], kind, kind),
            2.0**-7,
        )
    for (kind, packed), (other, target) in ((e2m1, e5m2), (e5m2, e5m2)):
        _, _, left, left_scale = host.generate_stabilized_mx_data(kind, (128, 512))
        data = host.generate_stabilized_mx_data(other, (128, 2048))[0]
        bf16 = data.astype(ml_dtypes.bfloat16)
        yield (
            f"mx quantized on device {kind.__name__} {other.__name__}",
            lambda a=left, s=left_scale, b=bf16, p=packed, t=target: kernels.kernel_on_device_quantize_matmul_mx(
                a, s, b, p, t
            ),
            lambda a=left, s=left_scale, d=data, kind=kind, other=other: host.nc_matmul_mx_golden(
                a, (q := host.quantize_mx_golden(d, other))[0], s, q[1], kind, other
            ),
            2.0**-7,
        )
    x, y = (host.generate_stabilized_mx_data(e5m2[0], (512, n))[0] for n in (128, 512))
    pair = tuple(v.astype(ml_dtypes.bfloat16) for v in (x, y))
    for by_copy in (True, False):
        yield (
            f"mx strided by {'tensor_copy' if by_copy else 'DMA'}",
            lambda by_copy=by_copy: kernels.kernel_copy_strided_quantize_matmul_mx(*pair, e5m2[1], by_copy),
            lambda: x.T.astype(np.float64) @ y,
            2.0**-7,
        )


def older(root: Path) -> Iterator[Check]:
    """Tutorials and contributed kernels in the older dialect."""
    rng = np.random.default_rng(2)
    pool = load(root / TUTORIALS / "average_pool2d/average_pool2d_nki_kernels.py")
    x = np.arange(72, dtype=np.float16).reshape(2, 6, 6)
    yield "average_pool2d", lambda: pool.tensor_avgpool_kernel(x, 2), lambda: pool.np_average_pool_2D(x, 2), 0.0
    turn = load(root / TUTORIALS / "transpose2d/transpose2d_nki_kernels.py")
    rows = np.arange(60, dtype=np.int8).reshape(5, 12)
    turned = rows.reshape(5, 3, 4).transpose(0, 2, 1).reshape(5, 12)
    yield "transpose2d", lambda: turn.tensor_transpose2D_kernel_(rows, (3, 4)), lambda: turned, 0.0
    a, b = rng.random((2, 512, 2048)).astype(np.float16)
    for name, function in (
        ("tensor_addition", "nki_tensor_add"),
        ("spmd_tensor_addition", "nki_tensor_add"),
        ("spmd_multiple_nc_tensor_addition", "nki_tensor_add_nc2"),
    ):
        module = load(root / TUTORIALS / f"tensor_addition/{name}_nki_kernels.py")
        yield name, lambda module=module, f=function: getattr(module, f)(a, b), lambda: a + b, 0.0
    yield from attention(load(root / TUTORIALS / "attention_fwd_performance/attention_kernels.py"), rng)
    mamba = load(root / TUTORIALS / "fused_mamba/mamba_nki_kernels.py")
    d, u = rng.random((2, 1, 256, 512)).astype(np.float32)
    decay, (left, right) = -rng.random((256, 4)).astype(np.float32), rng.random((2, 1, 4, 512)).astype(np.float32)
    for version in ("mamba_v1", "mamba_v2", "mamba_v3"):
        yield (
            f"{version} 256x512",
            lambda version=version: getattr(mamba, version)(d, u, decay, left, right),
            lambda: mamba_reference(d, u, decay, left, right),
            1e-5,
        )
    products = load(root / "contributed/matmul.py")
    p, q = (rng.random((1024, n)).astype(np.float16) for n in (4096, 2048))
    from neuronxcc import nki

    yield (
        "contributed matmul 1024x4096x2048",
        lambda: nki.baremetal()(products.matmul)(p, q),
        lambda: p.astype(np.float32).T @ q.astype(np.float32),
        1e-2,
    )


def mamba_reference(d: Any, u: Any, decay: Any, left: Any, right: Any) -> Any:
    """The state-space recurrence, step by step."""
    out = np.zeros(d.shape)
    for n in range(decay.shape[1]):
        state = np.zeros(d.shape[:2])
        for t in range(d.shape[2]):
            state = np.exp(d[:, :, t] * decay[:, n]) * state + d[:, :, t] * u[:, :, t] * left[:, n, t][:, None]
            out[:, :, t] += state * right[:, n, t][:, None]
    return out


def attention(module: ModuleType, rng: np.random.Generator) -> Iterator[Check]:
    """The attention versions of `module`."""
    for name in sorted(n for n in vars(module) if n.startswith("attn_fwd")):
        size = 128 if name in ("attn_fwd_v1", "attn_fwd_v2") else 2048 if "v8" in name else 1024
        q, k, v = (0.3 * rng.standard_normal((3, 128, size))).astype(np.float32)
        kernel = getattr(module, name)
        yield (
            f"{name} S={size}",
            lambda kernel=kernel, q=q, k=k, v=v: kernel(q, k, v),
            lambda q=q, k=k, v=v: attention_reference(q, k, v),
            1e-2,
        )


def attention_reference(q: Any, k: Any, v: Any) -> Any:
    """Attention of one head; q, k, v are [d, S]."""
    scores = q.astype(np.float64).T @ k
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)) @ v.astype(np.float64).T


def ports(root: Path) -> Iterator[Check]:
    """Tensor addition, transpose and the attention versions."""
    rng = np.random.default_rng(1)
    add = load(root / TUTORIALS / "tensor_addition/tensor_addition_nki_kernels.py")
    a, b = rng.standard_normal((2, 256, 1024)).astype(np.float32)
    yield "tensor addition 256x1024", lambda: add.nki_tensor_add(a, b), lambda: a + b, 0.0
    turn = load(root / TUTORIALS / "transpose2d/transpose2d_nki_kernels.py")
    x = np.arange(60, dtype=np.int8).reshape(5, 12)
    expected = x.reshape(5, 3, 4).transpose(0, 2, 1).reshape(5, 12)
    yield "transpose2d 5x(3, 4)", lambda: turn.tensor_transpose2D_kernel_(x, (3, 4)), lambda: expected, 0.0
    yield from attention(load(root / TUTORIALS / "attention_fwd_performance/attention_kernels.py"), rng)


def main() -> int:
    """Run what the arguments name; the number of failures decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=Path, help="checkout of aws-neuron/nki-samples")
    parser.add_argument("--ports", type=Path, help="checkout of varuntej07/aws-nki")
    options = parser.parse_args()
    import tilelang.nki  # noqa: F401

    warnings.simplefilter("ignore")
    checks: list[Check] = []
    if options.samples:
        checks += [*matmuls(options.samples), *microscaling(options.samples), *older(options.samples)]
    if options.ports:
        checks += [*matmuls(options.ports), *ports(options.ports)]
    failures = 0
    for label, run, reference, tolerance in checks:
        start = time.perf_counter()
        try:
            got = np.asarray(run()).astype(np.float64)
        except Exception as error:  # each kernel is reported, whatever happens to it
            failures += 1
            print(f"{label:48} FAILED {type(error).__name__}: {error}")
            continue
        seconds = time.perf_counter() - start
        expected = np.asarray(reference(), np.float64)
        error_size = float(np.abs(got - expected).max() / np.abs(expected).max())
        failures += error_size > tolerance
        print(f"{label:48} {'ok' if error_size <= tolerance else 'FAILED'}  error {error_size:.1e}  {seconds:.2f} s")
    print(f"{len(checks) - failures} of {len(checks)} passed")
    return int(failures > 0 or not checks)


if __name__ == "__main__":
    sys.exit(main())
