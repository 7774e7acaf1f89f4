"""What the check of a program refuses, and how it says so."""

from __future__ import annotations

import numpy as np
import pytest

from tests.execute.programs import IMM, REG, Words, assemble, count, entry, for_loop, rec, while_loop
from tilelang.execute import _sequencer as seq
from tilelang.execute._layout import verify
from tilelang.execute.layout import H_LENGTH, H_NDYN

ONE = rec(count, 0, 0)
LOOP = (rec(seq.LOOP, 0, 1, IMM, 0, IMM, 4, 1, 28), rec(seq.LOOP_END, 0, 1, 1, 16))


def _broken(words: Words, word: int, value: int) -> Words:
    return [*words[:word], value, *words[word + 1 :]]


MALFORMED: dict[str, tuple[list[Words], str]] = {
    "unknown opcode": ([rec(77)], "unknown opcode"),
    "short record": ([rec(seq.MOVE, 0)], "too short"),
    "long record": ([_broken(ONE, H_LENGTH, 1000)], "too short, or longer"),
    "register": ([rec(seq.MOVE, 9, IMM, 0, 32)], "no such register"),
    "negative register": ([rec(seq.MOVE, 0, REG, -1, 32)], "no such register"),
    "width": ([rec(seq.MOVE, 0, IMM, 0, 16)], "neither 32 nor 64"),
    "alu operation": ([rec(seq.ALU, 0, 4, 32, IMM, 0, IMM, 0)], "unknown operation"),
    "alu width": ([rec(seq.ALU, 0, 0, 8, IMM, 0, IMM, 0)], "neither 32 nor 64"),
    "load format": ([rec(seq.LOAD, 0, 0, 2, 0)], "without numbers"),
    "store format": ([rec(seq.STORE, 0, 15, IMM, 0, 0)], "without numbers"),
    "store register": ([rec(seq.STORE, 0, 9, REG, 4, 0)], "no such register"),
    "state registers": ([rec(seq.LOOP, 0, 3, IMM, 0, IMM, 1, 1, 0)], "state registers"),
    "bound": ([rec(seq.LOOP, 0, 1, REG, 7, IMM, 1, 1, 0)], "bound"),
    "step": ([rec(seq.LOOP, 0, 1, IMM, 0, IMM, 1, 0, 0)], "not positive"),
    "open loop": ([LOOP[0]], "END inside a loop"),
    "end of no loop": ([LOOP[1]], "end of no loop"),
    "wrong end": ([LOOP[0], rec(seq.WHILE_END, 0)], "target differs"),
    "other loop": ([LOOP[0], rec(seq.LOOP_END, 2, 1, 1, 16)], "another loop"),
    "loop target": ([LOOP[0], rec(seq.LOOP_END, 0, 1, 1, 0)], "target differs"),
    "while register": ([rec(seq.WHILE, 4, 0)], "no such register"),
    "deep": ([LOOP[0]] * 65, "nested too deep"),
    "entry register": ([rec(count, 0, 0, dynamic=(entry(4, 8, 0, 1),))], "names no register"),
    "entry target": ([rec(count, 0, 0, dynamic=(entry(0, 10, 0, 1),))], "outside the arguments"),
    "entry header": ([rec(count, 0, 0, dynamic=(entry(0, 4, 0, 1),))], "outside the arguments"),
    "entry kind": ([rec(count, 0, 0, dynamic=([2, 0, 0, 1, 8, 0, 1, 0],))], "unknown kind"),
    "entry format": ([rec(count, 0, 0, dynamic=([1, 0, 3, 1, 8, 0, 1, 0],))], "without numbers"),
    "entries beyond": ([_broken(rec(count, 0, 0, dynamic=(entry(0, 8, 0, 1),)), H_NDYN, 2)], "outside the record"),
    "entry of control": ([rec(seq.MOVE, 0, IMM, 0, 32, dynamic=(entry(0, 8, 0, 1),))], "targets no address"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_verify_names_the_malformed_record(name: str) -> None:
    records, message = MALFORMED[name]
    with pytest.raises(ValueError, match=message):
        verify(assemble(ONE, *records), 4)


def test_verify_counts_records() -> None:
    assert verify(assemble(), 0) == 1
    assert verify(assemble(rec(seq.MEET)), 0) == 2
    move = rec(seq.LOAD, 0, 0, 9, 0, dynamic=(entry(0, 9, 0, 1),))
    assert verify(assemble(ONE, for_loop(0, 1, (IMM, 0), (REG, 3), 1, move), while_loop(2, ONE)), 4) == 8
    with pytest.raises(ValueError, match="record 2 at word 20"):
        verify(assemble(ONE, ONE, rec(77)), 4)
    with pytest.raises(ValueError, match="no END"):
        verify(np.array(ONE, np.int64), 0)
