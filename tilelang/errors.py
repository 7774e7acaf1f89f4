"""Errors as users see them: where (source line and caret), what, the limit, and a hint.

One family, `TileError`. Its leaves are also the classes that users of the public API catch (language.md section 1.8):
rule violations are `NkiValidationError` (an `AssertionError`), bounds are `IndexError`, kinds of arguments
`TypeError`, values `ValueError`.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import types
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = [
    "Diagnostic",
    "NkiValidationError",
    "Site",
    "SourceLocation",
    "TileBoundsError",
    "TileCapacityError",
    "TileDeadlockError",
    "TileError",
    "TileIndexError",
    "TileRuleError",
    "TileTypeError",
    "TileUninitialisedError",
    "TileUnsupportedError",
    "TileValueError",
    "TileWarning",
    "closest",
    "hide_frames",
    "user_site",
    "warn_user",
]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A range of source text: file, 1-based lines, 0-based columns, enclosing function."""

    file: str
    line: int
    end_line: int
    column: int
    end_column: int
    function: str

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.line}"

    @property
    def text(self) -> str:
        """The source line, without its indentation and line end."""
        return linecache.getline(self.file, self.line).strip()

    def statement(self) -> str:
        """Source text of the whole range, lines joined."""
        lines = [linecache.getline(self.file, n) for n in range(self.line, self.end_line + 1)]
        if not lines or not lines[0]:
            return ""
        lines[-1] = lines[-1].encode()[: self.end_column].decode(errors="replace")
        lines[0] = lines[0].encode()[self.column :].decode(errors="replace")
        return "".join(lines)


class Site:
    """A place in user code, cheap to take while tracing: code object and byte-code offset, resolved on demand."""

    __slots__ = ("code", "lasti")

    def __init__(self, code: types.CodeType, lasti: int) -> None:
        self.code = code
        self.lasti = lasti

    def location(self) -> SourceLocation:
        """The source range of the call at this site."""
        position: tuple[int | None, ...] = (None, None, None, None)
        for index, entry in enumerate(self.code.co_positions()):
            if index == self.lasti // 2:
                position = entry
                break
        line, end_line, column, end_column = (value or 0 for value in position)
        line = line or self.code.co_firstlineno
        return SourceLocation(
            self.code.co_filename, line, max(line, end_line), column, end_column, self.code.co_qualname
        )

    def __str__(self) -> str:
        return str(self.location())


def _short(path: str) -> str:
    """`path` relative to the working directory when it lies inside, else its last component."""
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return os.path.basename(path) if relative.startswith("..") else relative


def _argument_range(location: SourceLocation, operand: str, position: int | None) -> tuple[int, int, int] | None:
    """(line, column, end column) of the expression passed for `operand` in the call at `location`, if it can be
    found.
    """
    source = location.statement()
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except SyntaxError:
        return None
    call = tree.body
    if not isinstance(call, ast.Call):
        return None
    node: ast.expr | None = next((word.value for word in call.keywords if word.arg == operand), None)
    if node is None and position is not None and position < len(call.args):
        node = call.args[position]
    if node is None or node.end_col_offset is None or node.end_lineno != node.lineno:
        return None
    shift = location.column if node.lineno == 1 else 0
    return location.line + node.lineno - 1, node.col_offset + shift, node.end_col_offset + shift


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: rule ID, message, where, which operand, notes (indented lines) and a hint."""

    message: str
    rule: str | None = None
    site: Site | None = None
    operand: str | None = None
    position: int | None = None
    notes: tuple[str, ...] = ()
    hint: str | None = None

    def render(self) -> str:
        """The finding as text: message, source excerpt with caret, notes, hint."""
        head = f"{self.rule}: {self.message}" if self.rule else self.message
        lines = [head, *self._excerpt()]
        lines += [f"  {note}" for note in self.notes]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def _excerpt(self) -> list[str]:
        if self.site is None:
            return []
        location = self.site.location()
        line, start, end = location.line, location.column, location.end_column
        if self.operand:
            found = _argument_range(location, self.operand, self.position)
            if found:
                line, start, end = found
        raw = linecache.getline(location.file, line).rstrip("\n")
        text = raw.strip()
        # Positions are counted in UTF-8 bytes.
        start, end = (len(raw.encode()[:position].decode(errors="replace")) for position in (start, end))
        where = f"  {_short(location.file)}:{line}   "
        if not text:
            return [where.rstrip()]
        indent = len(raw) - len(raw.lstrip())
        if location.end_line != line and line == location.line:
            end = len(raw)
        width = max(1, min(end, len(raw)) - start)
        marker = " " * (len(where) + max(0, start - indent)) + "^" * width
        return [where + text, marker]


@dataclass(eq=False)
class TileError(Exception):
    """Base of every error tilelang raises on behalf of a kernel; `diagnostics` holds the findings."""

    message: str
    rule: str | None = None
    hint: str | None = None
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.diagnostics:
            self.diagnostics = [Diagnostic(self.message, self.rule, hint=self.hint)]
        super().__init__(self.message)

    def at(self, site: Site | None) -> TileError:
        """The same error with `site` filled into findings that have none."""
        if site is not None:
            self.diagnostics = [
                d if d.site else Diagnostic(d.message, d.rule, site, d.operand, d.position, d.notes, d.hint)
                for d in self.diagnostics
            ]
        return self

    def __str__(self) -> str:
        return "\n".join(d.render() for d in self.diagnostics)

    __hash__ = Exception.__hash__

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self),))


class NkiValidationError(AssertionError):
    """A hardware rule is violated (the name the public API documents)."""


class TileTypeError(TileError, TypeError):
    """An argument of the wrong kind."""


class TileValueError(TileError, ValueError):
    """A malformed value: pattern, size, axis."""


class TileRuleError(TileError, NkiValidationError):
    """A rule of the instruction set is violated."""


class TileBoundsError(TileError, NkiValidationError, IndexError):
    """An index or access pattern leaves its tensor."""


TileIndexError = TileBoundsError


class TileCapacityError(TileRuleError):
    """Live tiles exceed a memory of the target."""


class TileUninitialisedError(TileRuleError):
    """Something is read that was never written."""


class TileUnsupportedError(TileError, NotImplementedError):
    """Known, but not available here; the message names the alternative."""


class TileDeadlockError(TileError, RuntimeError):
    """Cores wait for each other and none can go on."""


class TileWarning(UserWarning):
    """Undefined behaviour on a device, or results that may differ there."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, registry=registry)


def user_site(error: BaseException) -> Site | None:
    """The last place in user code that `error` passed through on its way up; None when it passed none."""
    site = None
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            site = Site(trace.tb_frame.f_code, trace.tb_lasti)
        trace = trace.tb_next
    return site


def hide_frames(error: BaseException) -> BaseException:
    """`error` with the traceback frames of this package removed, so that the last frame shown is the user's."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            frames.append(trace)
        trace = trace.tb_next
    rebuilt: types.TracebackType | None = None
    for entry in reversed(frames):
        rebuilt = types.TracebackType(rebuilt, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return error.with_traceback(rebuilt)


def closest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'load'?` for a misspelt name, or nothing when none of `known` is near."""
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"; did you mean {found[0]!r}?" if found else ""
