# Plans of strided copies: two operands of any shapes brought to common dims, and the copies that follow a plan.

from libc.stdint cimport int64_t

cdef extern from "strided.h" nogil:
    void copy_plane(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t)
    void copy_transposed(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t)
    void copy_runs(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t)

cdef enum:
    DIMS = 6  # of an operand
    PLAN_DIMS = 12


# One operand: dims of size > 1, contiguous neighbours merged, outermost first.
cdef struct View:
    int64_t address
    int64_t item
    int64_t ndim
    int64_t n[DIMS]
    int64_t s[DIMS]


# Two operands over common dims.
cdef struct Plan:
    int64_t item
    int64_t ndim
    int64_t ordered  # the destination meets itself: the last write must win
    int64_t n[PLAN_DIMS]
    int64_t ds[PLAN_DIMS]
    int64_t ss[PLAN_DIMS]


cdef inline void view_of(View *view, const int64_t *operand, int64_t item) noexcept nogil:
    """Reads a DMA operand of 16 words, merging dims."""
    cdef int64_t i, n, s
    view.address = operand[0]
    view.item = item
    view.ndim = 0
    for i in range(DIMS):
        n = operand[3 + i]
        s = operand[3 + DIMS + i]
        if n == 1:
            continue
        if view.ndim and view.s[view.ndim - 1] == n * s:
            view.n[view.ndim - 1] *= n
            view.s[view.ndim - 1] = s
        else:
            view.n[view.ndim] = n
            view.s[view.ndim] = s
            view.ndim += 1


cdef inline int64_t size_of(const View *view) noexcept nogil:
    cdef int64_t i, total = 1
    for i in range(view.ndim):
        total *= view.n[i]
    return total


cdef inline void narrow(int64_t *operand, int64_t dim, int64_t lo, int64_t hi) noexcept nogil:
    """Restricts a DMA operand to lo … hi - 1 of `dim`."""
    operand[0] += lo * operand[3 + DIMS + dim]
    operand[3 + dim] = hi - lo


cdef inline void linear(View *view, int64_t total, int64_t item) noexcept nogil:
    view.item = item
    view.ndim = 1
    view.n[0] = total
    view.s[0] = item


cdef inline bint is_linear(const View *view) noexcept nogil:
    return view.ndim == 0 or (view.ndim == 1 and view.s[0] == view.item)


cdef inline bint join(Plan *plan, const View *dst, const View *src) noexcept nogil:
    """Plans dst and src over their common refinement; False when they have none. Both hold the same number of items."""
    cdef int64_t i = dst.ndim - 1, j = src.ndim - 1, a, b, n, da, sb, count = 0, k
    cdef int64_t[PLAN_DIMS] n_in, d_in, s_in  # innermost first
    plan.item = dst.item
    plan.ordered = 0
    a = dst.n[i] if i >= 0 else 1
    da = dst.s[i] if i >= 0 else 0
    b = src.n[j] if j >= 0 else 1
    sb = src.s[j] if j >= 0 else 0
    while i >= 0 and j >= 0:
        n = a if a < b else b
        if a % n or b % n:
            return False
        if count and da == n_in[count - 1] * d_in[count - 1] and sb == n_in[count - 1] * s_in[count - 1]:
            n_in[count - 1] *= n
        else:
            n_in[count] = n
            d_in[count] = da
            s_in[count] = sb
            count += 1
        a //= n
        b //= n
        da *= n
        sb *= n
        if a == 1:
            i -= 1
            if i >= 0:
                a = dst.n[i]
                da = dst.s[i]
        if b == 1:
            j -= 1
            if j >= 0:
                b = src.n[j]
                sb = src.s[j]
    plan.ndim = count
    for k in range(count):
        plan.n[k] = n_in[count - 1 - k]
        plan.ds[k] = d_in[count - 1 - k]
        plan.ss[k] = s_in[count - 1 - k]
    return True


cdef inline int64_t magnitude(int64_t x) noexcept nogil:
    return -x if x < 0 else x


