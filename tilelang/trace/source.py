"""Questions about the user's source text, answered from its syntax tree."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from tilelang.errors import Site

__all__ = ["is_while_test"]


@lru_cache(maxsize=64)
def _while_tests(file: str, text: str) -> frozenset[tuple[int, int]]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return frozenset()
    return frozenset((n.test.lineno, n.test.col_offset) for n in ast.walk(tree) if isinstance(n, ast.While))


def is_while_test(site: Site) -> bool:
    """True when `site` is the bare test of a `while` statement (told by source position, not by byte code)."""
    location = site.location()
    text = "".join(linecache.getlines(location.file))
    return (location.line, location.column) in _while_tests(location.file, text)
