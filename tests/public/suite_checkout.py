"""A scratch copy of a checkout of aws-neuron/nki-library that can run its suite in simulation mode."""

from __future__ import annotations

import shutil
from pathlib import Path

# Modules missing from the public tree; simulation mode imports them and uses neither.
_LOCKS = '''"""Stand-in: locks of remote hosts, unused in simulation mode."""

import enum


class LockStatus(enum.Enum):
    ALLOCATED = 0
    RELEASED = 1
    DRAINED = 2
    UNDRAINED = 3
    NO_CORES = 4
    DRAINING = 5
    ERROR = 6
    FLOCK_TIMEOUT = 7


class LockResult:
    pass
'''
_ANALYSIS = '''"""Stand-in: performance analysis, unused in simulation mode."""


def analyze_trace(*args, **kwargs):
    raise NotImplementedError("performance analysis is not part of the public tree")
'''
_STAND_INS = {
    "test/utils/scripts/__init__.py": "",
    "test/utils/scripts/remote_lock_scripts.py": _LOCKS,
    "test/utils/perf_analysis_private.py": _ANALYSIS,
}


def _second_docstring_tail(text: str) -> str:
    """`text` without a docstring tail that stands twice in a row."""
    quotes = '\n    """\n'
    start = 0
    while (first := text.find(quotes, start)) >= 0:
        end = first + len(quotes)
        second = text.find(quotes, end)
        if second >= 0:
            tail = text[end : second + len(quotes)]
            if tail.strip() and text[:end].endswith(tail):
                return text[:end] + text[second + len(quotes) :]
        start = end
    return text


def _edit(path: Path, change: dict[str, str]) -> None:
    if not path.is_file():
        return
    text = path.read_text(encoding="utf-8")
    for old, new in change.items():
        if new not in text:
            text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")


def prepare(library: Path, scratch: Path) -> Path:
    """Copies `library` to `scratch` and fills in what its public snapshot lacks; the checkout itself is not touched.

    Source: the faults are those of the public snapshot of 2026-04-13; a newer one that has mended them is unaffected.
    Raises FileNotFoundError when `library` is no checkout of the repository.
    """
    if not (library / "test/integration").is_dir():
        raise FileNotFoundError(f"{library} has no test/integration: not a checkout of aws-neuron/nki-library")
    shutil.copytree(library, scratch, ignore=shutil.ignore_patterns(".git", "__pycache__"), dirs_exist_ok=True)
    for name, text in _STAND_INS.items():
        path = scratch / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    # Read in simulation mode, set only by a compilation.
    _edit(
        scratch / "test/utils/test_orchestrator.py",
        {"class Orchestrator:\n": "class Orchestrator:\n    _compiled_kernel = None\n"},
    )
    names = "from test.utils.common_dataclasses import (\n"
    _edit(scratch / "test/integration/nkilib/core/qkv/test_qkv_tkg.py", {names: f"{names}    Platforms,\n"})
    mlp = scratch / "src/nkilib_src/nkilib/core/mlp/mlp.py"
    if mlp.is_file():
        mlp.write_text(_second_docstring_tail(mlp.read_text(encoding="utf-8")), encoding="utf-8")
    return scratch