cdef inline void copy_box(const Plan *plan, int64_t first, int64_t count, int64_t dst, int64_t src) noexcept nogil:
    """Copies `count` steps of dim `first` with all dims inside it."""
    cdef int64_t[PLAN_DIMS] n, ds, ss, at
    cdef int64_t m = 0, outer = 0, i, k, extent, item = plan.item
    cdef int64_t run = 0  # bytes that are contiguous on both sides, when moved as such
    cdef int64_t inner = -1, cross = -1, second  # the dims of the plane; `cross` when it wants blocks
    cdef int64_t nm = 1, dm = 0, sm = 0, nn = 1, dn = 0, sn = 0  # the plane: lines, then items of a line
    for i in range(first, plan.ndim):
        extent = count if i == first else plan.n[i]
        if extent == 1:
            continue
        n[m] = extent
        ds[m] = plan.ds[i]
        ss[m] = plan.ss[i]
        m += 1
    if m == 0:
        copy_runs(dst, src, 1, 0, 0, item)
        return
    if ds[m - 1] == item and ss[m - 1] == item:
        m -= 1
        run = n[m] * item
        if m == 0:
            copy_runs(dst, src, 1, 0, 0, run)
            return
        if run == 2 or run == 4 or run == 8:
            item = run
            run = 0
    if not run:
        inner = m - 1
        if not plan.ordered:
            for i in range(m):
                if magnitude(ds[i]) < magnitude(ds[inner]):
                    inner = i
                if ss[i] and (cross < 0 or magnitude(ss[i]) < magnitude(ss[cross])):
                    cross = i
            if cross == inner:
                cross = -1
            elif cross >= 0 and (n[inner] < 4 or n[cross] < 4):
                # Too thin for blocks: long lines matter most.
                inner = cross if n[cross] > n[inner] else inner
                cross = -1
    second = m - 2 if inner == m - 1 else m - 1
    if cross >= 0:
        second = cross
    for i in range(m):
        if i == inner:
            nn = n[i]
            dn = ds[i]
            sn = ss[i]
        elif i == second:
            nm = n[i]
            dm = ds[i]
            sm = ss[i]
        else:
            n[outer] = n[i]
            ds[outer] = ds[i]
            ss[outer] = ss[i]
            at[outer] = 0
            outer += 1
    while True:
        if run:
            copy_runs(dst, src, nm, dm, sm, run)
        elif cross >= 0:
            copy_transposed(item, dst, src, nm, dm, sm, nn, dn, sn)
        else:
            copy_plane(item, dst, src, nm, dm, sm, nn, dn, sn)
        k = outer - 1
        while k >= 0:
            at[k] += 1
            dst += ds[k]
            src += ss[k]
            if at[k] < n[k]:
                break
            dst -= n[k] * ds[k]
            src -= n[k] * ss[k]
            at[k] = 0
            k -= 1
        if k < 0:
            return


cdef inline void copy_range(
    const Plan *plan, int64_t d, int64_t k0, int64_t k1, int64_t dst, int64_t src
) noexcept nogil:
    """Copies items k0 … k1 - 1 of the enumeration of dims d and inner, as boxes."""
    cdef int64_t inner = 1, i, lo, hi, head, tail
    if k0 >= k1:
        return
    if plan.ndim == 0:
        copy_runs(dst, src, 1, 0, 0, plan.item)
        return
    for i in range(d + 1, plan.ndim):
        inner *= plan.n[i]
    lo = k0 // inner
    hi = k1 // inner
    head = k0 - lo * inner
    tail = k1 - hi * inner
    if head:
        copy_range(plan, d + 1, head, tail if lo == hi else inner, dst + lo * plan.ds[d], src + lo * plan.ss[d])
        lo += 1
    if lo < hi:
        copy_box(plan, d, hi - lo, dst + lo * plan.ds[d], src + lo * plan.ss[d])
    if tail and lo <= hi:
        copy_range(plan, d + 1, 0, tail, dst + hi * plan.ds[d], src + hi * plan.ss[d])
