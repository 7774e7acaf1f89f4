"""The extension modules of tilelang; everything else about the package is in pyproject.toml.

`TILELANG_DEBUG_BUILD=1 python setup.py build_ext --inplace --force` builds with bounds checks and symbols.
"""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("TILELANG_DEBUG_BUILD", "0") not in ("", "0")

DIRECTIVES = {
    "language_level": "3",
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
}
# No -march=native and no contraction: the same bits, and the same wheel, on every machine.
COMPILE = ["-O1", "-g"] if DEBUG else ["-O3"]
COMPILE += ["-std=gnu11", "-ffp-contract=off", "-pthread", "-Wno-unused-function"]


DEPENDS = sorted(str(path) for pattern in ("*.pxd", "*.h") for path in Path("csrc").glob(pattern))


def _extension(name: str) -> Extension:
    return Extension(
        f"tilelang.execute._{name}",
        [f"csrc/{name}.pyx"],
        depends=DEPENDS,
        include_dirs=["csrc"],
        extra_compile_args=COMPILE,
        extra_link_args=["-pthread"],
    )


setup(
    ext_modules=cythonize(
        [_extension("sequencer"), _extension("dma"), _extension("layout")],
        include_path=["csrc"],
        build_dir="build",
        compiler_directives=DIRECTIVES,
    )
)
