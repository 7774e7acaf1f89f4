"""Instructions in which several cores take part: who has to come, and what each brings.

Such an instruction declares `meeting(call, place, world)`; its body takes `parties` and runs once, when all have come.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Meeting", "Party", "Place", "World"]


class Place(NamedTuple):
    """One core: `core` 0 or 1 of the logical core `rank`."""

    rank: int = 0
    core: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank}, core {self.core}"


class World(NamedTuple):
    """How many ranks run together, and how many cores each has."""

    ranks: int = 1
    cores: int = 1

    def describe(self, place: Place) -> str:
        """`place` with no more words than this world needs."""
        names = [f"rank {place.rank}"] if self.ranks > 1 else []
        names += [f"core {place.core}"] if self.cores > 1 else []
        return ", ".join(names) or "the kernel"


class Meeting(NamedTuple):
    """Which call this is, and the cores that must all make it: they meet when every one waits with an equal Meeting."""

    key: Hashable
    members: frozenset[Place]


@dataclass(slots=True)
class Party:
    """One core at a meeting: the arguments of its own call, tensors as Tiles of its own memory."""

    place: Place
    arguments: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise AttributeError(name) from None
