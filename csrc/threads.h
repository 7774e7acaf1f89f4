/* What the sequencer needs below Cython: atomics, a pause, a cheap clock and a known floating-point environment.
 * gcc and clang, Linux and macOS, any 64-bit little-endian CPU. */
#ifndef TILELANG_THREADS_H
#define TILELANG_THREADS_H

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "records and bit patterns are little-endian"
#endif

static inline int64_t atomic_get(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline int64_t atomic_peek(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void atomic_set(int64_t *p, int64_t value) { __atomic_store_n(p, value, __ATOMIC_SEQ_CST); }
/* Returns the new value. */
static inline int64_t atomic_add(int64_t *p, int64_t value) { return __atomic_add_fetch(p, value, __ATOMIC_SEQ_CST); }
static inline void atomic_lower(int64_t *p, int64_t value) {
    int64_t old = atomic_get(p);
    while (value < old && !__atomic_compare_exchange_n(p, &old, value, 1, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}

static inline void cpu_pause(void) {
#if defined(__SSE2__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}

/* Monotonic, good to a few milliseconds, a few nanoseconds a call. */
static inline int64_t clock_ns(void) {
    struct timespec now;
#if defined(CLOCK_MONOTONIC_COARSE)
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Results must not depend on a library of the host process that switched on flush-to-zero or another rounding mode. */
#if defined(__SSE2__)
typedef unsigned int float_mode;
static inline float_mode float_mode_enter(void) {
    unsigned int old = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return old;
}
static inline void float_mode_leave(float_mode old) { _mm_setcsr(old); }
#else
typedef fenv_t float_mode;
static inline float_mode float_mode_enter(void) {
    fenv_t old;
    fegetenv(&old);
    fesetenv(FE_DFL_ENV);
    return old;
}
static inline void float_mode_leave(float_mode old) { fesetenv(&old); }
#endif

/* Starts a helper thread with an 8 MiB stack (macOS gives 512 KiB) and every signal blocked: Python's own threads get
 * them. */
static inline int thread_start(pthread_t *thread, void *(*body)(void *), void *argument) {
    pthread_attr_t attributes;
    sigset_t all, old;
    int failed;
    if (pthread_attr_init(&attributes)) return -1;
    pthread_attr_setstacksize(&attributes, (size_t)8 << 20);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(thread, &attributes, body, argument);
    pthread_sigmask(SIG_SETMASK, &old, 0);
    pthread_attr_destroy(&attributes);
    return failed ? -1 : 0;
}

typedef void (*engine_function)(int64_t *record, int64_t thread, int64_t nthreads);
typedef void (*row_function)(int64_t source, int64_t destination, int64_t items);

#endif
