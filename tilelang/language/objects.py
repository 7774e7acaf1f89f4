"""`nl.NKIObject`: base of user data classes inside kernels (language.md section 2.10)."""

from __future__ import annotations

import dataclasses
from inspect import get_annotations
from typing import Any

from tilelang.errors import TileTypeError, TileWarning, warn_user

__all__ = ["NKIObject"]


class _Filling(type):
    """Calls of dataclasses: required fields that are not given are None, with a warning, as device compilers do it."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "__dataclass_fields__" in cls.__dict__ and "__init__" in cls.__dict__:
            fields = [f for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
            for field in fields[len(args) :]:
                required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
                if required and field.name not in kwargs:
                    message = (
                        f"{cls.__name__}(): {field.name} is not given; a device compiler takes None, Python refuses"
                    )
                    warn_user(message, TileWarning)
                    kwargs[field.name] = None
        return super().__call__(*args, **kwargs)


class NKIObject(metaclass=_Filling):
    """Base of data classes that travel through kernels.

    A subclass without `__init__` and without `@dataclass` gets one: a parameter per annotated field, in order, by
    position or keyword; a field that is not given takes its class default, or None; then `__post_init__` runs.
    Dataclasses, frozen or not, and classes with their own `__init__` keep theirs; of dataclasses a field that is not
    given and has no default is None, with a warning. Equality is Python's.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        if cls.__init__ is not NKIObject.__init__:  # reached through super(): the subclass sets its own fields
            fields: list[str] = []
        else:
            fields = _field_names(cls)
        if len(args) > len(fields):
            raise TileTypeError(f"{cls.__name__}() takes {len(fields)} positional arguments, got {len(args)}")
        given = dict(zip(fields, args))
        for name, value in kwargs.items():
            if name in given:
                raise TileTypeError(f"{cls.__name__}() got multiple values for argument {name!r}")
            if fields and name not in fields:
                raise TileTypeError(f"{cls.__name__}() got an unexpected keyword argument {name!r}")
            given[name] = value
        for name in fields:
            given.setdefault(name, getattr(cls, name, None))
        for name, value in given.items():
            setattr(self, name, value)
        if fields:
            self.__post_init__()

    def __post_init__(self, *args: Any) -> None:
        """Called after the fields are set; for subclasses to define."""


def _field_names(cls: type) -> list[str]:
    """Annotated names of `cls` and its bases, bases first, without class variables."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name, annotation in get_annotations(base).items():
            text = annotation if isinstance(annotation, str) else str(annotation)
            if "ClassVar" not in text:
                names[name] = None
    return list(names)
