"""The sequencer: runs a program of int64 records on several threads, without Python in between.

Every thread walks all records. Engine records are calls `void f(int64 *record, int64 thread, int64 nthreads)`; control
records (first word < 256) work on a private register file of each thread, so control flow needs no synchronisation.
docs/architecture.md, section 2, describes the header of a record and its dynamic entries. FLAGS bit 0 (`BARRIER`) makes
all threads meet before the record; bit 1 (`DYNAMIC`) says that dynamic entries are present; bit 2 (`FALLIBLE`) that the
engine may report an error: it then gets a copy of the record with a status block of the thread's own, so that the error
reported is the first in program order, whatever the threads' speed.

Control records, words after the header. A bound or operand is two words: `IMMEDIATE` or `REGISTER`, then the value or
the register number. Targets are word offsets in the program. Words in brackets may be left out.

    END
    LOOP        induction register, first of two private state registers, lower (2), upper (2), step > 0,
                target: the record after the LOOP_END
    LOOP_END    induction register, first state register, step, target: the first record of the body
    WHILE       register, target: the record after the WHILE_END
    WHILE_END   target: the WHILE record
    MOVE        destination register, operand (2), [width 32 or 64]
    LOAD        destination register, address, format code, [row function bits to float32, or 0]
    STORE       address, format code, operand (2), [row function float32 to bits, or 0]; thread 0 writes
    ALU         destination register, `ADD`, `SUBTRACT`, `MULTIPLY` or `NEGATE`, width 32 or 64, operands a (2), b (2)
    MEET        the run pauses: another core has to come to the same point

Loop bounds are sampled when the loop starts; the body may write the induction register, which gets a fresh copy at each
iteration. LOAD extends integers by their own sign, makes a bool 0 or 1, and rounds floats to the nearest int32 (even,
saturating, NaN to 0). STORE saturates to 8 and 16 bits, wraps to 32, stores a bool as 0 or 1 and rounds to floats.
Floats other than float32 (code 0) need the row function, `void f(int64 source, int64 destination, int64 items)`.
Results of MOVE and ALU wrap to the width and are sign-extended.

Status block: [0] code, [1] instruction index, [2] value, [3] limit, [4] row (`BOUNDS`: number of the dynamic entry),
[7] stop flag. Anyone may set [7]; the sequencer reads it at each record, long engines between chunks.
"""

import atexit
import os

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from control cimport *
from records cimport *
from scalars cimport *
from threads cimport *

cdef enum:
    MAX_THREADS = 256
    SPINS = 200  # pauses before a waiting thread offers its core to others, some microseconds
    IDLE_YIELDS = 200  # offers before an idle helper sleeps, some 100 us
    POLL_NS = 50000000

# Control opcodes.
END = OP_END
LOOP = OP_LOOP
LOOP_END = OP_LOOP_END
WHILE = OP_WHILE
WHILE_END = OP_WHILE_END
MOVE = OP_MOVE
LOAD = OP_LOAD
STORE = OP_STORE
ALU = OP_ALU
MEET = OP_MEET
# Operand kinds and ALU operations of control records.
IMMEDIATE, REGISTER = 0, 1
ADD, SUBTRACT, MULTIPLY, NEGATE = A_ADD, A_SUBTRACT, A_MULTIPLY, A_NEGATE
# FLAGS bits.
BARRIER, DYNAMIC, FALLIBLE = F_BARRIER, F_DYNAMIC, F_FALLIBLE
# Status codes.
FINE = 0
BOUNDS = E_BOUNDS
INDEX = E_INDEX
MALFORMED = E_MALFORMED
OUT_OF_MEMORY = E_MEMORY
STOPPED = E_STOPPED
OFFSET = E_OFFSET
MEETING = E_MEETING


cdef struct Worker:
    Crew *crew
    int64_t index
    int64_t step  # records this thread has begun
    int64_t *registers
    int64_t *buffer  # the copy of a record with dynamic entries
    int64_t capacity  # words in buffer
    int64_t polled  # when thread 0 last looked for signals, ns
    int64_t status[STATUS_WORDS]
    pthread_t thread
    char pad[128]  # workers share no cache line


# What the threads of one team share. The first line changes only when a run starts or fails.
cdef struct Crew:
    const int64_t *program
    int64_t *status
    void *owner
    int64_t size
    int64_t spins
    int64_t nregisters
    int64_t *kept  # registers at the start of the run and where it pauses, or NULL
    int64_t start  # first record to run
    int64_t resume  # the record after the MEET where the run pauses, or -1
    int64_t last  # no thread begins a record after this step
    int64_t quit
    Worker *workers
    char pad0[128]
    int64_t ticket  # number of runs begun
    int64_t sleepers
    char pad1[128]
    int64_t arrived
    char pad2[128]
    int64_t generation
    char pad3[128]
    int64_t running
    char pad4[128]
    int64_t error_step
    int64_t error_thread
    int64_t error[STATUS_WORDS]
    pthread_mutex_t mutex
    pthread_cond_t wake


