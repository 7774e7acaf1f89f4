"""Questions about the user's source text, answered from its syntax tree."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from tilelang.errors import Site

_Range = tuple[int, int, int, int]

__all__ = ["is_while_test"]


@lru_cache(maxsize=64)
def _while_tests(file: str, text: str) -> frozenset[_Range]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return frozenset()
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.While)]
    return frozenset((t.lineno, t.col_offset, t.end_lineno or 0, t.end_col_offset or 0) for t in tests)


def is_while_test(site: Site) -> bool:
    """True when `site` is the bare test of a `while` statement (told by source position, not by byte code)."""
    location = site.location()
    text = "".join(linecache.getlines(location.file))
    place = (location.line, location.column, location.end_line, location.end_column)
    return place in _while_tests(location.file, text)
