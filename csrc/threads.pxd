# Declarations of threads.h.

from libc.stdint cimport int64_t

cdef extern from "threads.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct float_mode:
        pass
    ctypedef void (*engine_function)(int64_t *, int64_t, int64_t) noexcept nogil
    ctypedef void (*row_function)(int64_t, int64_t, int64_t) noexcept nogil
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_cond_init(pthread_cond_t *, void *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_broadcast(pthread_cond_t *)
    int pthread_cond_destroy(pthread_cond_t *)
    int pthread_join(pthread_t, void **)
    int sched_yield()
    int getpid()
    int thread_start(pthread_t *, void *(*)(void *) noexcept nogil, void *)
    int64_t atomic_get(const int64_t *)
    int64_t atomic_peek(const int64_t *)
    void atomic_set(int64_t *, int64_t)
    int64_t atomic_add(int64_t *, int64_t)
    void atomic_lower(int64_t *, int64_t)
    void cpu_pause()
    int64_t clock_ns()
    float_mode float_mode_enter()
    void float_mode_leave(float_mode)