# ---- one thread's walk -----------------------------------------------------------------------------------------------

cdef void stop(Crew *crew) noexcept nogil:
    """Makes every thread leave before its next record, and engines that poll leave now."""
    cdef int64_t i
    atomic_set(&crew.last, -1)
    atomic_set(&crew.status[S_STOP], 1)
    for i in range(crew.size):
        atomic_set(&crew.workers[i].status[S_STOP], 1)


cdef void poll(Worker *self) noexcept nogil:
    """Thread 0, about every 50 ms: lets Python handle signals; an exception of a handler stops the run."""
    cdef int64_t now = clock_ns()
    if now - self.polled < POLL_NS:
        return
    self.polled = now
    if check_signals(self.crew.owner):
        stop(self.crew)


cdef bint check_signals(void *owner) noexcept with gil:
    team = <Team>owner
    try:
        PyErr_CheckSignals()
    except BaseException as error:
        team.pending = error
        return True
    return False


cdef void report(Worker *self, const int64_t *status) noexcept nogil:
    """Notes the error in `status` unless one from earlier in the program is known, and makes all threads leave.

    The others go on up to this step: all have passed every barrier before it, and may fail earlier.
    """
    cdef Crew *crew = self.crew
    pthread_mutex_lock(&crew.mutex)
    if self.step < crew.error_step or (self.step == crew.error_step and self.index < crew.error_thread):
        crew.error_step = self.step
        crew.error_thread = self.index
        memcpy(crew.error, status, S_STOP * sizeof(int64_t))
    pthread_mutex_unlock(&crew.mutex)
    atomic_lower(&crew.last, self.step)


cdef void fail(
    Worker *self, int64_t code, int64_t instruction, int64_t value, int64_t limit, int64_t row
) noexcept nogil:
    cdef int64_t *status = self.status
    status[0] = code
    status[1] = instruction
    status[2] = value
    status[3] = limit
    status[4] = row
    report(self, status)


cdef bint meet(Worker *self) noexcept nogil:
    """Waits until all threads are here; False when the run ends before this step."""
    cdef Crew *crew = self.crew
    cdef int64_t generation = atomic_get(&crew.generation), spins = 0
    if atomic_add(&crew.arrived, 1) == crew.size:
        atomic_set(&crew.arrived, 0)
        atomic_add(&crew.generation, 1)
        return True
    while atomic_get(&crew.generation) == generation:
        if atomic_get(&crew.last) < self.step:
            return False
        if spins < crew.spins:
            spins += 1
            cpu_pause()
            continue
        if self.index == 0:
            poll(self)
        sched_yield()
    return True


cdef const int64_t *patch(Worker *self, const int64_t *record) noexcept nogil:
    """The thread's copy of `record`, dynamic entries applied; NULL when the record is skipped or has failed."""
    cdef int64_t length = record[H_LENGTH], i, value = 0, target
    cdef int64_t *copy
    cdef int64_t *entry
    if length > self.capacity:
        copy = <int64_t *>realloc(self.buffer, length * sizeof(int64_t))
        if copy == NULL:
            fail(self, E_MEMORY, record[H_INDEX], length, 0, 0)
            return NULL
        self.buffer = copy
        self.capacity = length
    copy = self.buffer
    memcpy(copy, record, length * sizeof(int64_t))
    copy[H_STATUS] = <int64_t>&self.status[0]
    if not record[H_FLAGS] & F_DYNAMIC:
        return copy
    for i in range(record[H_NDYN]):
        entry = copy + record[H_DYN] + i * ENTRY
        target = entry[D_TARGET]
        if entry[D_KIND] == 0:
            value = self.registers[entry[D_SOURCE]]
        elif not read_number(entry[D_SOURCE], entry[D_FORMAT], &value):
            fail(self, E_MALFORMED, record[H_INDEX], entry[D_FORMAT], 0, i)
            return NULL
        if value < entry[D_LOW] or value >= entry[D_HIGH]:
            if entry[D_SKIP] == 0:
                fail(self, E_BOUNDS, record[H_INDEX], value, entry[D_HIGH], i)
            return NULL
        copy[target] = <int64_t>(<uint64_t>copy[target] + <uint64_t>value * <uint64_t>entry[D_MULTIPLIER])
    return copy


