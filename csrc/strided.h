/* Strided copies of 1, 2, 4 and 8 byte items: lines, planes and cache-blocked transposes.
 * Addresses and strides are in bytes; nothing needs alignment. */
#ifndef TILELANG_STRIDED_H
#define TILELANG_STRIDED_H

#include <stdint.h>
#include <string.h>

#define TILE 16 /* a tile of 8-byte items keeps 16 + 16 cache lines busy */

typedef uint8_t item1;
typedef uint16_t item2 __attribute__((aligned(1), may_alias));
typedef uint32_t item4 __attribute__((aligned(1), may_alias));
typedef uint64_t item8 __attribute__((aligned(1), may_alias));

#define DEFINE_COPIES(T)                                                                                               \
    static inline void line_##T(int64_t dst, int64_t src, int64_t n, int64_t ds, int64_t ss) {                         \
        int64_t i;                                                                                                     \
        if (ss == 0) {                                                                                                 \
            T value = *(const T *)src;                                                                                 \
            if (ds == (int64_t)sizeof(T))                                                                              \
                for (i = 0; i < n; i++) ((T *)dst)[i] = value;                                                         \
            else                                                                                                       \
                for (i = 0; i < n; i++) *(T *)(dst + i * ds) = value;                                                  \
        } else if (ds == (int64_t)sizeof(T)) {                                                                         \
            for (i = 0; i < n; i++) ((T *)dst)[i] = *(const T *)(src + i * ss);                                        \
        } else {                                                                                                       \
            for (i = 0; i < n; i++) *(T *)(dst + i * ds) = *(const T *)(src + i * ss);                                 \
        }                                                                                                              \
    }                                                                                                                  \
    static void plane_##T(int64_t dst, int64_t src, int64_t m, int64_t dm, int64_t sm, int64_t n, int64_t ds,          \
                          int64_t ss) {                                                                                \
        int64_t j;                                                                                                     \
        for (j = 0; j < m; j++) line_##T(dst + j * dm, src + j * sm, n, ds, ss);                                       \
    }                                                                                                                  \
    static void block_##T(int64_t dst, int64_t src, int64_t m, int64_t dm, int64_t sm, int64_t n, int64_t ds,          \
                          int64_t ss) {                                                                                \
        int64_t i, j;                                                                                                  \
        for (j = 0; j < m; j++)                                                                                        \
            for (i = 0; i < n; i++) *(T *)(dst + j * dm + i * ds) = *(const T *)(src + j * sm + i * ss);               \
    }                                                                                                                  \
    static inline void tile_##T(int64_t dst, int64_t src, int64_t dm, int64_t ss) {                                    \
        int64_t i, j;                                                                                                  \
        for (j = 0; j < TILE; j++)                                                                                     \
            for (i = 0; i < TILE; i++) ((T *)(dst + j * dm))[i] = ((const T *)(src + i * ss))[j];                      \
    }                                                                                                                  \
    static void transpose_##T(int64_t dst, int64_t src, int64_t m, int64_t dm, int64_t sm, int64_t n, int64_t ds,      \
                              int64_t ss) {                                                                            \
        int64_t i, j, rows, columns, d, s, unit = sizeof(T);                                                           \
        for (j = 0; j < m; j += TILE)                                                                                  \
            for (i = 0; i < n; i += TILE) {                                                                            \
                rows = m - j < TILE ? m - j : TILE;                                                                    \
                columns = n - i < TILE ? n - i : TILE;                                                                 \
                d = dst + j * dm + i * ds;                                                                             \
                s = src + j * sm + i * ss;                                                                             \
                if (rows == TILE && columns == TILE && ds == unit && sm == unit)                                       \
                    tile_##T(d, s, dm, ss);                                                                            \
                else                                                                                                   \
                    block_##T(d, s, rows, dm, sm, columns, ds, ss);                                                    \
            }                                                                                                          \
    }

DEFINE_COPIES(item1)
DEFINE_COPIES(item2)
DEFINE_COPIES(item4)
DEFINE_COPIES(item8)

#define BY_ITEM(NAME, ...)                                                                                             \
    switch (item) {                                                                                                    \
    case 1: NAME##_item1(__VA_ARGS__); break;                                                                          \
    case 2: NAME##_item2(__VA_ARGS__); break;                                                                          \
    case 4: NAME##_item4(__VA_ARGS__); break;                                                                          \
    default: NAME##_item8(__VA_ARGS__); break;                                                                         \
    }

/* m lines of n items; dm, sm step between lines, ds, ss within. Strictly in order. */
static void copy_plane(int64_t item, int64_t dst, int64_t src, int64_t m, int64_t dm, int64_t sm, int64_t n, int64_t ds,
                       int64_t ss) {
    BY_ITEM(plane, dst, src, m, dm, sm, n, ds, ss)
}

/* The same items in blocks, for planes whose lines are near in the source but far apart in the destination. */
static void copy_transposed(int64_t item, int64_t dst, int64_t src, int64_t m, int64_t dm, int64_t sm, int64_t n,
                            int64_t ds, int64_t ss) {
    BY_ITEM(transpose, dst, src, m, dm, sm, n, ds, ss)
}

/* m runs of `bytes` contiguous bytes. */
static void copy_runs(int64_t dst, int64_t src, int64_t m, int64_t dm, int64_t sm, int64_t bytes) {
    int64_t j;
    for (j = 0; j < m; j++) memcpy((void *)(dst + j * dm), (const void *)(src + j * sm), (size_t)bytes);
}

#endif
