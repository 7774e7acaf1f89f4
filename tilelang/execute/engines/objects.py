"""Compiled engine functions on disk, and their loading into the process.

Each function is one relocatable object file, so a process that finds all its functions in the cache loads them with
llvmlite alone and never imports numba. A file starts with a digest of its content: a damaged one is compiled again,
never linked. The cache directory is named by everything the machine code depends on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

__all__ = ["cache_directory", "entry_symbol", "link", "read_object", "write_object"]

_DIGEST_BYTES = 32
_STALE_SECONDS = 30 * 24 * 3600
# Numba settings that do not change the machine code of the engines.
_NEUTRAL_SETTINGS = (
    "NUMBA_CACHE_DIR",
    "NUMBA_NUM_THREADS",
    "NUMBA_THREADING_LAYER",
    "NUMBA_DISABLE_PERFORMANCE_WARNINGS",
)


def entry_symbol(name: str) -> str:
    """The linker symbol of the engine function `name`."""
    return f"tilelang.{name}"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _source_files() -> list[Path]:
    package = Path(__file__).parent
    root = package.parent.parent
    layouts = [package.parent / "layout.py", package.parent / "tensor_layout.py"]
    return [*sorted(package.glob("*.py")), *layouts, *sorted((root / "numerics").glob("*.py")), root / "dtypes.py"]


def _fingerprint() -> str:
    """Digest of all that decides the machine code: sources, compiler versions, numba settings and the CPU."""
    digest = hashlib.sha256()
    for path in _source_files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    settings = sorted(
        f"{key}={value}"
        for key, value in os.environ.items()
        if key.startswith("NUMBA_") and key not in _NEUTRAL_SETTINGS
    )
    features = llvm.get_host_cpu_features()
    facts = [
        *(f"{package} {metadata.version(package)}" for package in ("numba", "llvmlite", "numpy")),
        *settings,
        platform.machine(),
        llvm.get_default_triple(),
        llvm.get_host_cpu_name(),
        ",".join(sorted(name for name, present in features.items() if present)),
    ]
    digest.update("\n".join(facts).encode())
    return digest.hexdigest()[:24]


@cache
def cache_directory() -> Path:
    """The directory of the object files that fit this process, in `$TILELANG_CACHE_DIR` or the user's cache."""
    base = os.environ.get("TILELANG_CACHE_DIR")
    return (Path(base) if base else _user_cache() / "tilelang") / "engines" / _fingerprint()


def read_object(name: str) -> bytes | None:
    """The cached object file of `name`; None when it is absent or damaged."""
    try:
        content = (cache_directory() / f"{name}.o").read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return body if hashlib.sha256(body).digest() == digest else None


def _remove_stale(directory: Path) -> None:
    """Delete the directories beside `directory` where nothing was compiled for a month: other versions, other CPUs."""
    oldest = time.time() - _STALE_SECONDS
    for other in directory.parent.iterdir():
        with suppress(FileNotFoundError):  # another process cleans up too
            if other != directory and other.is_dir() and other.stat().st_mtime < oldest:
                shutil.rmtree(other, ignore_errors=True)


def write_object(name: str, body: bytes) -> None:
    """Keep `body` for later processes; warns (once) when the cache directory cannot be written."""
    directory = cache_directory()
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            _remove_stale(directory)
        # A rename is atomic, so a process that reads meanwhile sees the old file or the whole new one.
        handle, temporary = tempfile.mkstemp(dir=directory, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(temporary, directory / f"{name}.o")
    except OSError as error:
        warnings.warn(
            f"compiled engines cannot be cached in {directory} ({error.strerror}); every process compiles them anew. "
            "Set TILELANG_CACHE_DIR to a writable directory.",
            RuntimeWarning,
            stacklevel=2,
        )


@cache
def _linker() -> Any:
    """The one in-process linker; it lives as long as the process, as the addresses it gives do."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def link(name: str, body: bytes) -> int:
    """Link the object file `body` into the process and return the address of its function `name`."""
    linker = _linker()
    linker.add_object_file(llvm.ObjectFileRef.from_data(body))
    linker.finalize_object()
    address = linker.get_function_address(entry_symbol(name))
    if not address:
        raise RuntimeError(f"the object file of engine function {name!r} does not define it")
    return int(address)