cdef void walk(Worker *self) noexcept nogil:
    """Walks the program from its start to END, to a MEET, or to the step where the run ends."""
    cdef Crew *crew = self.crew
    cdef const int64_t *program = crew.program
    cdef const int64_t *record
    cdef int64_t *status = crew.status
    cdef int64_t pc = crew.start, flags, next, size = crew.size, nbytes = crew.nregisters * sizeof(int64_t)
    cdef int64_t wrong[2]
    cdef float_mode mode = float_mode_enter()
    memset(self.status, 0, sizeof(self.status))
    if nbytes and crew.kept != NULL:
        memcpy(self.registers, crew.kept, nbytes)
    elif nbytes:
        memset(self.registers, 0, nbytes)
    wrong[0] = 0
    self.step = 0
    self.polled = clock_ns()
    while True:
        record = program + pc
        flags = record[H_FLAGS]
        if flags & F_BARRIER and size > 1 and not meet(self):
            break
        if atomic_peek(&status[S_STOP]):
            stop(crew)  # others may be waiting for this thread
        if atomic_peek(&crew.last) < self.step:
            break
        if self.index == 0:
            poll(self)
        next = pc + record[H_LENGTH]
        if flags & (F_DYNAMIC | F_FALLIBLE):
            record = patch(self, record)
        if record != NULL:
            if record[H_FN] >= OP_LIMIT or record[H_FN] < 0:
                (<engine_function><void *>record[H_FN])(<int64_t *>record, self.index, size)
                if self.status[S_CODE]:
                    report(self, self.status)
                elif atomic_peek(&status[S_CODE]):
                    report(self, status)
            elif record[H_FN] == OP_END:
                break
            elif record[H_FN] == OP_MEET:
                if self.index == 0:
                    crew.resume = next
                    status[1] = record[H_INDEX]
                break
            else:
                next = control(self.registers, self.index == 0, record, next, wrong)
                if wrong[0]:
                    fail(self, E_MALFORMED, record[H_INDEX], wrong[1], 0, 0)
        pc = next
        self.step += 1
    float_mode_leave(mode)


# ---- the team --------------------------------------------------------------------------------------------------------

cdef void *serve(void *argument) noexcept nogil:
    """A helper thread: walks the program once for each ticket, sleeps between runs."""
    cdef Worker *self = <Worker *>argument
    cdef Crew *crew = self.crew
    cdef int64_t seen = 0, spins
    while True:
        spins = 0
        while atomic_get(&crew.ticket) == seen and spins < crew.spins + IDLE_YIELDS:
            spins += 1
            if spins < crew.spins:
                cpu_pause()
            else:
                sched_yield()
        if atomic_get(&crew.ticket) == seen:
            pthread_mutex_lock(&crew.mutex)
            atomic_add(&crew.sleepers, 1)
            while atomic_get(&crew.ticket) == seen:
                pthread_cond_wait(&crew.wake, &crew.mutex)
            atomic_add(&crew.sleepers, -1)
            pthread_mutex_unlock(&crew.mutex)
        seen += 1
        if crew.quit:
            return NULL
        walk(self)
        atomic_add(&crew.running, -1)


cdef void call_helpers(Crew *crew) noexcept nogil:
    atomic_add(&crew.ticket, 1)
    if atomic_get(&crew.sleepers):
        pthread_mutex_lock(&crew.mutex)
        pthread_cond_broadcast(&crew.wake)
        pthread_mutex_unlock(&crew.mutex)


def _cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


