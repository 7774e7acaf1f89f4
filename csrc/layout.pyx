"""Checks programs before they run, so that the sequencer can trust its records."""

from libc.stdint cimport int64_t

from records cimport *

cdef enum:
    DEPTH = 64


# The check of one program: its words, and the offsets of the loops that are open.
cdef struct Check:
    const int64_t *program
    int64_t nregisters
    int64_t depth
    int64_t stack[DEPTH]


cdef int64_t words_of(int64_t op) noexcept:
    """Least length of a control record, 0 for an unknown opcode."""
    if op == OP_END or op == OP_MEET:
        return HEADER
    if op == OP_LOOP:
        return HEADER + 8
    if op == OP_LOOP_END or op == OP_STORE:
        return HEADER + 4
    if op == OP_MOVE or op == OP_LOAD:
        return HEADER + 3
    if op == OP_WHILE:
        return HEADER + 2
    if op == OP_WHILE_END:
        return HEADER + 1
    if op == OP_ALU:
        return HEADER + 7
    return 0


cdef inline bint is_number(int64_t code) noexcept:
    """Whether registers hold numbers of format `code` without a row function: float32, integers, bool."""
    return code == 0 or 7 <= code <= 14


cdef inline bint is_register(const Check *check, int64_t number) noexcept:
    return 0 <= number < check.nregisters


cdef inline bint is_operand(const Check *check, const int64_t *pair) noexcept:
    return pair[0] == 0 or (pair[0] == 1 and is_register(check, pair[1]))


cdef const char *fault_of_entries(const Check *check, const int64_t *record) noexcept:
    cdef int64_t op = record[H_FN], length = record[H_LENGTH], start = record[H_DYN], i
    cdef const int64_t *entry
    if not 0 <= record[H_NDYN] <= length // ENTRY or not HEADER <= start <= length - record[H_NDYN] * ENTRY:
        return b"dynamic entries outside the record"
    for i in range(record[H_NDYN]):
        entry = record + start + i * ENTRY
        if entry[D_KIND] == 0 and not is_register(check, entry[D_SOURCE]):
            return b"a dynamic entry names no register"
        if entry[D_KIND] == 1 and not is_number(entry[D_FORMAT]):
            return b"a dynamic entry has a format without numbers"
        if entry[D_KIND] != 0 and entry[D_KIND] != 1:
            return b"a dynamic entry has an unknown kind"
        if not HEADER <= entry[D_TARGET] < start:
            return b"a dynamic entry targets a word outside the arguments"
        if 0 <= op < OP_LIMIT and not (op == OP_LOAD and entry[D_TARGET] == HEADER + 1) and not (
            op == OP_STORE and entry[D_TARGET] == HEADER
        ):
            return b"a dynamic entry of a control record targets no address"
    return NULL


cdef const char *fault_of_control(Check *check, const int64_t *record, int64_t pc) noexcept:
    cdef int64_t op = record[H_FN], next = pc + record[H_LENGTH], opening
    cdef const int64_t *words = record + HEADER
    cdef const int64_t *head
    if op == OP_LOOP or op == OP_WHILE:
        if not is_register(check, words[0]):
            return b"no such register"
        if op == OP_LOOP:
            if not is_register(check, words[1]) or not is_register(check, words[1] + 1):
                return b"no such state registers"
            if not is_operand(check, words + 2) or not is_operand(check, words + 4):
                return b"a bound is neither a number nor a register"
            if words[6] <= 0:
                return b"the step is not positive"
        if check.depth == DEPTH:
            return b"loops are nested too deep"
        check.stack[check.depth] = pc
        check.depth += 1
    elif op == OP_LOOP_END or op == OP_WHILE_END:
        if check.depth == 0:
            return b"the end of no loop"
        check.depth -= 1
        opening = check.stack[check.depth]
        head = check.program + opening
        if op == OP_LOOP_END:
            if head[H_FN] != OP_LOOP or head[HEADER] != words[0] or head[HEADER + 1] != words[1]:
                return b"the end of another loop"
            if words[2] != head[HEADER + 6] or words[3] != opening + head[H_LENGTH] or head[HEADER + 7] != next:
                return b"step or target differs from the start of the loop"
        elif head[H_FN] != OP_WHILE or words[0] != opening or head[HEADER + 1] != next:
            return b"the target differs from the start of the loop"
    elif op == OP_MOVE:
        if not is_register(check, words[0]) or not is_operand(check, words + 1):
            return b"no such register"
        if record[H_LENGTH] > HEADER + 3 and words[3] != 32 and words[3] != 64:
            return b"the width is neither 32 nor 64"
    elif op == OP_LOAD:
        if not is_register(check, words[0]):
            return b"no such register"
        if not is_number(words[2]) and (record[H_LENGTH] == HEADER + 3 or words[3] == 0):
            return b"a format without numbers"
    elif op == OP_STORE:
        if not is_operand(check, words + 2):
            return b"no such register"
        if not is_number(words[1]) and (record[H_LENGTH] == HEADER + 4 or words[4] == 0):
            return b"a format without numbers"
    elif op == OP_ALU:
        if not is_register(check, words[0]) or not is_operand(check, words + 3) or not is_operand(check, words + 5):
            return b"no such register"
        if words[2] != 32 and words[2] != 64:
            return b"the width is neither 32 nor 64"
        if not A_ADD <= words[1] <= A_NEGATE:
            return b"an unknown operation"
    return NULL


cdef const char *fault_of(Check *check, int64_t pc, int64_t size) noexcept:
    """What is wrong with the record at `pc`, or NULL."""
    cdef const int64_t *record = check.program + pc
    cdef const char *found
    cdef int64_t op = record[H_FN], least = HEADER
    if 0 <= op < OP_LIMIT:
        least = words_of(op)
        if least == 0:
            return b"an unknown opcode"
    if not least <= record[H_LENGTH] <= size - pc:
        return b"too short, or longer than the program"
    if record[H_FLAGS] & F_DYNAMIC:
        found = fault_of_entries(check, record)
        if found != NULL:
            return found
    if 0 <= op < OP_LIMIT:
        return fault_of_control(check, record, pc)
    return NULL


def verify(const int64_t[::1] program not None, int64_t nregisters):
    """Checks that `program` (int64 words) is well formed: records inside it, loops nested and consistent, `nregisters`
    registers enough, dynamic entries in range. Addresses are not checked.

    Returns the number of records, END included. Errors: ValueError naming the record, its offset and what is wrong.
    """
    cdef int64_t size = program.shape[0], pc = 0, count = 0
    cdef const char *found
    cdef Check check
    check.program = &program[0] if size else NULL
    check.nregisters = nregisters
    check.depth = 0
    while True:
        if pc + HEADER > size:
            raise ValueError(f"the program of {size} words has no END")
        found = fault_of(&check, pc, size)
        if found == NULL and check.program[pc] == OP_END and check.depth:
            found = b"END inside a loop"
        if found != NULL:
            raise ValueError(f"record {count} at word {pc}: {found.decode('ascii')}")
        count += 1
        if check.program[pc] == OP_END:
            return count
        pc += check.program[pc + H_LENGTH]
