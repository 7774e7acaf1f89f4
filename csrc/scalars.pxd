# Scalar registers: their arithmetic, and numbers of the storage formats in memory.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from records cimport *


cdef inline int64_t clamp(int64_t value, int64_t low, int64_t high) noexcept nogil:
    return low if value < low else high if value > high else value


cdef inline int64_t round_f32(float value) noexcept nogil:
    """Nearest integer, ties to even, saturated to int32; NaN gives 0."""
    cdef int64_t whole
    cdef double rest
    if value != value:
        return 0
    if value >= <float>2147483648.0:
        return 2147483647
    if value < <float>-2147483648.0:
        return -2147483648
    whole = <int64_t>value
    rest = <double>value - <double>whole
    if rest > 0.5 or (rest == 0.5 and whole & 1):
        whole += 1
    elif rest < -0.5 or (rest == -0.5 and whole & 1):
        whole -= 1
    return clamp(whole, -2147483648, 2147483647)


cdef inline bint read_number(int64_t address, int64_t code, int64_t *value) noexcept nogil:
    """Reads the number of format `code` at `address`; False for a format that registers cannot hold."""
    cdef int64_t bits = 0
    cdef float real
    if code == 0:
        memcpy(&real, <void *>address, 4)
        value[0] = round_f32(real)
    elif code == 7:
        value[0] = (<int8_t *>address)[0]
    elif code == 8:
        memcpy(&bits, <void *>address, 2)
        value[0] = <int16_t>bits
    elif code == 9:
        memcpy(&bits, <void *>address, 4)
        value[0] = <int32_t>bits
    elif code == 10:
        value[0] = (<uint8_t *>address)[0]
    elif code == 11:
        memcpy(&bits, <void *>address, 2)
        value[0] = bits
    elif code == 12:
        memcpy(&bits, <void *>address, 4)
        value[0] = bits
    elif code == 13:
        value[0] = (<uint8_t *>address)[0] != 0
    elif code == 14:
        memcpy(value, <void *>address, 8)
    else:
        return False
    return True


cdef inline bint write_number(int64_t address, int64_t code, int64_t value) noexcept nogil:
    """Writes `value` as a number of format `code` to `address`; False for one that registers do not convert to."""
    cdef float real
    cdef int64_t size = 1
    if code == 0:
        real = <float>value
        memcpy(<void *>address, &real, 4)
        return True
    if code == 7:
        value = clamp(value, -128, 127)
    elif code == 8:
        value = clamp(value, -32768, 32767)
        size = 2
    elif code == 9 or code == 12:
        size = 4
    elif code == 10:
        value = clamp(value, 0, 255)
    elif code == 11:
        value = clamp(value, 0, 65535)
        size = 2
    elif code == 13:
        value = value != 0
    elif code == 14:
        size = 8
    else:
        return False
    memcpy(<void *>address, &value, size)
    return True


cdef inline int64_t compute(int64_t op, int64_t width, int64_t a, int64_t b) noexcept nogil:
    cdef uint64_t x = <uint64_t>a, y = <uint64_t>b, result
    if op == A_ADD:
        result = x + y
    elif op == A_SUBTRACT:
        result = x - y
    elif op == A_MULTIPLY:
        result = x * y
    else:
        result = 0 - x
    return <int32_t><uint32_t>result if width == 32 else <int64_t>result
