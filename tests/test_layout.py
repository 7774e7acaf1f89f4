"""The tree itself: small files, no paths of one machine, nothing built or generated checked in by accident."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = {".py", ".pyx", ".pxd", ".pxi", ".h"}
TEXT = SOURCE | {".toml", ".md", ".json", ".csv", ".txt", ".yml", ".cfg", ".in"}
TOP_LEVEL = {".ci", ".git", "asv_benchmarks", "csrc", "docs", "examples", "kernels", "tests", "tilelang"}
MAX_LINES = 500

# Home and scratch directories, which mean something on one machine only.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|farm|home|Users|tmp|mnt|opt)/\w+")


@cache
def _files() -> tuple[Path, ...]:
    """Files of the project: what git tracks or would track, else (outside a repository) everything in known folders."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=True,
        ).stdout.decode()
        names = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path for folder in TOP_LEVEL - {".git"} for path in (ROOT / folder).rglob("*")]
        names += list(ROOT.glob("*"))
    return tuple(path for path in names if path.is_file() and "__pycache__" not in path.parts)


def _with_suffix(suffixes: set[str]) -> list[Path]:
    found = [path for path in _files() if path.suffix in suffixes or path.name in ("Makefile", "run")]
    assert found, "the tree has no files of this kind"
    return found


def test_files_are_small() -> None:
    counts = {str(path.relative_to(ROOT)): path.read_text("utf-8").count("\n") for path in _with_suffix(SOURCE)}
    assert {name: lines for name, lines in counts.items() if lines > MAX_LINES} == {}


def test_no_machine_paths() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in _with_suffix(TEXT)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (match := MACHINE_PATH.search(line))
    ]
    assert found == []


@pytest.mark.parametrize("text", [f"/{top}/x.py" for top in ("home", "tmp", "work")])
def test_machine_path_pattern_finds(text: str) -> None:
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize("text", ["read/write", "docs/home/page.md", "a /b/ c", "TOPS/work unit", "/usr/bin/env"])
def test_machine_path_pattern_passes(text: str) -> None:
    assert not MACHINE_PATH.search(text)


def test_names_are_plain() -> None:
    """Lower-case module names, so that a case-insensitive file system and an import agree."""
    modules = [path for path in _files() if path.suffix in (".py", ".pyx", ".pxd")]
    assert [path.name for path in modules if not re.fullmatch(r"[a-z0-9_]+", path.stem)] == []


def test_no_build_products() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("outside a repository the built extension lies beside the sources")
    assert [path.name for path in _files() if path.suffix in (".so", ".pyd", ".o", ".pyc")] == []


def test_folders_are_known() -> None:
    """A new top-level folder is a decision: name it here."""
    assert {path.relative_to(ROOT).parts[0] for path in _files() if path.parent != ROOT} <= TOP_LEVEL
