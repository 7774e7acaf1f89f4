"""What a kernel takes from the scopes around it: closures, globals, default arguments, the code of its helpers.

A specialisation is valid as long as all of that is as it was when it was traced. Names are watched by identity, one
comparison each at a call; what can change in place (lists, arrays, data objects) is described anew.
"""

from __future__ import annotations

import collections
import functools
import itertools
import sys
import types
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilelang.analysis.tensors import fields_of

__all__ = ["Same", "Surroundings", "is_opaque"]

# Packages whose functions and classes are taken as they are: what their code refers to is not followed.
_OPAQUE = sys.stdlib_module_names | {
    "_pytest", "hypothesis", "jax", "jaxlib", "ml_dtypes", "neuronxcc", "nki", "numba", "numpy", "pluggy", "pytest",
    "scipy", "tilelang", "torch",
}  # fmt: skip
_MISSING = object()
_ATOMS = (int, float, str, bytes, bool, type(None), complex)
_CONTAINERS = (
    tuple, list, dict, set, frozenset, bytearray, memoryview, array, collections.deque, types.SimpleNamespace,
    np.ndarray, np.generic,
)  # fmt: skip
# A state is never used twice, so that one found in an old key is the same state.
_NUMBERS = itertools.count()


def is_opaque(module: str | None) -> bool:
    """True for the name of a module that is taken as it is."""
    return (module or "").partition(".")[0] in _OPAQUE


