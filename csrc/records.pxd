# Words of records, control opcodes and status codes; documented in sequencer.pyx and docs/architecture.md, section 2.

cdef enum:
    H_FN = 0
    H_LENGTH = 1
    H_FLAGS = 2
    H_INDEX = 3
    H_STATUS = 4
    H_SCRATCH = 5
    H_NDYN = 6
    H_DYN = 7
    HEADER = 8

    F_BARRIER = 1
    F_DYNAMIC = 2
    F_FALLIBLE = 4

    # A dynamic entry.
    D_KIND = 0
    D_SOURCE = 1
    D_FORMAT = 2
    D_MULTIPLIER = 3
    D_TARGET = 4
    D_LOW = 5
    D_HIGH = 6
    D_SKIP = 7
    ENTRY = 8

    S_CODE = 0
    S_STOP = 7
    STATUS_WORDS = 8

    E_BOUNDS = 1
    E_INDEX = 2
    E_MALFORMED = 3
    E_MEMORY = 4
    E_STOPPED = 5
    E_OFFSET = 6
    E_MEETING = 7

    OP_END = 1
    OP_LOOP = 2
    OP_LOOP_END = 3
    OP_WHILE = 4
    OP_WHILE_END = 5
    OP_MOVE = 6
    OP_LOAD = 7
    OP_STORE = 8
    OP_ALU = 9
    OP_MEET = 10
    OP_LIMIT = 256

    A_ADD = 0
    A_SUBTRACT = 1
    A_MULTIPLY = 2
    A_NEGATE = 3

    SCRATCH_BYTES = 4194304  # of one thread
    PARTITIONS = 128
