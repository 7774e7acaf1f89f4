"""DMA engines: strided copies, casts, gathers, scatters, transposes and fills between DMA operands.

`address(name)` gives the address of an engine function for word 0 of a record. Both operands of a copy are enumerated
in row-major order and paired one to one; their shapes may differ. `tilelang/execute/dma_layout.py` documents and builds
the records.

A copy is planned per record: where the two shapes have a common refinement, the plan is one list of dims with two
strides each; else, and for casts, chunks go through the thread's scratch. Results do not depend on how threads share.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from plan cimport *
from records cimport *
from scalars cimport read_number
from threads cimport *

cdef enum:
    W_MODE = 8
    W_FIRST = 9
    W_ROWS = 10
    W_ROW_ITEMS = 11
    W_DECODE = 12
    W_ENCODE = 13
    W_SRC_ITEM = 14
    W_DST_ITEM = 15
    W_DST = 16
    W_SRC = 32
    W_INDICES = 48
    W_ROW_STRIDE = 60
    W_LIMIT = 61
    W_SKIP = 62
    W_SCATTER = 63
    W_AXIS = 64
    W_COUNT = 65
    W_INDEX_ROWS = 66
    W_ROW_DIM = 67
    MODE_EVEN = 0
    MODE_DST = 1
    MODE_SRC = 2
    MODE_SERIAL = 3
    CHUNK = 4096  # items converted at a time
    CHUNK_BYTES = 32768
    STRETCH = 262144  # items copied between two looks at the stop flag


cdef struct Transfer:
    View dst
    View src
    int64_t total
    int64_t direct  # `plan` pairs dst with src
    Plan plan
    Plan pack  # src to a contiguous buffer
    Plan unpack  # a contiguous buffer to dst
    row_function decode
    row_function encode
    int64_t scratch
    const int64_t *stop


# ---- transfers -------------------------------------------------------------------------------------------------------

cdef void prepare(Transfer *transfer) noexcept nogil:
    """Makes the plans from the two views."""
    cdef View buffer
    cdef int64_t taken = size_of(&transfer.src), given = size_of(&transfer.dst)
    transfer.direct = (
        transfer.decode == NULL and taken == given and join(&transfer.plan, &transfer.dst, &transfer.src)
    )
    if not transfer.direct:
        linear(&buffer, taken, transfer.src.item)
        join(&transfer.pack, &buffer, &transfer.src)
        linear(&buffer, given, transfer.dst.item)
        join(&transfer.unpack, &transfer.dst, &buffer)


cdef void convert(Transfer *transfer, int64_t dst, int64_t dk, int64_t src, int64_t sk, int64_t count) noexcept nogil:
    """`move` through scratch, chunk by chunk, decoding and encoding when the transfer casts."""
    cdef int64_t item = transfer.src.item, width = transfer.dst.item, n, bits, out
    cdef bint linear_src = is_linear(&transfer.src), linear_dst = is_linear(&transfer.dst)
    cdef int64_t packed = transfer.scratch, real = packed + CHUNK_BYTES, coded = real + CHUNK_BYTES
    while count > 0 and not atomic_peek(transfer.stop):
        n = CHUNK if count > CHUNK else count
        bits = src + sk * item
        if not linear_src:
            bits = packed
            copy_range(&transfer.pack, 0, sk, sk + n, packed - sk * item, src)
        out = bits
        if transfer.decode != NULL:
            out = dst + dk * width if linear_dst else coded
            transfer.decode(bits, real, n)
            transfer.encode(real, out, n)
        if transfer.decode == NULL or not linear_dst:
            copy_range(&transfer.unpack, 0, dk, dk + n, dst, out - dk * width)
        dk += n
        sk += n
        count -= n


cdef void move(Transfer *transfer, int64_t dst, int64_t dk, int64_t src, int64_t sk, int64_t count) noexcept nogil:
    """Transfers `count` items, from number `sk` of the source at `src` to number `dk` of the destination at `dst`."""
    cdef int64_t n
    if not transfer.direct or dk != sk:
        convert(transfer, dst, dk, src, sk, count)
        return
    while count > 0 and not atomic_peek(transfer.stop):
        n = STRETCH if count > STRETCH else count
        copy_range(&transfer.plan, 0, dk, dk + n, dst, src)
        dk += n
        count -= n


# ---- engines ---------------------------------------------------------------------------------------------------------

cdef void share(
    const int64_t *record, int64_t count, int64_t thread, int64_t nthreads, int64_t *lo, int64_t *hi
) noexcept nogil:
    """The rows lo … hi - 1 of `count` that the thread moves: those of its own physical partitions, or an even part."""
    cdef int64_t mode = record[W_MODE], first = record[W_FIRST]
    if mode == MODE_EVEN:
        lo[0] = count * thread // nthreads
        hi[0] = count * (thread + 1) // nthreads
        return
    lo[0] = PARTITIONS * thread // nthreads - first
    hi[0] = PARTITIONS * (thread + 1) // nthreads - first
    lo[0] = 0 if lo[0] < 0 else lo[0]
    hi[0] = count if hi[0] > count else hi[0]


cdef int64_t grain(const Transfer *transfer, int64_t nthreads) noexcept nogil:
    """Items per step of an even split: whole inner dims as long as every thread gets several steps."""
    cdef int64_t i = transfer.plan.ndim, step = 1
    if not transfer.direct:
        return 1
    while i > 0 and step * transfer.plan.n[i - 1] * 8 * nthreads <= transfer.total:
        i -= 1
        step *= transfer.plan.n[i]
    return step


cdef void begin(Transfer *transfer, const int64_t *record, int64_t thread) noexcept nogil:
    transfer.decode = <row_function><void *>record[W_DECODE]
    transfer.encode = <row_function><void *>record[W_ENCODE]
    transfer.scratch = record[H_SCRATCH] + thread * SCRATCH_BYTES
    transfer.stop = <const int64_t *><void *>record[H_STATUS] + S_STOP


cdef void give_up(const int64_t *record, int64_t code, int64_t value, int64_t limit, int64_t row) noexcept nogil:
    cdef int64_t *status = <int64_t *><void *>record[H_STATUS]
    status[1] = record[H_INDEX]
    status[2] = value
    status[3] = limit
    status[4] = row
    status[0] = code


cdef void copy_serial(Transfer *transfer, const int64_t *record) noexcept nogil:
    """Reads the whole source, then writes in enumeration order, so that operands may overlap and the last wins."""
    cdef int64_t item = transfer.src.item
    cdef View buffer
    cdef void *whole = malloc(transfer.total * item)
    if whole == NULL:
        give_up(record, E_MEMORY, transfer.total * item, 0, 0)
        return
    linear(&buffer, transfer.total, item)
    join(&transfer.pack, &buffer, &transfer.src)
    copy_range(&transfer.pack, 0, 0, transfer.total, <int64_t>whole, transfer.src.address)
    transfer.src = buffer
    transfer.src.address = <int64_t>whole
    prepare(transfer)
    transfer.plan.ordered = 1
    transfer.unpack.ordered = 1
    move(transfer, transfer.dst.address, 0, <int64_t>whole, 0, transfer.total)
    free(whole)


cdef void copy(int64_t *record, int64_t thread, int64_t nthreads) noexcept nogil:
    cdef Transfer transfer
    cdef int64_t lo, hi, step
    if record[W_MODE] == MODE_SERIAL and thread:
        return
    begin(&transfer, record, thread)
    view_of(&transfer.dst, record + W_DST, record[W_DST_ITEM])
    view_of(&transfer.src, record + W_SRC, record[W_SRC_ITEM])
    transfer.total = size_of(&transfer.dst)
    if transfer.total == 0:
        return
    if record[W_MODE] == MODE_SERIAL:
        copy_serial(&transfer, record)
        return
    prepare(&transfer)
    step = record[W_ROW_ITEMS] if record[W_MODE] != MODE_EVEN else grain(&transfer, nthreads)
    share(record, transfer.total // step, thread, nthreads, &lo, &hi)
    if record[W_MODE] == MODE_EVEN and thread == nthreads - 1:
        move(&transfer, transfer.dst.address, lo * step, transfer.src.address, lo * step, transfer.total - lo * step)
    elif lo < hi:
        move(&transfer, transfer.dst.address, lo * step, transfer.src.address, lo * step, (hi - lo) * step)


cdef void fill(int64_t *record, int64_t thread, int64_t nthreads) noexcept nogil:
    """A copy whose source is one item, the pattern in the record itself."""
    cdef Transfer transfer
    cdef int64_t lo, hi, step
    begin(&transfer, record, thread)
    transfer.decode = NULL
    view_of(&transfer.dst, record + W_DST, record[W_DST_ITEM])
    transfer.total = size_of(&transfer.dst)
    if transfer.total == 0:
        return
    linear(&transfer.src, transfer.total, record[W_DST_ITEM])
    transfer.src.s[0] = 0
    transfer.src.address = <int64_t>(record + W_SRC)
    prepare(&transfer)
    step = record[W_ROW_ITEMS] if record[W_MODE] != MODE_EVEN else 1
    share(record, transfer.total // step, thread, nthreads, &lo, &hi)
    if lo < hi:
        move(&transfer, transfer.dst.address, lo * step, transfer.src.address, lo * step, (hi - lo) * step)


# ---- indirect copies -------------------------------------------------------------------------------------------------

cdef int64_t index_at(const int64_t *record, int64_t row) noexcept nogil:
    """Number `row` of the index tile, its columns laid end to end; -1, never valid, for a format that is no number."""
    cdef const int64_t *indices = record + W_INDICES
    cdef int64_t rows = record[W_INDEX_ROWS], value = -1
    read_number(indices[0] + row % rows * indices[2] + row // rows * indices[11], indices[1], &value)
    return value


cdef void indirect(int64_t *record, int64_t thread, int64_t nthreads) noexcept nogil:
    """Gather or scatter: row r of the indirect operand lies `index[r] * ROW_STRIDE` bytes after its address.

    Every thread checks all indices, so that all give up at the same one. Rows go in ascending order.
    """
    cdef Transfer transfer
    cdef int64_t[16] near, far  # the direct and the indirect operand, cut down to one row
    cdef int64_t scatter = record[W_SCATTER], count = record[W_COUNT], limit = record[W_LIMIT]
    cdef int64_t mode = record[W_MODE], axis = record[W_AXIS], row_dim = record[W_ROW_DIM], near_stride = 0
    cdef int64_t row, value, lo = 0, hi = count, k0, k1, items, near_row, far_row, passed
    if not record[W_SKIP]:
        for row in range(count):
            value = index_at(record, row)
            if value < 0 or value >= limit:
                give_up(record, E_INDEX, value, limit, row)
                return
    if mode == MODE_SERIAL and thread:
        return
    memcpy(near, record + (W_SRC if scatter else W_DST), sizeof(near))
    memcpy(far, record + (W_DST if scatter else W_SRC), sizeof(far))
    far[3 + DIMS - far[2]] = 1
    if row_dim >= 0:
        near_stride = near[3 + DIMS + row_dim]
        near[3 + row_dim] = 1
    if mode == MODE_DST and axis >= 0:
        share(record, near[3 + axis], thread, nthreads, &k0, &k1)
        if k0 >= k1:
            return
        narrow(near, axis, k0, k1)
        narrow(far, axis, k0, k1)
    elif mode == MODE_DST or (mode == MODE_EVEN and not scatter):
        share(record, count, thread, nthreads, &lo, &hi)
    begin(&transfer, record, thread)
    view_of(&transfer.dst, &far[0] if scatter else &near[0], record[W_DST_ITEM])
    view_of(&transfer.src, &near[0] if scatter else &far[0], record[W_SRC_ITEM])
    items = size_of(&transfer.dst if scatter else &transfer.src)
    if items == 0:
        return
    prepare(&transfer)
    if mode == MODE_SERIAL:
        transfer.plan.ordered = 1
        transfer.unpack.ordered = 1
    k0 = 0
    k1 = items
    if mode == MODE_EVEN and scatter:
        share(record, items, thread, nthreads, &k0, &k1)
    for row in range(lo, hi):
        value = index_at(record, row)
        if value < 0 or value >= limit:
            continue
        near_row = near[0] + row * near_stride
        far_row = far[0] + value * record[W_ROW_STRIDE]
        passed = 0 if row_dim >= 0 else row * items
        if scatter:
            move(&transfer, far_row, k0, near_row, passed + k0, k1 - k0)
        else:
            move(&transfer, near_row, passed + k0, far_row, k0, k1 - k0)


# ---- widening copies of the transposes on the Tensor Engine ----------------------------------------------------------

cdef void widen(int64_t src, int64_t dst, int64_t n) noexcept nogil:
    """Row "decode" of 8-bit items: zero-extended to 32 bits."""
    cdef int64_t i
    for i in range(n):
        (<uint32_t *><void *>dst)[i] = (<const uint8_t *><void *>src)[i]


cdef void halve(int64_t src, int64_t dst, int64_t n) noexcept nogil:
    """Row "encode" of 16-bit items: the lower half of 32 bits."""
    cdef int64_t i
    for i in range(n):
        (<uint16_t *><void *>dst)[i] = <uint16_t>(<const uint32_t *><void *>src)[i]


def address(str name not None):
    """Address of the engine or row function `name`: copy, indirect, fill, widen or halve; "dma." may precede it.

    Errors: KeyError for other names.
    """
    return _ADDRESSES[name.removeprefix("dma.")]


cdef dict _ADDRESSES = {
    "copy": <int64_t><void *>copy,
    "indirect": <int64_t><void *>indirect,
    "fill": <int64_t><void *>fill,
    "widen": <int64_t><void *>widen,
    "halve": <int64_t><void *>halve,
}