class Same:
    """A value as part of a key, equal to itself only."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value


class Surroundings:
    """What `root`, a function or class, refers to. `describe` states the content of a value as a hashable key."""

    def __init__(self, root: Any, describe: Callable[[Any], Any]) -> None:
        self.root = root
        self._describe = describe
        self._ignored: set[Any] = set()
        self._states: dict[Any, int] = {}
        self._view: _View | None = None

    def state(self) -> tuple[Any, ...]:
        """A hashable description of all that is referred to: equal states, equal surroundings."""
        view = self._view
        if view is None or view.moved():
            view = self._look()
        if not view.changing:
            return (view.state,)
        return view.state, *[self._describe(value) for value in view.changing.values()]

    def snapshot(self) -> dict[Any, Any]:
        """Each thing referred to, with its description."""
        view = self._look()
        return view.fixed | {label: self._describe(value) for label, value in view.changing.items()}

    def ignore_changes(self, before: dict[Any, Any]) -> None:
        """Leave out what changed since the snapshot `before` was taken: what tracing itself changes (a list of calls,
        a counter) is an effect of the kernel, no part of its state.
        """
        after = self.snapshot()
        changed = {label for label, found in after.items() if before.get(label, _MISSING) != found}
        if changed:
            self._ignored |= changed
            self._look()

    def _look(self) -> _View:
        view = _View(self.root, self._ignored)
        for label, value in view.atoms:
            view.fixed[label] = self._describe(value)
        fixed = tuple(view.fixed.items())
        if fixed not in self._states:
            self._states[fixed] = next(_NUMBERS)
        view.state = self._states[fixed]
        self._view = view
        return view


class _View:
    """All that a function or class refers to at one moment.

    `fixed` and `atoms` are values that cannot change in place, `changing` are those that can, each by a label for
    where it was found; labels in `ignored` are left out.
    """

    def __init__(self, root: Any, ignored: set[Any]) -> None:
        self.ignored = ignored
        self.state = -1
        self.fixed: dict[Any, Any] = {}
        self.atoms: list[tuple[Any, Any]] = []
        self.changing: dict[Any, Any] = {}
        self._seen: set[Any] = set()
        self._names: list[tuple[Any, str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._functions: list[tuple[Any, Any, Any, Any]] = []
        members = [name for cls in root.__mro__ for name in cls.__dict__] if isinstance(root, type) else []
        names = frozenset(name for name in members if name[:2] != "__")
        self._follow(root, ("root",), names)

    def moved(self) -> bool:
        """True when a name, a cell or the code of a function is no longer what it was."""
        for names, name, value in self._names:
            if names.get(name, _MISSING) is not value:
                return True
        for cell, value in self._cells:
            if _content(cell) is not value:
                return True
        for function, code, defaults, keywords in self._functions:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return True
            if function.__kwdefaults__ is not keywords:
                return True
        return False

    def _follow(self, value: Any, label: Any, names: frozenset[str]) -> None:
        """Take `value`, found at `label`, into account. `names`: names in the code that refers to it."""
        if label in self.ignored:
            return
        value = _unwrapped(value)
        if isinstance(value, types.MethodType):
            self._follow(value.__self__, (*label, "bound"), names)
            self._follow(value.__func__, (*label, "function"), names)
        elif isinstance(value, functools.partial):
            self._follow((value.args, value.keywords), (*label, "bound"), names)
            self._follow(value.func, (*label, "function"), names)
        elif isinstance(value, types.FunctionType):
            self._follow_function(value, label)
        elif isinstance(value, (type, types.ModuleType)):
            self.fixed[label] = value
            self._follow_members(value, names)
        elif isinstance(value, _ATOMS) and type(value).__module__ == "builtins":
            self.atoms.append((label, value))
        elif isinstance(value, _CONTAINERS) or _is_array(value) or not is_opaque(type(value).__module__):
            self.changing[label] = value
            self._follow_parts(value, label, names)
        else:
            self.fixed[label] = Same(value)

    def _follow_parts(self, value: Any, label: Any, names: frozenset[str]) -> None:
        """Functions and classes inside containers and data objects."""
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._follow_members(type(value), names)
        if isinstance(value, dict):
            parts: Any = value.values()
        elif isinstance(value, (tuple, list, set, frozenset, collections.deque)):
            parts = value
        else:
            parts = (fields_of(value) or {}).values() if not isinstance(value, _CONTAINERS) else ()
        for number, part in enumerate(parts):
            part = _unwrapped(part)
            if isinstance(part, (types.FunctionType, types.MethodType, functools.partial, type)):
                self._follow(part, (*label, number), names)
            elif not isinstance(part, _ATOMS) and (
                isinstance(part, _CONTAINERS) or not is_opaque(type(part).__module__)
            ):
                self._follow_parts(part, (*label, number), names)

    def _follow_function(self, function: types.FunctionType, label: Any) -> None:
        opaque = is_opaque(function.__module__) and label != ("root",)
        self.fixed[label] = function if opaque else function.__code__
        if opaque or id(function) in self._seen:
            return
        self._seen.add(id(function))
        code, defaults, keywords = function.__code__, function.__defaults__, function.__kwdefaults__
        self._functions.append((function, code, defaults, keywords))
        names = frozenset(_names_in(code))
        if defaults or keywords:
            self._follow((defaults, keywords), (*label, "defaults"), names)
        for number, cell in enumerate(function.__closure__ or ()):
            where = (id(cell), code, number)
            if where not in self.ignored:
                content = _content(cell)
                self._cells.append((cell, content))
                self._follow(content, where, names)
        self._follow_names(function.__globals__, id(function.__globals__), names)

    def _follow_members(self, owner: Any, names: frozenset[str]) -> None:
        """Attributes that code reaches through a module or class of the user's."""
        if isinstance(owner, types.ModuleType):
            if not is_opaque(owner.__name__):
                self._follow_names(owner.__dict__, id(owner.__dict__), names)
            return
        for cls in owner.__mro__:
            if not is_opaque(cls.__module__):
                special = {n for n, value in cls.__dict__.items() if n[:2] == "__" and callable(value)}
                self._follow_names(cls.__dict__, id(cls), names | special)

    def _follow_names(self, scope: Any, owner: int, names: frozenset[str]) -> None:
        for name in names:
            where = (owner, name)
            value = scope.get(name, _MISSING)
            if value is _MISSING or where in self.ignored or (where, names) in self._seen:
                continue
            if where not in self._seen:
                self._names.append((scope, name, value))
            self._seen |= {where, (where, names)}
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            self._follow(value.fget if isinstance(value, property) else value, where, names)


def _unwrapped(value: Any) -> Any:
    """The function inside a kernel or another wrapper that is no function itself."""
    while not hasattr(value, "__code__") and not isinstance(value, type) and "__wrapped__" in _attributes(value):
        value = value.__wrapped__
    return value


def _is_array(value: Any) -> bool:
    """True for arrays of other packages, whose content can change."""
    return hasattr(type(value), "__dlpack__") and not type(value).__module__.startswith("tilelang")


def _attributes(value: Any) -> dict[str, Any]:
    return getattr(value, "__dict__", None) or {}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Names of globals and attributes in `code` and in the functions defined inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
