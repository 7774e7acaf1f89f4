"""Several cores in one process: each runs until it needs others, and they go on once all of them have come.

A core is a generator that runs its program and yields every instruction in which other cores take part. One core runs
at a time, in order of rank and core, so a launch gives the same results each time, and a deadlock is seen at once:
every core waits and no meeting is complete.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilelang.errors import Diagnostic, TileDeadlockError, TileError
from tilelang.execute.reference import ReferenceExecutor
from tilelang.ir.program import Instruction
from tilelang.isa.meeting import Meeting, Party, Place, World

__all__ = ["Core", "baton", "cooperate", "meet_alone"]


class Core:
    """One core of a launch: `steps` runs its program, `executor` sees its memory and registers."""

    def __init__(self, place: Place, executor: ReferenceExecutor, steps: Iterator[Instruction]) -> None:
        self.place = place
        self.executor = executor
        self.steps = steps
        self.waiting: Instruction | None = None
        self.ended = False

    def advance(self) -> None:
        """Run to the next instruction that needs others, or to the end."""
        self.waiting = next(self.steps, None)
        self.ended = self.waiting is None


def cooperate(cores: list[Core], world: World) -> None:
    """Run all `cores` to their ends. Raises TileDeadlockError when they wait for each other in vain."""
    by_place = {core.place: core for core in cores}
    try:
        for core in cores:
            core.advance()
        while not all(core.ended for core in cores):
            meetings = {core.place: _meeting(core, world) for core in cores if core.waiting is not None}
            complete = [place for place, meeting in meetings.items() if _complete(meeting, meetings)]
            if not complete:
                raise _deadlock(cores, meetings, world)
            for place in complete:
                meeting = meetings.pop(place, None)
                if meeting is None:
                    continue
                members = [by_place[member] for member in sorted(meeting.members)]
                _exchange(members)
                for member in members:
                    meetings.pop(member.place, None)
                    member.advance()
    finally:
        for core in cores:
            core.steps.close()  # type: ignore[attr-defined]


def meet_alone(core: Core, item: Instruction, world: World) -> None:
    """Run `item` on the only core there is. Raises TileDeadlockError when it needs another one."""
    core.waiting = item
    meeting = _meeting(core, world)
    if meeting.members != {core.place}:
        raise _deadlock([core], {core.place: meeting}, world)
    _exchange([core])


def _meeting(core: Core, world: World) -> Meeting:
    item = core.waiting
    assert item is not None
    call = item.plan.call
    try:
        found: Meeting = call.spec.meeting(call, core.place, world)
    except TileError as error:
        raise error.at(item.site) from None
    return found


def _complete(meeting: Meeting, waiting: dict[Place, Meeting]) -> bool:
    return all(waiting.get(member) == meeting for member in meeting.members)


def _exchange(members: list[Core]) -> None:
    """Run the body of the instruction at which all `members` wait."""
    parties = []
    for member in members:
        assert member.waiting is not None
        arguments = member.executor.arguments(member.waiting)
        assert arguments is not None, "no meeting skips an index out of range"
        parties.append(Party(member.place, arguments))
    item = members[0].waiting
    assert item is not None
    spec = item.plan.spec
    try:
        with np.errstate(all="ignore"):
            spec.body(**parties[0].arguments, parties=parties)
    except TileError as error:
        raise error.at(item.site) from None


def _deadlock(cores: list[Core], meetings: dict[Place, Meeting], world: World) -> TileDeadlockError:
    """Who waits where, and for whom."""
    ended = [core.place for core in cores if core.ended]
    found = []
    for core in cores:
        if core.waiting is None:
            continue
        meeting = meetings[core.place]
        missing = [p for p in sorted(meeting.members) if p != core.place and meetings.get(p) != meeting]
        absent = ", ".join(world.describe(p) + (" (which has ended)" if p in ended else "") for p in missing)
        message = f"deadlock: {world.describe(core.place)} waits at {core.waiting.opname} for {absent}"
        hint = "all cores that take part make the same calls in the same order"
        found.append(Diagnostic(message, "LNC.R3", core.waiting.site, hint=hint))
    return TileDeadlockError(found[0].message, diagnostics=found)


class _Left(BaseException):
    """Ends the thread of a baton whose run was given up."""


def baton(run: Callable[[Callable[[Any], None]], None]) -> Iterator[Any]:
    """`run(post)` in a thread of its own, as a generator of what it posts: the thread runs only while the generator is
    being advanced, so that there is never more than one at work. Its exceptions come out of the generator.
    """
    to_thread, to_caller = threading.Semaphore(0), threading.Semaphore(0)
    posted: list[Any] = []
    failure: list[BaseException] = []
    left = False

    def post(item: Any) -> None:
        posted.append(item)
        to_caller.release()
        to_thread.acquire()
        if left:
            raise _Left

    def work() -> None:
        to_thread.acquire()
        try:
            if not left:
                run(post)
        except _Left:
            pass
        except BaseException as error:
            failure.append(error)
        to_caller.release()

    thread = threading.Thread(target=work, name="tilelang-core", daemon=True)
    thread.start()
    try:
        while True:
            to_thread.release()
            to_caller.acquire()
            if failure:
                raise failure[0]
            if not posted:
                return
            yield posted.pop()
    finally:
        left = True
        to_thread.release()
        thread.join()
