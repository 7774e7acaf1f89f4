"""`import nki` after `import tilelang.nki`: modules, removed entry points, and that a real package is not shadowed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

import tilelang
import tilelang.nki

ROOT = Path(tilelang.__file__).parent.parent


def run(code: str, *path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join(str(p) for p in (*path, ROOT))
    env = {k: v for k, v in os.environ.items() if k != "TILELANG_SHADOW_NKI"} | {"PYTHONPATH": search} | environment
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=False
    )


def test_modules_are_importable() -> None:
    import nki
    import nki.compiler
    import nki.dtype
    import nki.isa as nisa
    import nki.language as nl
    import nki.typing as nt
    from nki import jit, simulate
    from nki.isa.constants import engine, oob_mode
    from nki.language.constants import sizeinbytes

    assert nki is tilelang.nki and nki.language is nl is tilelang.language and nki.isa is nisa is tilelang.isa
    assert jit is tilelang.jit and simulate is nki.cpu_simulate is tilelang.simulate
    assert engine is nisa.engine and oob_mode is nisa.oob_mode
    assert (sizeinbytes(nl.bfloat16), sizeinbytes(nl.float8_e5m2_x4)) == (2, 4)
    assert nki.dtype.float8_e4m3 == nl.float8_e4m3 and nt.tensor[128, 512].shape == (128, 512)
    import nki.collectives

    assert nki.collectives is tilelang.collectives


def test_importing_twice_is_harmless() -> None:
    module = sys.modules["nki"]
    tilelang.nki.install()
    assert sys.modules["nki"] is module


@pytest.mark.parametrize("name", ["baremetal", "benchmark", "profile", "simulate_kernel"])
def test_removed_entry_points(name: str) -> None:
    import nki

    with pytest.raises(NotImplementedError, match=rf"nki\.{name} was removed"):
        getattr(nki, name)(lambda x: x)


def test_jit_and_simulate_spellings() -> None:
    import nki
    import nki.language as nl

    @nki.jit
    def double(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), 2.0))
        return out

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for result in (double(x), nki.simulate(double)(x), nki.cpu_simulate(double)[1](x=x), nki.simulate(double[1])(x)):
        np.testing.assert_array_equal(result, 2 * x)


def test_annotations() -> None:
    import nki
    import nki.language as nl
    import nki.typing as nt

    @nki.jit
    def fixed(x: nt.tensor[2, 4], y: nt.mutable_tensor | None = None, z: Optional[nt.scalar] = None) -> nt.tensor:  # type: ignore  # noqa: UP045
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(fixed(x), x)
    assert nt.tensor[nt.mutable].is_mutable and nt.tensor[4].shape == (4,)
    assert repr(nt.tensor[128, 512]) == "nki.typing.tensor[128, 512]"
    with pytest.raises(TypeError, match="is an annotation"):
        nt.tensor(3)
    with pytest.raises(ValueError, match="at least one element"):
        _ = nt.tensor[0, 3]


def test_compiler_configuration() -> None:
    from nki.compiler import AddressRotation, CompileConfig, SpecializationConfig

    assert CompileConfig() == CompileConfig(address_rotation=AddressRotation.AUTO)
    assert CompileConfig(prefetch_auto=True) != CompileConfig()
    assert not SpecializationConfig().allow_nested_config_override
    with pytest.raises(TypeError):
        CompileConfig(unroll=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        CompileConfig(AddressRotation.AUTO)  # type: ignore[misc]


@pytest.mark.parametrize("package", ["nki", "neuronxcc"])
def test_a_real_package_is_not_shadowed(tmp_path: Path, package: str) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("REAL = True\n")
    refused = run("import tilelang.nki", tmp_path)
    assert refused.returncode != 0
    assert f"ImportError: the package '{package}' is installed at" in refused.stderr
    assert "TILELANG_SHADOW_NKI=1" in refused.stderr
    code = "import tilelang.nki, nki; assert nki is tilelang.nki; import nki.language; nki.install(force=True)"
    shadowed = run(code, tmp_path, TILELANG_SHADOW_NKI="1")
    assert shadowed.returncode == 0, shadowed.stderr


def test_an_imported_package_is_not_shadowed() -> None:
    code = "import sys, types; sys.modules['nki'] = types.ModuleType('nki')\nimport tilelang.nki"
    refused = run(code)
    assert refused.returncode != 0 and "the package 'nki' is imported from memory" in refused.stderr


def test_a_plain_directory_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "nki" / "kernels").mkdir(parents=True)
    found = run("import tilelang.nki, nki; assert nki is tilelang.nki", tmp_path)
    assert found.returncode == 0, found.stderr


def test_importing_the_language_needs_no_compiler() -> None:
    code = "import tilelang.nki, sys; assert not {'numba', 'llvmlite'} & set(sys.modules), sorted(sys.modules)"
    found = run(code)
    assert found.returncode == 0, found.stderr
