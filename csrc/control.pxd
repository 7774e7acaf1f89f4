# Control records: loops, registers and scalar memory accesses; their words are documented in sequencer.pyx.

from libc.stdint cimport int64_t, uint64_t

from records cimport *
from scalars cimport *
from threads cimport row_function

cdef inline int64_t operand(const int64_t *registers, const int64_t *pair) noexcept nogil:
    """The value of a (kind, value) pair of a control record."""
    return registers[pair[1]] if pair[0] else pair[1]


cdef inline int64_t optional(const int64_t *record, int64_t word) noexcept nogil:
    """Word number `word` after the header, 0 where the record is too short to have it."""
    return record[HEADER + word] if HEADER + word < record[H_LENGTH] else 0


cdef inline int64_t control(
    int64_t *registers, bint writes, const int64_t *record, int64_t next, int64_t *wrong
) noexcept nogil:
    """Executes a control record; gives the offset of the record to go on with, `next` being the following one.

    `writes`: this thread is the one that writes memory. `wrong` becomes (1, word) when `word` of the record means nothing.
    """
    cdef int64_t op = record[H_FN]
    cdef float real = 0
    cdef int64_t *state
    cdef const int64_t *words = record + HEADER
    if op == OP_LOOP_END:
        state = registers + words[1]
        # Unsigned difference, so that no bound can overflow.
        if <uint64_t>state[1] - <uint64_t>state[0] > <uint64_t>words[2]:
            state[0] += words[2]
            registers[words[0]] = state[0]
            return words[3]
    elif op == OP_LOOP:
        state = registers + words[1]
        state[0] = operand(registers, words + 2)
        state[1] = operand(registers, words + 4)
        if state[0] >= state[1]:
            return words[7]
        registers[words[0]] = state[0]
    elif op == OP_WHILE:
        if registers[words[0]] == 0:
            return words[1]
    elif op == OP_WHILE_END:
        return words[0]
    elif op == OP_MOVE:
        registers[words[0]] = compute(A_ADD, optional(record, 3), operand(registers, words + 1), 0)
    elif op == OP_LOAD:
        if optional(record, 3):
            (<row_function><void *>words[3])(words[1], <int64_t>&real, 1)
            registers[words[0]] = round_f32(real)
        elif not read_number(words[1], words[2], &registers[words[0]]):
            wrong[0], wrong[1] = 1, words[2]
    elif op == OP_STORE:
        if not writes:
            pass
        elif optional(record, 4):
            real = <float>operand(registers, words + 2)
            (<row_function><void *>words[4])(<int64_t>&real, words[0], 1)
        elif not write_number(words[0], words[1], operand(registers, words + 2)):
            wrong[0], wrong[1] = 1, words[1]
    elif op == OP_ALU:
        registers[words[0]] = compute(words[1], words[2], operand(registers, words + 3), operand(registers, words + 5))
    else:
        wrong[0], wrong[1] = 1, op
    return next
