"""Questions about the user's code: what its syntax tree says, and how its functions can be called."""

from __future__ import annotations

import ast
import inspect
import linecache
from functools import lru_cache
from typing import Any

from tilelang.errors import Site, TileTypeError

_Range = tuple[int, int, int, int]

__all__ = ["check_body", "while_of"]


def _range(node: ast.expr | ast.stmt) -> _Range:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


@lru_cache(maxsize=64)
def _whiles(file: str, text: str) -> dict[_Range, _Range]:
    """Source range that a truth test can carry → range of its `while` statement."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found: dict[_Range, _Range] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.While):
            found[_range(node.test)] = _range(node)
            if isinstance(node.test, (ast.Name, ast.Attribute, ast.Subscript)):
                # Python 3.11 gives the jump of such a test the range of the whole statement.
                found[_range(node)] = _range(node)
    return found


def while_of(site: Site) -> _Range | None:
    """The range of the `while` statement whose bare test `site` is (told by source position, not by byte code), or
    None for any other place.
    """
    location = site.location()
    text = "".join(linecache.getlines(location.file))
    place = (location.line, location.column, location.end_line, location.end_column)
    return _whiles(location.file, text).get(place)


def check_body(body: Any, loop: str, takes: str, site: Site) -> None:
    """Raise TileTypeError unless `body` can be called with one argument."""
    if not callable(body):
        raise TileTypeError(f"{loop}: the body is {body!r:.80}, not a function of {takes}", rule=f"{loop}.R5").at(site)
    try:
        signature = inspect.signature(body)
    except (TypeError, ValueError):  # a builtin that does not tell
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(body, "__name__", "body")
        raise TileTypeError(f"{loop}: {name}{signature} cannot be called with {takes}: {error}", rule=f"{loop}.R5").at(
            site
        ) from None
