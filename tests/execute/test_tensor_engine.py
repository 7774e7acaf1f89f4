"""The TensorE engine against an independent oracle: exact bits for every format, layout, mode and number of threads."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import mmap
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilelang.dtypes import FORMATS
from tilelang.execute import tensor_layout as at
from tilelang.execute.engines.registry import engine_address
from tilelang.execute.layout import H_SCRATCH, SCRATCH_BYTES, operand

F32 = np.float32
Bytes = NDArray[np.uint8]
DST_FORMATS = ("float32", "bfloat16", "float16", "float8_e4m3fn")
NAN_BITS = {"float32": 0x7FC00000, "bfloat16": 0x7FC0, "float16": 0x7E00, "float8_e4m3fn": 0x7F}


# --- oracle -----------------------------------------------------------------------------------------------------------


def fused(a: NDArray[F32], b: NDArray[F32], c: NDArray[F32]) -> NDArray[F32]:
    """`a * b + c` with one rounding: the exact product and the sum rounded to odd in float64, then to float32."""
    with np.errstate(all="ignore"):
        product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
        total = product + addend
        part = total - product
        lost = (product - (total - part)) + (addend - part)
        even = (total.view(np.uint64) & np.uint64(1)) == 0
        inexact = np.isfinite(total) & (lost != 0) & even
        odd = np.where(inexact, np.nextafter(total, np.copysign(np.inf, lost)), total)
        return odd.astype(F32)


def values(bits: NDArray[np.generic], name: str) -> NDArray[F32]:
    """Float32 values of operand bits, by ml_dtypes and NumPy; tfloat32 rounds its low 13 bits away, to nearest even."""
    if name == "tfloat32":
        wide = bits.astype(np.uint64)
        rounded = (wide + 0xFFF + ((wide >> np.uint64(13)) & np.uint64(1))) & np.uint64(0xFFFFE000)
        number = bits.view(F32)
        return np.where(np.isnan(number), number, rounded.astype(np.uint32).view(F32))
    return np.asarray(bits.view(FORMATS[name].host), F32)


def product_of(a: NDArray[F32], b: NDArray[F32]) -> NDArray[F32]:
    """The chain over the steps of `a` (S, M) and `b` (S, N)."""
    total = np.zeros((a.shape[1], b.shape[1]), F32)
    for row_a, row_b in zip(a, b, strict=True):
        total = fused(np.broadcast_to(row_a[:, None], total.shape), np.broadcast_to(row_b, total.shape), total)
    return total


def canonical(x: NDArray[F32], name: str = "float32") -> NDArray[np.generic]:
    """Bits of `x` in format `name`, every NaN the positive quiet one."""
    with np.errstate(all="ignore"):
        bits = np.where(np.isnan(x), F32(np.nan), x).astype(FORMATS[name].host).view(FORMATS[name].carrier)
    return np.where(np.isnan(x), bits.dtype.type(NAN_BITS[name]), bits)


# --- memory and records -----------------------------------------------------------------------------------------------


@dataclass
class Plane:
    """A tensor in its own memory: `rows` rows of the free dims `dims` (count, byte stride), poisoned elsewhere."""

    name: str
    rows: int
    dims: Sequence[tuple[int, int]]
    pitch: int = 0
    memory: Bytes = field(init=False)

    def __post_init__(self) -> None:
        self.size = FORMATS[self.name].itemsize
        extent = sum((count - 1) * stride for count, stride in self.dims) + self.size
        self.pitch = self.pitch or extent + 24
        self.memory = np.full((self.rows - 1) * self.pitch + extent, 0xA5, np.uint8)
        starts = np.zeros(1, np.int64)
        for count, stride in self.dims:
            starts = (starts[:, None] + np.arange(count) * stride).reshape(-1)
        cells = (np.arange(self.rows)[:, None] * self.pitch + starts)[:, :, None] + np.arange(self.size)
        self.cells = cells.reshape(self.rows, -1)

    @property
    def bits(self) -> NDArray[np.generic]:
        return self.memory[self.cells].view(FORMATS[self.name].carrier)

    @bits.setter
    def bits(self, new: NDArray[np.generic]) -> None:
        self.memory[self.cells] = np.ascontiguousarray(new).view(np.uint8)

    def words(self) -> list[int]:
        return operand(FORMATS[self.name].code, self.size, self.pitch, list(self.dims), self.memory.ctypes.data)

    def outside(self) -> Bytes:
        """The bytes that belong to no element."""
        mask = np.ones(self.memory.size, bool)
        mask[self.cells] = False
        return self.memory[mask]


def row(name: str, rows: int, count: int) -> Plane:
    return Plane(name, rows, [(count, FORMATS[name].itemsize)])


SCRATCH = np.zeros(8 * SCRATCH_BYTES + 64, np.uint8)


def load(record: at.TensorRecord) -> Callable[[int, int], None]:
    """The record ready to run: a function of the thread and the number of threads."""
    words = np.array(record.words, np.int64)
    words[H_SCRATCH] = -(-SCRATCH.ctypes.data // 64) * 64
    for offset, name in record.engines:
        words[offset] = engine_address(name)
    engine = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(int(words[0]))
    return lambda thread, threads: engine(words.ctypes.data, thread, threads)


def matmul(
    dst: Plane, stationary: Plane, moving: Plane, threads: int = 1, mode: int = at.OVERWRITE, **options: Any
) -> None:
    """Run the matmul as each of `threads` threads in turn, the last one first; nothing but dst may change."""
    n = dst.cells.shape[1] // dst.size
    before = [plane.outside() for plane in (dst, stationary, moving)]
    record = at.matmul_record(
        dst.words(), stationary.words(), moving.words(), k=stationary.rows, m=dst.rows, n=n, mode=mode, **options
    )
    run = load(record)
    for thread in reversed(range(threads)):
        run(thread, threads)
    for plane, old in zip((dst, stationary, moving), before, strict=True):
        assert np.array_equal(plane.outside(), old)


def fill(rng: np.random.Generator, *planes: Plane) -> None:
    """Ordinary numbers of a few binades, rounded to each plane's format."""
    for plane in planes:
        x = rng.standard_normal((plane.rows, plane.cells.shape[1] // plane.size)).astype(F32)
        plane.bits = x.astype(FORMATS[plane.name].host).view(FORMATS[plane.name].carrier)


def fill_bits(rng: np.random.Generator, *planes: Plane, finite: bool = False) -> None:
    """Any bit patterns: subnormals, infinities and NaN with payloads among them."""
    for plane in planes:
        carrier = FORMATS[plane.name].carrier
        shape = (plane.rows, plane.cells.shape[1] // plane.size)
        bits = rng.integers(0, 2 ** (8 * plane.size), shape, dtype=np.uint64).astype(carrier)
        if finite:
            bits = np.where(np.isfinite(values(bits, plane.name)), bits, carrier.type(1))
        plane.bits = bits


def expected(stationary: Plane, moving: Plane, passes: int = 1) -> NDArray[F32]:
    """The product of two planes; with two passes the free elements of each are [2, M] or [2, N]."""
    a, b = (values(plane.bits, plane.name).reshape(plane.rows * passes, -1) for plane in (stationary, moving))
    return product_of(a, b)


# --- the oracle itself ------------------------------------------------------------------------------------------------


def nearest(x: Fraction) -> F32:
    """`x` rounded to float32, to nearest even, by exact comparison with the neighbours of a first guess."""
    guess = F32(float(x))
    near = [guess, np.nextafter(guess, F32(-np.inf)), np.nextafter(guess, F32(np.inf))]
    return min(near, key=lambda f: (abs(Fraction(float(f)) - x), int(f.view(np.uint32)) & 1))


def test_oracle_rounds_once() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(400).astype(F32) * F32(2) ** rng.integers(-70, 60, 400).astype(F32) for _ in range(2))
    # Addends near minus the product and near its last bits: cancellation, ties, subnormal results.
    c = (-a * b * (F32(1) + rng.integers(-2, 3, 400).astype(F32) * F32(2**-23))).astype(F32)
    with np.errstate(over="ignore"):
        c[::3] = (a * b * F32(2**24))[::3]
    keep = np.isfinite(c)
    got = fused(a, b, c)
    for i in np.flatnonzero(keep):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        assert got[i] == nearest(exact)


# --- products ---------------------------------------------------------------------------------------------------------

PAIRS = list(itertools.product(at.FORMAT_NAMES, repeat=2))


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_every_pair_of_formats(left: str, right: str) -> None:
    rng = np.random.default_rng(PAIRS.index((left, right)))
    stationary, moving, dst = row(left, 19, 7), row(right, 19, 70), row("float32", 7, 70)
    fill_bits(rng, stationary, moving, finite=True)
    matmul(dst, stationary, moving)
    assert np.array_equal(dst.bits, canonical(expected(stationary, moving)))


@pytest.mark.parametrize("name", at.FORMAT_NAMES)
def test_every_code_is_read(name: str) -> None:
    """One step of 1 * x from +0 gives x, and +0 for -0: all 8- and 16-bit codes, and many 32-bit ones."""
    rng = np.random.default_rng(3)
    size = FORMATS[name].itemsize
    codes = np.arange(2 ** (8 * min(size, 2)), dtype=np.uint64)
    if size == 4:
        codes = np.concatenate([codes << np.uint64(16), rng.integers(0, 2**32, 2**15, dtype=np.uint64)])
    codes = np.resize(codes, -(-codes.size // 2048) * 2048).astype(FORMATS[name].carrier).reshape(-1, 2048)
    one, moving, dst = row("float32", 1, 1), row(name, 1, 2048), row("float32", 1, 2048)
    one.bits = np.ones((1, 1), F32).view(np.uint32)
    for line in codes:
        moving.bits = line[None]
        matmul(dst, one, moving)
        x = values(line[None], name)
        assert np.array_equal(dst.bits, np.where(x == 0, np.uint32(0), canonical(x)))


SHAPES = "1x1x1 2x3x5 128x128x1 128x1x512 7x127x63 31x5x64 128x33x255 5x128x257 256x9x49 64x66x512 2x2x8192"


@pytest.mark.parametrize("shape", SHAPES.split())
def test_shapes(shape: str) -> None:
    k, m, n = map(int, shape.split("x"))
    rng = np.random.default_rng(k + m + n)
    stationary, moving, dst = row("bfloat16", k, m), row("float32", k, n), row("float32", m, n)
    fill(rng, stationary, moving)
    matmul(dst, stationary, moving)
    assert np.array_equal(dst.bits, canonical(expected(stationary, moving)))


def test_infinities_nan_subnormals_and_zeros() -> None:
    rng = np.random.default_rng(5)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1e-38, 3.4e38, -3e38, 1.0, -1.0], F32)
    stationary, moving, dst = row("float32", 4, 40), row("float32", 4, 200), row("float32", 40, 200)
    for _ in range(4):
        stationary.bits, moving.bits = (
            np.where(rng.random(shape) < 0.3, F32(0.5), rng.choice(special, shape)).view(np.uint32)
            for shape in ((4, 40), (4, 200))
        )
        matmul(dst, stationary, moving)
        want = canonical(expected(stationary, moving))
        assert np.array_equal(dst.bits, want)
        kinds = want.view(F32)
        assert np.isnan(kinds).any() and np.isinf(kinds).any() and ((kinds != 0) & (abs(kinds) < 1.2e-38)).any()


# --- layouts ----------------------------------------------------------------------------------------------------------


def layouts(size: int) -> Iterator[list[tuple[int, int]]]:
    """Free patterns of 120 elements of `size` bytes: strided, padded, permuted, reversed order of dims."""
    yield [(120, 3 * size)]
    yield [(6, 25 * size), (20, size)]
    yield [(20, 9 * size), (6, size)]
    yield [(2, 100 * size), (3, 31 * size), (4, 7 * size), (5, size)]
    yield [(2, size), (60, 2 * size)]
    yield [(5, size), (4, 5 * size), (3, 20 * size), (2, 61 * size)]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3"])
@pytest.mark.parametrize("shape", range(6))
def test_free_patterns(name: str, shape: int) -> None:
    rng = np.random.default_rng(shape)
    dims = list(layouts(FORMATS[name].itemsize))[shape]
    stationary, moving = Plane(name, 9, dims), Plane(name, 9, list(layouts(FORMATS[name].itemsize))[shape - 1])
    dst = Plane("float32", 120, list(layouts(4))[shape - 2])
    fill(rng, stationary, moving)
    matmul(dst, stationary, moving, threads=3)
    assert np.array_equal(dst.bits, canonical(expected(stationary, moving)))


def test_moving_may_repeat_elements() -> None:
    stationary, moving, dst = row("bfloat16", 6, 12), Plane("bfloat16", 6, [(30, 2), (10, 0)]), row("float32", 12, 300)
    fill(np.random.default_rng(8), stationary, moving)
    matmul(dst, stationary, moving)
    assert np.array_equal(dst.bits, canonical(expected(stationary, moving)))


@pytest.mark.skipif(os.name != "posix", reason="needs mprotect")
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2"])
def test_nothing_outside_the_operands_is_touched(name: str) -> None:
    """Each operand ends where an unreadable page begins."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    rng = np.random.default_rng(9)
    planes = [row(name, 5, 6), row(name, 5, 77), row("float32", 6, 77)]
    for plane in planes:
        whole = np.frombuffer(mmap.mmap(-1, 17 * page), np.uint8)
        assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + 16 * page), ctypes.c_size_t(page), 0) == 0
        plane.memory = whole[16 * page - plane.memory.size : 16 * page]
        plane.memory[:] = 0xA5
    stationary, moving, dst = planes
    fill(rng, stationary, moving)
    matmul(dst, stationary, moving)
    assert np.array_equal(dst.bits, canonical(expected(stationary, moving)))


# --- modes ------------------------------------------------------------------------------------------------------------


def accumulated(
    dst: Plane, before: NDArray[np.generic], product: NDArray[F32], add: NDArray[np.bool_]
) -> NDArray[np.generic]:
    with np.errstate(all="ignore"):
        total = np.where(add, values(before, dst.name) + product, product)
    return canonical(total, dst.name)


@pytest.mark.parametrize("name", DST_FORMATS)
@pytest.mark.parametrize("pattern", ["plain", "padded"])
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("mode", [at.OVERWRITE, at.ACCUMULATE, at.BY_BITMAP])
def test_modes(name: str, pattern: str, special: bool, mode: int) -> None:
    rng = np.random.default_rng(11)
    m, n, size = 14, 130, FORMATS[name].itemsize
    dims = [(n, size)] if pattern == "plain" else [(10, 15 * size), (13, size)]
    stationary, moving, dst = row("bfloat16", 12, m), row("bfloat16", 12, n), Plane(name, m, dims)
    fill(rng, stationary, moving, dst)
    if special:
        fill_bits(rng, dst)
    written = (rng.random((m, 151)) < 0.5).astype(np.uint8)
    places = (dst.cells[0, ::size] // size).astype(np.int64)
    add = written[:, places] != 0 if mode == at.BY_BITMAP else np.full((m, n), mode == at.ACCUMULATE)
    want = accumulated(dst, dst.bits, expected(stationary, moving), add)
    marked = written.copy()
    options: dict[str, Any] = {"first_partition": 57}
    if mode == at.BY_BITMAP:
        marked[:, places] = 1
        options["written"] = written.ctypes.data, 151
    matmul(dst, stationary, moving, 2, mode, **options)
    assert np.array_equal(dst.bits, want)
    assert np.array_equal(written, marked)


def test_accumulation_adds_the_rounded_product() -> None:
    """1 + 2^24 rounds to 2^24, and so does that plus dst = 1; a chain started from dst would give 2^24 + 2."""
    stationary, moving, dst = row("float32", 2, 1), row("float32", 2, 1), row("float32", 1, 1)
    stationary.bits = np.array([[1.0], [2.0**24]], F32).view(np.uint32)
    moving.bits = np.ones((2, 1), F32).view(np.uint32)
    dst.bits = np.ones((1, 1), F32).view(np.uint32)
    matmul(dst, stationary, moving, mode=at.ACCUMULATE)
    assert dst.bits.view(F32)[0, 0] == F32(2.0**24)


FP8 = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize(("left", "right"), list(itertools.product(FP8, repeat=2)))
@pytest.mark.parametrize(("k", "gap"), [(23, 0), (23, 5), (128, 0)])
def test_double_row(left: str, right: str, k: int, gap: int) -> None:
    rng = np.random.default_rng(13)
    m, n = 37, 300
    stationary = Plane(left, k, [(2, m + gap), (m, 1)])
    moving = Plane(right, k, [(2, n + gap), (n, 1)])
    dst = row("float32", m, n)
    fill_bits(rng, stationary, moving, finite=True)
    matmul(dst, stationary, moving, threads=2, double_row=True)
    assert np.array_equal(dst.bits, canonical(expected(stationary, moving, passes=2)))


def some_row(rng: np.random.Generator, name: str, rows: int, count: int) -> Plane:
    """A plane of `count` free elements: adjacent, strided, or in padded runs."""
    size = FORMATS[name].itemsize
    runs = [d for d in range(1, count + 1) if count % d == 0]
    run, gap, step = int(rng.choice(runs)), int(rng.integers(0, 4)), int(rng.integers(1, 4))
    plain, strided, padded = [(count, size)], [(count, step * size)], [(count // run, (run + gap) * size), (run, size)]
    return Plane(name, rows, (plain, strided, padded)[rng.integers(3)])


@pytest.mark.parametrize("seed", range(40))
def test_random_records(seed: int) -> None:
    rng = np.random.default_rng((19, seed))
    left, right, name = rng.choice(at.FORMAT_NAMES), rng.choice(at.FORMAT_NAMES), str(rng.choice(DST_FORMATS))
    k, m, n = int(rng.integers(1, 40)), int(rng.integers(1, 129)), int(rng.integers(1, 600))
    double, threads, mode = bool(rng.integers(2)), int(rng.integers(1, 5)), int(rng.integers(3))
    passes, first = 1 + double, int(rng.integers(0, 129 - m))
    stationary, moving = some_row(rng, str(left), k, passes * m), some_row(rng, str(right), k, passes * n)
    dst = some_row(rng, name, m, n)
    (fill, fill_bits)[rng.integers(2)](rng, stationary, moving)
    fill(rng, dst)
    places = dst.cells[0, :: dst.size] // dst.size
    written = rng.integers(0, 2, (m, places.max() + 3), dtype=np.uint8)
    add = written[:, places] != 0 if mode == at.BY_BITMAP else np.full((m, n), mode == at.ACCUMULATE)
    want = accumulated(dst, dst.bits, expected(stationary, moving, passes), add)
    by_bitmap = (written.ctypes.data, written.shape[1]) if mode == at.BY_BITMAP else None
    matmul(dst, stationary, moving, threads, mode, first_partition=first, double_row=double, written=by_bitmap)
    assert np.array_equal(dst.bits, want)
    assert mode != at.BY_BITMAP or written[:, places].all()


# --- determinism ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 31, 64, 90])
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
def test_each_thread_writes_its_own_partitions(first: int, threads: int) -> None:
    rng = np.random.default_rng(15)
    m = 128 - first
    stationary, moving, dst = row("bfloat16", 10, m), row("bfloat16", 10, 65), row("float32", m, 65)
    fill(rng, stationary, moving)
    want = canonical(expected(stationary, moving))
    record = at.matmul_record(
        dst.words(), stationary.words(), moving.words(), k=10, m=m, n=65, mode=at.OVERWRITE, first_partition=first
    )
    run = load(record)
    owner = np.arange(first, 128)
    for thread in range(threads):
        dst.memory[:] = 0xA5
        run(thread, threads)
        mine = (128 * thread // threads <= owner) & (owner < 128 * (thread + 1) // threads)
        assert np.array_equal(dst.bits[mine], want[mine])
        assert (dst.bits[~mine] == 0xA5A5A5A5).all()


def digest() -> str:
    """Bits of several products: what must not depend on the CPU."""
    rng = np.random.default_rng(17)
    seen = hashlib.sha256()
    pairs = ("float32", "tfloat32"), ("bfloat16", "float16"), ("float16", "bfloat16"), ("float8_e4m3fn", "float8_e5m2")
    for (left, right), filling in itertools.product(pairs, (fill, fill_bits)):
        stationary, moving = row(left, 33, 13), row(right, 33, 70)
        filling(rng, stationary, moving)
        for name, mode in itertools.product(("float32", "bfloat16"), (at.OVERWRITE, at.ACCUMULATE)):
            dst = row(name, 13, 70)
            fill(rng, dst)
            matmul(dst, stationary, moving, 1, mode)
            seen.update(dst.bits.tobytes())
    return seen.hexdigest()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names x86 CPUs")
@pytest.mark.parametrize(("cpu", "features"), [("x86-64", ""), ("haswell", "+avx2,+fma,+bmi,+bmi2,+f16c")])
def test_other_cpus_give_the_same_bits(cpu: str, features: str, tmp_path: Path) -> None:
    settings = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features, "TILELANG_CACHE_DIR": str(tmp_path)}
    root = os.pathsep.join(filter(None, [str(Path(at.__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    command, environment = [sys.executable, __file__], os.environ | settings | {"PYTHONPATH": root}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest()


# --- records ----------------------------------------------------------------------------------------------------------


def test_record_names_what_the_encoder_fills_in() -> None:
    planes = row("float32", 5, 6), row("bfloat16", 4, 5), row("float8_e5m2", 4, 6)
    record = at.matmul_record(
        *(plane.words() for plane in planes), k=4, m=5, n=6, mode=at.BY_BITMAP, written=(4096, 64)
    )
    assert record.words[1] == len(record.words) == at.MATMUL_WORDS
    assert record.operands == tuple(
        zip((at.DST, at.STATIONARY, at.MOVING, at.WRITTEN), ("dst", "stationary", "moving", "written"), strict=True)
    )
    assert [record.words[offset] for offset, _ in record.operands[:3]] == [plane.memory.ctypes.data for plane in planes]
    assert record.engines[0] == (0, "matmul.float32")
    assert record.engines[1] == (at.READ_STATIONARY, "matmul.read.bfloat16")
    assert record.engines[2] == (at.READ_MOVING, "matmul.read.float8_e5m2")


BAD: dict[str, dict[str, Any]] = {
    "outside": {"k": 257},
    "stationary has 5": {"m": 6},
    "dst has 6": {"n": 5},
    "mode 3": {"mode": 3},
    "None: the byte map": {"mode": at.BY_BITMAP},
    r"\(1, 2\): the byte map": {"written": (1, 2)},
    "not 10": {"double_row": True},
}


@pytest.mark.parametrize("message", BAD)
def test_record_rejects_what_the_engine_cannot_do(message: str) -> None:
    planes = row("float32", 5, 6), row("bfloat16", 4, 5), row("bfloat16", 4, 6)
    options = {"k": 4, "m": 5, "n": 6, "mode": at.OVERWRITE} | BAD[message]
    with pytest.raises(ValueError, match=message):
        at.matmul_record(*(plane.words() for plane in planes), **options)


def test_record_rejects_formats() -> None:
    operands = [row(name, 4, 5).words() for name in ("bool", "int8", "bfloat16")]
    for dst, stationary, message in ((0, 2, "dst format 'bool'"), (2, 1, "operand format 'int8'")):
        with pytest.raises(ValueError, match=message):
            at.matmul_record(operands[dst], operands[stationary], operands[2], k=4, m=5, n=5, mode=at.OVERWRITE)


if __name__ == "__main__":
    print(digest())
