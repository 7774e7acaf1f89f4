"""Control records: registers, device scalars and loops, as the sequencer (`csrc/sequencer.pyx`) reads them."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import FORMATS, Format
from tilelang.execute.layout import H_LENGTH, HEADER_WORDS
from tilelang.ir.program import Instruction, Loop
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.isa.registers import width, wrap

__all__ = [
    "FALLIBLE",
    "LONGEST_MEMORY_ACCESS",
    "end_words",
    "instruction_words",
    "load_words",
    "loop_words",
    "meet_words",
    "set_targets",
]

END, LOOP, LOOP_END, WHILE, WHILE_END, MOVE, LOAD, STORE, ALU, MEET = range(1, 11)
IMMEDIATE, REGISTER = 0, 1
LONGEST_MEMORY_ACCESS = HEADER_WORDS + 5  # words of a STORE with its row function
FALLIBLE = 4  # flag: the engine may report an error
_OPERATIONS = {"add": 0, "subtract": 1, "multiply": 2}


def _record(opcode: int, *args: int) -> list[int]:
    words = [0] * HEADER_WORDS + list(args)
    words[0] = opcode
    words[H_LENGTH] = len(words)
    return words


def _source(value: Any) -> tuple[int, int]:
    """(kind, value) of an int or register."""
    if isinstance(value, (VirtualRegister, NkiScalar)):
        return REGISTER, value.state
    return IMMEDIATE, int(value)


def end_words() -> list[int]:
    """The record that ends a program."""
    return _record(END)


def meet_words() -> list[int]:
    """The record at which a run pauses until other cores have come."""
    return _record(MEET)


def _needs_row_function(fmt: Format) -> bool:
    """True for formats the sequencer reads and writes through a function of the engines."""
    return fmt.is_float and fmt.name != "float32"


def instruction_words(item: Instruction) -> tuple[list[int], int | None, list[tuple[int, str]]]:
    """The record of a register instruction, the word of its memory address if it has one, and (word, engine
    function).
    """
    call = item.plan.call
    values = dict(zip(call.spec.names, item.args, strict=True))
    name = call.spec.name
    if name == "register_move":
        target, source = values["dst"], values["src"]
        if isinstance(source, int):
            source = wrap(source, width(target))
        return _record(MOVE, target.state, *_source(source)), None, []
    if name in ("register_load", "scalar_load"):
        fmt = FORMATS[values["src"].dtype]
        words = _record(LOAD, values["dst"].state, 0, fmt.code, *([0] if _needs_row_function(fmt) else []))
        functions = [(len(words) - 1, f"row_decode.{fmt.name}")] if _needs_row_function(fmt) else []
        return words, HEADER_WORDS + 1, functions
    if name in ("register_store", "scalar_store"):
        register = values["src"] if name == "register_store" else values["value"]
        fmt = FORMATS[values["dst"].dtype]
        words = _record(STORE, 0, fmt.code, *_source(register), *([0] if _needs_row_function(fmt) else []))
        functions = [(len(words) - 1, f"row_encode.{fmt.name}")] if _needs_row_function(fmt) else []
        return words, HEADER_WORDS, functions
    if name == "scalar_alu":
        operation = _OPERATIONS[values["op"]]
        return (
            _record(
                ALU, values["dst"].state, operation, width(values["dst"]), *_source(values["a"]), *_source(values["b"])
            ),
            None,
            [],
        )
    raise KeyError(name)


def load_words(register: int, fmt: Format) -> tuple[list[int], int]:
    """The record that loads an element of integer format `fmt` into `register`, and the word of its address."""
    return _record(LOAD, register, 0, fmt.code), HEADER_WORDS + 1


def loop_words(loop: Loop, state: int) -> tuple[list[int], list[int]]:
    """The records that open and close `loop`, targets still 0. `state`, `state + 1` are registers of the loop's own."""
    register = loop.register.state
    if loop.kind == "while":
        return _record(WHILE, register, 0), _record(WHILE_END, 0)
    begin = _record(LOOP, register, state, *_source(loop.lower), *_source(loop.upper), loop.step, 0)
    return begin, _record(LOOP_END, register, state, loop.step, 0)


def set_targets(loop: Loop, begin: list[int], end: list[int], begin_at: int, body_at: int, after: int) -> None:
    """Fill in the jump targets, word offsets in the program."""
    begin[-1] = after
    end[-1] = begin_at if loop.kind == "while" else body_at
