"""The README's kernel runs and prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_kernel_of_the_readme_prints_what_it_says() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"```(python|text)\n(.*?)```", text, re.DOTALL)
    assert [kind for kind, _ in blocks[:2]] == ["python", "text"]
    done = subprocess.run([sys.executable, "-c", blocks[0][1]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == blocks[1][1]


def test_links_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_a_distribution_named_tilelang_is_refused(tmp_path: Path) -> None:
    info = tmp_path / "tilelang-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tilelang\nVersion: 9.9\n")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import tilelang; tilelang.jit"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "tilelang 9.9" in done.stderr and "tilelang-trn" in done.stderr and "environment" in done.stderr