cdef class Team:
    """The calling thread and `size` - 1 helpers, who sleep between runs. One run at a time."""

    cdef Crew *crew
    cdef int64_t started
    cdef int64_t capacity  # registers per thread
    cdef int64_t process
    cdef object pending

    def __cinit__(self, int size):
        cdef int64_t i
        self.process = getpid()
        self.crew = <Crew *>calloc(1, sizeof(Crew))
        if self.crew == NULL:
            raise MemoryError
        self.crew.workers = <Worker *>calloc(size, sizeof(Worker))
        if self.crew.workers == NULL:
            raise MemoryError
        pthread_mutex_init(&self.crew.mutex, NULL)
        pthread_cond_init(&self.crew.wake, NULL)
        self.crew.owner = <void *>self
        self.crew.size = size
        self.crew.spins = SPINS if size <= _cores() else 0
        for i in range(size):
            self.crew.workers[i].crew = self.crew
            self.crew.workers[i].index = i
        for i in range(1, size):
            if thread_start(&self.crew.workers[i].thread, serve, &self.crew.workers[i]):
                raise RuntimeError(f"cannot start thread {i} of {size}")
            self.started = i

    def __dealloc__(self):
        cdef int64_t i
        # After a fork the helpers exist in the parent only, and the mutex may be held by one of them.
        if self.crew == NULL or self.process != getpid():
            return
        self.crew.quit = 1
        call_helpers(self.crew)
        for i in range(1, self.started + 1):
            pthread_join(self.crew.workers[i].thread, NULL)
        if self.crew.workers != NULL:
            for i in range(self.crew.size):
                free(self.crew.workers[i].registers)
                free(self.crew.workers[i].buffer)
            free(self.crew.workers)
        pthread_mutex_destroy(&self.crew.mutex)
        pthread_cond_destroy(&self.crew.wake)
        free(self.crew)

    cdef reserve(self, int64_t nregisters):
        cdef int64_t i
        cdef int64_t *registers
        if nregisters <= self.capacity:
            return
        for i in range(self.crew.size):
            registers = <int64_t *>realloc(self.crew.workers[i].registers, nregisters * sizeof(int64_t))
            if registers == NULL:
                raise MemoryError
            self.crew.workers[i].registers = registers
        self.capacity = nregisters

    cdef int64_t run(
        self, const int64_t *program, int64_t nregisters, int64_t *status, int64_t *kept, int64_t start
    ) except -1:
        cdef Crew *crew = self.crew
        cdef Worker *first = &crew.workers[0]
        cdef int64_t spins = 0
        self.reserve(nregisters)
        memset(status, 0, S_STOP * sizeof(int64_t))
        crew.program = program
        crew.status = status
        crew.nregisters = nregisters
        crew.kept = kept
        crew.start = start
        crew.resume = -1
        crew.last = INT64_MAX
        crew.error_step = INT64_MAX
        crew.arrived = 0
        crew.running = crew.size - 1
        with nogil:
            if crew.size > 1:
                call_helpers(crew)
            walk(first)
            while atomic_get(&crew.running):
                if spins < crew.spins:
                    spins += 1
                    cpu_pause()
                    continue
                poll(first)
                sched_yield()
        if self.pending is not None:
            pending, self.pending = self.pending, None
            status[S_STOP] = 0
            raise pending
        if crew.error_step < INT64_MAX:
            memcpy(status, crew.error, S_STOP * sizeof(int64_t))
        elif status[S_STOP]:
            status[S_CODE] = E_STOPPED
        elif crew.resume >= 0:
            status[S_CODE] = E_MEETING
            status[2] = crew.resume
            if kept != NULL:
                memcpy(kept, first.registers, nregisters * sizeof(int64_t))
        return status[S_CODE]


# Idle teams by size. A run takes one or makes one, so runs of several Python threads never wait for each other.
cdef dict _idle = {}


def run(
    const int64_t[::1] program not None,
    int64_t[::1] status not None,
    int64_t nregisters=0,
    int nthreads=1,
    int64_t[::1] registers=None,
    int64_t start=0,
):
    """Runs `program` (int64 words, ending in END) on `nthreads` threads and returns the status code.

    `status` is the status block (int64[8]) whose address the records hold; all but its stop flag is cleared first.
    Registers 0 … `nregisters` - 1 start at 0, or at the values in `registers`. At a MEET the run pauses with code
    `MEETING`: status[1] is the instruction, status[2] the record to go on with as `start`, `registers` holds the
    registers. The GIL is released; a run with one thread starts no other. Records are
    trusted: call `tilelang.execute._layout.verify` once per program. Runs that share memory must not overlap.
    Errors: ValueError for sizes out of range; what a signal handler raises (KeyboardInterrupt), all threads stopped.
    """
    if program.shape[0] < HEADER or status.shape[0] < STATUS_WORDS:
        raise ValueError("program or status block too short")
    if not 1 <= nthreads <= MAX_THREADS or nregisters < 0:
        raise ValueError(f"nthreads must be in 1 … {MAX_THREADS} and nregisters not negative")
    if registers is not None and registers.shape[0] < nregisters:
        raise ValueError(f"registers has {registers.shape[0]} items, the program needs {nregisters}")
    if not 0 <= start <= program.shape[0] - HEADER:
        raise ValueError(f"start {start} is no record of the program")
    cdef int64_t *kept = NULL
    if registers is not None and nregisters:
        kept = &registers[0]
    teams = _idle.setdefault(nthreads, [])
    try:
        team = <Team>teams.pop()
    except IndexError:
        team = Team(nthreads)
    try:
        return team.run(&program[0], nregisters, &status[0], kept, start)
    finally:
        teams.append(team)


atexit.register(_idle.clear)
os.register_at_fork(after_in_child=_idle.clear)
